"""`same`: training and serving give the draft the same states, slot by slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eagle_contracts.checks.context import Context
from eagle_contracts.observation import Observation, slot_from_json
from eagle_contracts.patterns import State, diagnose, slots_from
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import parse_taps
from eagle_contracts.verdict import Mismatch, SlotEvidence

REDUCED = ("bfloat16", "float16")
TOLERANCE, REDUCED_TOLERANCE = 1e-4, 2e-2


def check_same(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a slot of training and the same slot of serving differ in value, or are not as many."""
    if not isinstance(promise.data, Mapping) or set(promise.data) != {"slots"}:
        raise fail(promise.position, "same takes {slots: TAPS}")
    taps = parse_taps(promise.child("slots"), context.layers)
    train, serve = observation.data["sides"]["train"], observation.data["sides"]["serve"]
    between = observation.data["between"]
    if len(train) == len(serve) == len(taps) and all(_agrees(one) for one in between):
        return
    declared = _states(train)
    if declared is None:
        sentence = f"training and serving differ{_by(between)}, and a slot of training is no plain state"
        yield Mismatch(diagnosis="other_state", sentence=sentence)
        return
    diagnosis: str | None
    diagnosis, sentence = diagnose(slots_from(declared, serve), context.layers)
    sentence = _in_training(sentence)
    if diagnosis is None and len(train) != len(taps):
        diagnosis = "missing_slot" if len(train) < len(taps) else "wrong_width"
        sentence = f"both sides have {len(train)} slots where {len(taps)} are claimed"
    elif diagnosis is None:
        diagnosis, sentence = "altered", f"every slot holds the same state, but the values differ{_by(between)}"
    yield Mismatch(
        diagnosis=None if diagnosis == "inconclusive" else diagnosis,
        sentence=f"serving against training: {sentence}",
        slots=tuple(_evidence(declared, serve)),
    )


_WORDS = (
    ("the declared states are all there", "training's states are all there"),
    ("not as declared", "not as in training"),
    ("than declared", "than in training"),
    (" where ", " where training holds "),
    (" is declared", ""),
    (" are declared", ""),
)
"""What a sentence about a declaration says of training instead."""


def _in_training(sentence: str) -> str:
    for declared, trained in _WORDS:
        sentence = sentence.replace(declared, trained)
    return sentence


def _by(between: Sequence[Mapping[str, Any]]) -> str:
    """Say how far apart two sides are, where their shapes let them be compared."""
    errors = [one["error"] for one in between]
    if not errors or None in errors:
        return " in their number of rows or slots"
    return f" (largest error {max(errors):.1e})"


def _agrees(one: Mapping[str, Any]) -> bool:
    """Tell whether two slots hold the same values; two reduced ones may each be off, in opposite directions."""
    reduced = sum(kind in REDUCED for kind in one["dtypes"])
    allowed = reduced * REDUCED_TOLERANCE or TOLERANCE
    return one["error"] is not None and one["error"] <= allowed


def _states(reports: Sequence[Mapping[str, Any]]) -> list[State] | None:
    out: list[State] = []
    for report in reports:
        best = report["best"] or {}
        if report["outcome"] != "identified" or best.get("kind") not in ("state", "final_normed"):
            return None
        out.append("final_normed" if best["k"] is None else best["k"])
    return out


def _evidence(declared: Sequence[State], serve: Sequence[Mapping[str, Any]]) -> Iterator[SlotEvidence]:
    for n in range(max(len(declared), len(serve))):
        state = declared[n] if n < len(declared) else None
        label = None if state is None else f"h[{state}]" if isinstance(state, int) else state
        yield SlotEvidence(
            name=f"slot {n}",
            declared=label,
            position="",
            seen=slot_from_json(serve[n]) if n < len(serve) else None,
            sides=("training", "serving"),
        )
