"""`sglang.capture`: which states SGLang's target side hands to the draft for a list of layer ids.

The subject writes the ids into a copy of the draft's config.json, in the place where it has its ids, lets the engine
read that by itself, and runs the engine's own model class, setter, forward pass and logits processor. An engine that
does not look there is seen with what it captures instead. `request` and `baseline` run in pytest's process, all else in
a worker.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle_contracts.subjects.protocol import Subject

PARAMETERS: Mapping[str, str] = {
    "layer_ids": "the list written to the draft's config.json where it has its ids, else inside eagle_config; "
    "or default, for none",
}


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return the draft's config as it is with other ids, and these; runs in pytest's process."""
    from eagle_contracts.spec.draft_config import BY_DEFAULT
    from eagle_contracts.spec.references import check_ids
    from eagle_contracts.twin import with_layer_ids_in_place

    check_ids(given["layer_ids"], "layer_ids")
    ids = given["layer_ids"].data
    return {"draft": with_layer_ids_in_place(twin.draft, ids), "written": None if ids == BY_DEFAULT else ids}


def baseline(twin: Any) -> dict[str, Any]:
    """Return a draft's config that names no ids: what the engine does then tells whether a refusal is of the ids."""
    from eagle_contracts.twin import without_layer_ids

    return {"draft": without_layer_ids(twin.draft)}


SUBJECT = Subject(
    name="sglang.capture",
    engine="sglang",
    parameters=PARAMETERS,
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe",
    promises=("slots",),
    request=request,
    on_device=True,
    baseline=baseline,
    remedy=("layer_ids", "draft.layer_ids"),
)


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Import the engine once; see `sglang_engine.prepare`."""
    from eagle_contracts.subjects import sglang_engine

    return sglang_engine.prepare(params)


def gate(params: dict[str, Any]) -> dict[str, Any]:
    """Write the twin if it is not there, and let this engine's own stream agree with transformers' on it.

    Returns the worst error over all states (median over tokens of the row's relative L2 error) and where it is, or how
    the engine refused the twin.
    """
    from eagle_contracts.subjects import sglang_engine, sglang_oracle, twin_weights

    manifest = twin_weights.make(params)
    folder = Path(params["folder"])
    try:
        engine = sglang_engine.Engine(folder / "target", draft=None, architecture=params["architecture"])
        stream = sglang_oracle.StreamSums(engine.model)
        engine.forward(manifest["prompts"])
    except sglang_engine.EngineRefused as refusal:
        return {"refused": refusal_of(refusal)}
    reference = twin_weights.read_states(folder)
    errors = [twin_weights.row_error(h, reference[f"h.{k}"]) for k, h in enumerate(stream.states())]
    if len(errors) != params["layers"] + 1:
        raise LookupError(f"the engine ran {len(errors) - 1} layers, and the config has {params['layers']}")
    worst = max(range(len(errors)), key=lambda k: errors[k] if errors[k] == errors[k] else float("inf"))
    return {
        "worst": errors[worst],
        "at": worst,
        "states": len(errors),
        "refused": None,
        "transformers": manifest["transformers"],
    }


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Capture with the given ids and identify every slot; an exception of the engine's own is a result too."""
    from eagle_contracts.subjects import sglang_engine
    from eagle_contracts.workers import standins

    try:
        seen = _capture(params)
    except sglang_engine.EngineRefused as refusal:
        seen = {"refused": refusal_of(refusal)}
    if standins.USED:
        raise standins.StandInUsed(f"the engine used stand-ins: {', '.join(sorted(set(standins.USED)))}")
    return seen


def refusal_of(refusal: Any) -> dict[str, str]:
    """Name the exception and the engine's line that raised it."""
    import traceback

    cause = refusal.cause
    frames = traceback.extract_tb(cause.__traceback__)
    last = next((f for f in reversed(frames) if "/sglang/" in f.filename or f.filename.endswith(".py")), frames[-1])
    return {
        "stage": refusal.stage,
        "type": type(cause).__name__,
        "message": str(cause),
        "where": f"{_short(last.filename)}:{last.lineno}",
        "line": (last.line or "").strip(),
    }


def _short(file: str) -> str:
    return "sglang/" + file.rpartition("/sglang/")[2] if "/sglang/" in file else Path(file).name


def _capture(params: dict[str, Any]) -> dict[str, Any]:
    from eagle_contracts.subjects import sglang_engine, tensors, twin_weights

    folder = Path(params["folder"])
    manifest = twin_weights.read_manifest(folder)
    with tempfile.TemporaryDirectory(prefix="eagle_contracts_draft_") as draft:
        Path(draft, "config.json").write_text(json.dumps(params["draft"]))
        engine = sglang_engine.Engine(folder / "target", draft=Path(draft), architecture=params["architecture"])
        read = {"ids": engine.ids_read(), "use_aux_hidden_state": bool(engine.uses_aux())}
        states = engine.forward(manifest["prompts"])
    tensors.save(Path(params["out"]), {"hidden_states": states}, manifest["prompts"])
    return {
        "refused": None,
        "written": params.get("written"),
        "read": read,
        **identified(states, folder, params, manifest["prompts"]),
    }


def identified(states: Any, folder: Path, params: dict[str, Any], prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Split a concatenation [tokens, slots x hidden] and identify each slot among the twin's states.

    A slot's `by_request` has each request's own error against the state that it was identified as.
    """
    from eagle_contracts import identify
    from eagle_contracts.subjects import twin_weights

    references = twin_weights.candidates(folder)
    width = references[0][1].shape[-1]
    slots = identify.split_slots(states, width)
    out: dict[str, Any] = {"rows": states.shape[0], "total_width": states.shape[-1], "width": width, "slots": []}
    if isinstance(slots, identify.Indivisible):
        return out
    found = identify.identify_all(
        slots,
        references,
        tolerance=params.get("tolerance") or identify.tolerance_for(states.dtype),
        second_pass=lambda: twin_weights.second_pass(folder),
        declared=params["declared"] or (),
    )
    lengths = [len(prompt) for prompt in prompts]
    held = {candidate.label: state for candidate, state in references}
    return {
        **out,
        "slots": [
            {**one.to_json(), "by_request": _by_request(one, slot, held, lengths)}
            for one, slot in zip(found, slots, strict=True)
        ],
    }


def _by_request(found: Any, slot: Any, held: Mapping[Any, Any], lengths: Sequence[int]) -> list[float] | None:
    """Return each request's error; None for a slot that is not identified as a state, or has other rows than it."""
    from eagle_contracts.subjects import row_by_row

    state = held.get(found.best.label) if found.outcome == "identified" and found.best is not None else None
    if state is None or state.shape != slot.shape or sum(lengths) != slot.shape[0]:
        return None
    return row_by_row.by_request(slot, state, lengths)
