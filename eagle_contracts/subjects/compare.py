"""`compare`: what training gave the draft and what serving gives it, slot by slot and by value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.subjects.protocol import Subject


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return nothing more: both sides come by `from`."""
    return {}


SUBJECT = Subject(
    name="compare",
    engine="python",
    parameters={},
    prepare=f"{__name__}:prepare",
    observe=f"{__name__}:observe",
    promises=("same",),
    request=request,
    reads=True,
    sources=("train", "serve"),
)


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Import torch; an environment's overlay is its engine's matter, and no engine runs here."""
    from eagle_contracts.subjects import python

    return python.prepare({**params, "overlays": []})


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Identify both sides' slots among the twin's states, and compare them with each other."""
    from eagle_contracts.subjects import breaks

    read = {name: _side(Path(place), params) for name, place in params["inputs"].items()}
    sides = {name: slots for name, (slots, _) in read.items()}
    if set(sides) != {"train", "serve"}:
        raise LookupError(f"compare reads from: {{train: ..., serve: ...}}, and was given {', '.join(sides)}")
    if params.get("break"):
        sides["serve"] = breaks.in_slots(sides["serve"], params["break"])
    train = _identified(sides["train"], params)
    return {
        "refused": None,
        "sides": {"train": train, "serve": _identified(sides["serve"], params, _held(train))},
        "between": _between(sides, {name: lengths for name, (_, lengths) in read.items()}),
    }


def _side(place: Path, params: dict[str, Any]) -> tuple[list[Any], list[int]]:
    """Return one side's slots [tokens of all requests, hidden] and each request's rows.

    They are read from a capture or from a trainer's samples.
    """
    import torch

    from eagle_contracts import identify
    from eagle_contracts.subjects import tensors, twin_weights

    if (place / tensors.SAMPLES).is_file():
        parts = [sample["hidden_states"] for sample in torch.load(place / tensors.SAMPLES, weights_only=True)]
        if not all(isinstance(part, torch.Tensor) for part in parts):
            raise TypeError("a training sample's hidden_states must be one concatenation to be compared with serving")
    else:
        parts = [named["hidden_states"] for named in tensors.load(place)]
    width = twin_weights.candidates(Path(params["folder"]))[0][1].shape[-1]
    slots = identify.split_slots(torch.cat(parts), width)
    if isinstance(slots, identify.Indivisible):
        raise ValueError(f"hidden_states are {slots.total} wide, which is no whole number of slots {width} wide")
    return list(slots), [part.shape[0] for part in parts]


def _held(reports: list[dict[str, Any]]) -> list[Any]:
    """Return the states in training's slots, None where there is no plain one: serving is compared with these."""
    best = [report["best"] if report["outcome"] == "identified" else None for report in reports]
    return [one and {"state": one["k"], "final_normed": "final_normed"}.get(one["kind"]) for one in best]


def _identified(slots: list[Any], params: dict[str, Any], declared: list[Any] | None = None) -> list[dict[str, Any]]:
    from eagle_contracts import identify
    from eagle_contracts.subjects import twin_weights

    folder = Path(params["folder"])
    found = identify.identify_all(
        slots,
        twin_weights.candidates(folder),
        tolerance=identify.tolerance_for(slots[0].dtype),
        second_pass=lambda: twin_weights.second_pass(folder),
        declared=(declared or [])[: len(slots)],
    )
    return [one.to_json() for one in found]


def _between(sides: dict[str, list[Any]], lengths: dict[str, list[int]]) -> list[dict[str, Any]]:
    """Compare slot k of both sides, request by request: one wrong request would disappear in a median over all."""
    from eagle_contracts.subjects.twin_weights import row_error

    out = []
    for train, serve in zip(sides["train"], sides["serve"], strict=False):
        same = train.shape == serve.shape and lengths["train"] == lengths["serve"]
        pairs = zip(serve.split(lengths["serve"]), train.split(lengths["train"]), strict=False)
        out.append(
            {
                "error": max(row_error(x.float(), h.float()) for x, h in pairs) if same else None,
                "dtypes": [str(train.dtype).removeprefix("torch."), str(serve.dtype).removeprefix("torch.")],
            }
        )
    return out
