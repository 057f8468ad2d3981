"""`sglang.dump`: what a dump patch, applied as an overlay to the real engine, leaves in its files.

The patch finds its folder in `PARAMS["folder"]` and writes one folder a request with a `.pt` file a tensor. The engine
serves the requests as they come, then in another order, then in a larger batch, each into a folder of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from eagle_contracts.subjects.protocol import Subject

PARAMETERS: Mapping[str, str] = {"overlay": "the patch's file, as an overlay: literals PARAMS and EDITS"}
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
BASE, PERMUTED, LARGER = "base", "permuted_requests", "larger_batch"


OPTIONAL: Mapping[str, str] = {"folder_variable": "the environment variable that the patch takes its folder from"}


_FOLDER: dict[str, str] = {}
"""What `prepare` leaves for the children of a worker: the variable that the patch reads, if it reads one."""


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return nothing more: the overlay is the engine's own."""
    return {}


def prepare_params(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the patch reads its folder from."""
    return {"folder_variable": str(given["folder_variable"].data)} if "folder_variable" in given else {}


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Import the patched engine once; see `sglang_engine.prepare`."""
    from eagle_contracts.subjects import sglang_engine

    _FOLDER.update({"variable": params["folder_variable"]} if "folder_variable" in params else {})
    return sglang_engine.prepare(params)


def point_at(folder: str) -> None:
    """Tell the patch where to write: by the variable that the contract names, else by `PARAMS["folder"]`."""
    import os

    from eagle_contracts.workers import overlays

    if "variable" in _FOLDER:
        os.environ[_FOLDER["variable"]] = folder
    else:
        overlays.set_params({"folder": folder})


SUBJECT = Subject(
    name="sglang.dump",
    engine="sglang",
    parameters=PARAMETERS,
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe",
    promises=("slots", "rows"),
    request=request,
    on_device=True,
    prepare_params=prepare_params,
    optional=OPTIONAL,
)


def gate(params: dict[str, Any]) -> dict[str, Any]:
    """Let the patched engine's own stream agree with transformers', its files going nowhere."""
    import tempfile

    from eagle_contracts.subjects import sglang_capture

    with tempfile.TemporaryDirectory(prefix="eagle_contracts_dump_") as folder:
        point_at(folder)
        return sglang_capture.gate(params)


def batches(prompts: list[list[int]]) -> dict[str, list[list[int]]]:
    """Return the batches served: as given, in another order, and among other requests."""
    others = [list(reversed(prompt)) for prompt in prompts]
    return {
        BASE: prompts,
        PERMUTED: prompts[::-1],
        LARGER: [x for pair in zip(others, prompts, strict=True) for x in pair],
    }


def places_in(batch: str, requests: int) -> list[int]:
    """Return where each request stands in a batch of `batches`."""
    return {PERMUTED: list(range(requests))[::-1], LARGER: [2 * n + 1 for n in range(requests)]}.get(
        batch, list(range(requests))
    )


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Serve the batches, read the files of the first and identify every tensor in them."""
    from eagle_contracts.subjects import sglang_capture, sglang_engine, twin_weights
    from eagle_contracts.workers import overlays, standins

    manifest = twin_weights.read_manifest(Path(params["folder"]))
    files = Path(params["out"]) / "files"
    overlays.set_params(params.get("overlay_params", {}))
    engine = sglang_engine.Engine(Path(params["folder"]) / "target", draft=None, architecture=params["architecture"])
    try:
        for name, prompts in batches(manifest["prompts"]).items():
            (files / name).mkdir(parents=True)
            point_at(str(files / name))
            engine.forward(prompts)
    except sglang_engine.EngineRefused as refusal:
        return {"refused": sglang_capture.refusal_of(refusal)}
    if standins.USED:
        raise standins.StandInUsed(f"the engine used stand-ins: {', '.join(sorted(set(standins.USED)))}")
    return {"refused": None, **_read(files / BASE, manifest["prompts"], params)}


def _read(folder: Path, prompts: list[list[int]], params: dict[str, Any]) -> dict[str, Any]:
    """Read one batch's files in the order of the requests, and identify each name over all requests."""
    from eagle_contracts.subjects import tensors

    requests, unreadable = read_files(folder)
    tensors.save_named(Path(params["out"]), requests)
    names = sorted({name for named in requests for name in named}, key=_natural_name)
    return {
        "unreadable": unreadable,
        "requests": len(requests),
        "rows": [{name: t.shape[0] if t.dim() else 0 for name, t in named.items()} for named in requests],
        "dtypes": {name: str(_first(requests, name).dtype).removeprefix("torch.") for name in names},
        "named": {
            name: _identified([named.get(name) for named in requests], prompts, params, _declared(params, name))
            for name in names
            if _first(requests, name).is_floating_point()
        },
    }


def read_files(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each request's tensors by file name, in the order of the requests' folders, and what cannot be read."""
    import torch

    requests, unreadable = [], []
    for place in sorted((p for p in folder.iterdir() if p.is_dir()), key=_natural):
        named = {}
        for file in sorted(place.glob("*.pt")):
            try:
                loaded = torch.load(file, weights_only=True, map_location="cpu")
            except Exception as error:
                first = (_COLORS.sub("", str(error)).splitlines() or [""])[0]
                unreadable.append(f"{place.name}/{file.name}: {type(error).__name__}: {first}")
                continue
            if isinstance(loaded, torch.Tensor):
                named[file.stem] = loaded
        requests.append(named)
    return requests, unreadable


def _first(requests: list[dict[str, Any]], name: str) -> Any:
    return next(named[name] for named in requests if name in named)


def _natural(path: Path) -> tuple[int, str]:
    return _natural_name(path.name)


def _natural_name(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdecimal())
    return (int(digits) if digits else 1 << 30, name)


def _declared(params: dict[str, Any], name: str) -> Any:
    """Return the state that the contract declares for a file; None for a file that it says nothing of."""
    declared = params.get("declared")
    return declared.get(name) if isinstance(declared, dict) else None


def _identified(
    parts: list[Any], prompts: list[list[int]], params: dict[str, Any], declared: int | str | None
) -> dict[str, Any]:
    """Identify one name's tensors among the twin's states, and say in `of` whose rows each request's file holds.

    A file whose request's first rows are no state is looked for among that request's last rows and among the other
    requests' rows: a file of another request, or one without its first tokens, holds a state too. One that fits nothing
    although others do has None in `of`: few wrong rows disappear in a median over all tokens.
    """
    from eagle_contracts.subjects import twin_weights

    there = [(n, part) for n, part in enumerate(parts[: len(prompts)]) if part is not None and part.dim() == 2]
    if not there:
        return {"outcome": "nothing", "shape": list(next(part.shape for part in parts if part is not None))}
    states = twin_weights.candidates(Path(params["folder"]))
    spans = [_spans(n, part.shape[0], prompts) for n, part in there]
    tensors = [part for _, part in there]
    own = _identify(tensors, [options[0] for options in spans], params, declared)
    fitting = [_fitting(part, options, states) for part, options in zip(tensors, spans, strict=True)]
    if not any(fitting):
        return {**own, "of": {str(n): n for n, _ in there}}
    chosen = [span or options[0] for span, options in zip(fitting, spans, strict=True)]
    found = own if chosen == [options[0] for options in spans] else _identify(tensors, chosen, params, declared)
    return {**found, "of": {str(n): span and span[0] for (n, _), span in zip(there, fitting, strict=True)}}


Span: TypeAlias = "tuple[int, range]"
"""A request and the rows, in the batch of all requests, that one of its files may hold."""


def _spans(number: int, rows: int, prompts: list[list[int]]) -> list[Span]:
    """Return what a file of so many rows may hold: its request's first rows, its last, then other requests'."""
    starts = [sum(map(len, prompts[:n])) for n in range(len(prompts))]
    out: list[Span] = []
    for n in (number, *(n for n in range(len(prompts)) if n != number)):
        end = starts[n] + len(prompts[n])
        out += [(n, range(starts[n], min(starts[n] + rows, end))), (n, range(max(starts[n], end - rows), end))]
    return out


def _fitting(part: Any, options: list[Span], states: list[Any]) -> Span | None:
    """Return the first option whose rows some state holds."""
    from eagle_contracts import identify
    from eagle_contracts.subjects import twin_weights

    tolerance = identify.tolerance_for(part.dtype)
    for option in options:
        rows = list(option[1])
        if 0 < len(rows) <= part.shape[0] and any(
            state.shape[1] == part.shape[1]
            and twin_weights.row_error(part[: len(rows)].float(), state[rows]) <= tolerance
            for _, state in states
        ):
            return option
    return None


def _identify(parts: list[Any], spans: list[Span], params: dict[str, Any], declared: Any) -> dict[str, Any]:
    """Identify parts, each held against the rows of its span."""
    import torch

    from eagle_contracts import identify
    from eagle_contracts.subjects import twin_weights

    folder = Path(params["folder"])
    index = torch.tensor([row for _, rows in spans for row in rows])
    kept = [part[: len(rows)] for part, (_, rows) in zip(parts, spans, strict=True)]
    found = identify.identify(
        torch.cat(kept),
        [(candidate, state[index]) for candidate, state in twin_weights.candidates(folder)],
        tolerance=identify.tolerance_for(kept[0].dtype),
        second_pass=lambda: [(c, state[index]) for c, state in twin_weights.second_pass(folder)],
        declared=declared,
    )
    return found.to_json()
