"""`python`: a function of the pipeline's own, or of a trainer's package, on what another contract observed.

`call` is `path/to/file.py::function`, relative to the pipeline, or `package.module:function`. The function is called
once a request with the observations of `from` by name: a dump is the folder that the patch wrote, a sample is what the
stage before returned. Where it has parameters called `request` or `input_ids`, it is given the request's number and
token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.subjects.protocol import Subject

PARAMETERS: Mapping[str, str] = {
    "call": "path/to/file.py::function, relative to the pipeline, or package.module:function"
}
VARIANTS = ("permuted_requests", "larger_batch")


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return the call, with a stage file's text and a digest of what stands beside it."""
    from eagle_contracts.spec.errors import fail
    from eagle_contracts.workers.store import content_digest

    value = given["call"]
    file, double, name = str(value.data).partition("::")
    if not double:
        module, colon, _ = str(value.data).partition(":")
        if not colon or not module:
            raise fail(value.position, "call is path/to/file.py::function or package.module:function")
        return {"call": str(value.data)}
    path = folder / file
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise fail(value.position, f"the stage {file} cannot be read: {why}") from error
    shown = str(Path(value.position.path).parent / file)
    _check_stage(text, name, shown, value.position)
    return {
        "call": str(value.data),
        "stage": {"text": text, "file": file, "shown": shown, "function": name},
        "stage_folder": str(path.parent),
        "beside": content_digest(path.parent),
    }


def _check_stage(text: str, name: str, shown: str, position: Any) -> None:
    """Refuse a stage's file that is no Python, or that nowhere names the function; nothing of it is run."""
    import ast

    from eagle_contracts.spec.errors import fail, suggest

    try:
        nodes = list(ast.walk(ast.parse(text, shown)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place, why = getattr(error, "lineno", None) or 1, getattr(error, "msg", None) or str(error)
        raise fail(position, f"the stage is not Python: {why}", f"at {shown}:{place}") from error
    named = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {
        alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    known = named | stored | imported
    if name not in known and "*" not in known and "__getattr__" not in known:
        public = sorted(each for each in named if not each.startswith("_"))
        raise fail(
            position,
            f"{Path(shown).parent.name}/{Path(shown).name} has no '{name}'",
            suggest(name, public, "functions there"),
        )


def prepare_params(given: Mapping[str, Any]) -> dict[str, Any]:
    """Let a worker import a package's module once, before it forks."""
    call = str(given["call"].data)
    return {} if "::" in call or "call" not in given else {"module": call.partition(":")[0]}


SUBJECT = Subject(
    name="python",
    engine="python",
    parameters=PARAMETERS,
    prepare=f"{__name__}:prepare",
    observe=f"{__name__}:observe",
    promises=("order", "unchanged_by", "concat", "equals", "width"),
    request=request,
    prepare_params=prepare_params,
    reads=True,
)


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Import torch and the called package's module; return their versions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from eagle_contracts.subjects import stage
    from eagle_contracts.workers import overlays

    torch.set_num_threads(1)
    package = str(params.get("module", "")).partition(".")[0]
    applied = [overlays.install(overlay, engine=overlay["engine"] or package) for overlay in params["overlays"]]
    info: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__, "overlays": applied}
    module = params.get("module")
    if module:
        stage.imported(module)
        try:
            info["package"] = f"{package} {version(package)}"
        except PackageNotFoundError:
            info["package"] = package
    return info


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Call the function for every request, and say by value which upstream tensor every part of its result is."""
    import torch

    from eagle_contracts.subjects import stage, tensors, twin_weights

    prompts = twin_weights.read_manifest(Path(params["folder"]))["prompts"]
    upstream = _upstream(params, len(prompts))
    function = stage.function_of(params)
    results, runs = _run(function, params, prompts, upstream, "base"), {}
    for variant in (*VARIANTS, "second_call"):
        if variant == "second_call" or any((Path(p) / "files" / variant).is_dir() for p in params["inputs"].values()):
            again = _run(function, params, prompts, upstream, "base" if variant == "second_call" else variant)
            theirs = _dumped(params, variant, prompts) or upstream
            runs[variant] = [_outputs(one, theirs, n) for n, one in enumerate(again)]
    torch.save([_plain(result) for result in results], Path(params["out"]) / tensors.SAMPLES)
    return {"refused": None, "outputs": [_outputs(one, upstream, n) for n, one in enumerate(results)], "variants": runs}


def _run(
    function: Callable[..., Any],
    params: dict[str, Any],
    prompts: list[list[int]],
    upstream: list[dict[str, Any]],
    variant: str,
) -> list[Mapping[str, Any]]:
    """Return the function's result for every request, from inputs that are its own to spoil."""
    import tempfile

    from eagle_contracts.subjects import stage

    name = params["call"]
    with tempfile.TemporaryDirectory(prefix="eagle_contracts_stage_", ignore_cleanup_errors=True) as scratch:
        inputs = {
            source: _input(Path(place), variant, params.get("break"), upstream, Path(scratch) / source)
            for source, place in params["inputs"].items()
        }
        results = []
        for number, prompt in enumerate(prompts):
            given = {source: value[number] if isinstance(value, list) else value for source, value in inputs.items()}
            results.append(stage.checked(stage.call(function, given, number, list(prompt), name), name, number))
        return results


def _input(place: Path, variant: str, broken: Any, upstream: list[dict[str, Any]], scratch: Path) -> Any:
    """Return an input, broken where asked: a copy of a dump's folder, or the samples that a stage returned.

    Never the record itself: a stage that writes into what it is given, or removes it, would change what was observed.
    """
    import shutil

    import torch

    from eagle_contracts.subjects import breaks, tensors

    files = place / "files"
    if files.is_dir():
        shutil.copytree(files / variant, scratch)
        if broken:
            breaks.in_files(scratch, broken)
        return scratch
    samples = torch.load(place / tensors.SAMPLES, weights_only=True)
    return [breaks.in_sample(sample, upstream[n], broken) for n, sample in enumerate(samples)] if broken else samples


def _plain(result: Any) -> Any:
    """Return a result as what can be kept without pickling objects."""
    import torch

    if isinstance(result, Mapping):
        return {str(key): _plain(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [_plain(value) for value in result]
    if isinstance(result, (torch.Tensor, int, float, str, bool)) or result is None:
        return result
    return repr(result)


def _outputs(result: Mapping[str, Any], upstream: list[dict[str, Any]], own: int) -> dict[str, Any]:
    """Describe the result of request `own`."""
    return {str(key): _described(value, upstream, own) for key, value in result.items()}


def _slot_width(upstream: list[dict[str, Any]]) -> int:
    """Return how wide a state is: the width of the first upstream tensor that is one."""
    widths = [t.shape[1] for named in upstream for t in named.values() if t.is_floating_point() and t.dim() == 2]
    return widths[0] if widths else 0


def _upstream(params: dict[str, Any], requests: int) -> list[dict[str, Any]]:
    """Return the tensors before the stage, by request and name.

    A sample's tensors go by the names that the contract of its stage promises, so that a fault of an earlier stage is
    told there and not again here; others go by the names of the files they came from.
    """
    import torch

    from eagle_contracts.subjects import tensors

    known = [tensors.load(Path(root)) for root in params["roots"]]
    upstream = [{name: t for root in known for name, t in root[n].items()} for n in range(requests)]
    for source, lists in params.get("names", {}).items():
        samples = torch.load(Path(params["inputs"][source]) / tensors.SAMPLES, weights_only=True)
        for named, sample in zip(upstream, samples, strict=True):
            for key, names in lists.items():
                parts = sample.get(key)
                named.update(zip(names, parts, strict=False) if isinstance(parts, list) else ())
    return upstream


def _dumped(params: dict[str, Any], variant: str, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Return the tensors of a variant's own dump: first those of the requests in their order, then the others'.

    Without such a dump, nothing. What the engine dumped is not judged again here, only what the stage takes of it.
    """
    from eagle_contracts.subjects import sglang_dump

    places = [Path(place) / "files" / variant for place in params["inputs"].values()]
    for place in (p for p in places if p.is_dir()):
        named = sglang_dump.read_files(place)[0]
        by_place = sglang_dump.places_in(variant, len(prompts))
        order = [_place_of(prompt, named, k) for prompt, k in zip(prompts, by_place, strict=True)]
        mine = [named[k] if k < len(named) else {} for k in order]
        return mine + [one for k, one in enumerate(named) if k not in order]
    return []


def _place_of(prompt: list[int], dumped: list[dict[str, Any]], place: int) -> int:
    """Return where a request's tensors are: where its tokens are, if those were dumped, else by the batch's order."""
    ids = [{tuple(t.tolist()) for t in one.values() if t.dim() == 1} for one in dumped]
    return next((k for k, tokens in enumerate(ids) if tuple(prompt) in tokens), place)


def _described(value: Any, upstream: list[dict[str, Any]], own: int) -> dict[str, Any]:
    import torch

    from eagle_contracts.subjects.provenance import whose

    if isinstance(value, (list, tuple)) and value and all(isinstance(v, torch.Tensor) for v in value):
        return {"kind": "list", "parts": [whose(part, upstream, own) for part in value]}
    if isinstance(value, torch.Tensor):
        shape = list(value.shape)
        out = {"kind": "tensor", "shape": shape, "dtype": str(value.dtype).removeprefix("torch."), "parts": []}
        width = _slot_width(upstream)
        if value.is_floating_point() and value.dim() == 2 and width and shape[1] % width == 0:
            out["parts"] = [whose(part, upstream, own) for part in torch.split(value, width, dim=1)]
        return out
    return {"kind": type(value).__name__}
