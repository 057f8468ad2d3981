"""`slots`: which state each slot of a concatenation holds, against the taps declared."""

from __future__ import annotations

from collections.abc import Iterator

from eagle_contracts.observation import Observation, Refusal
from eagle_contracts.patterns import State, diagnose, slots_from
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import Tap, parse_taps
from eagle_contracts.verdict import Mismatch, SlotEvidence


def check_slots(promise: Value, observation: Observation, layers: int) -> Iterator[Mismatch]:
    """Yield a mismatch if the engine refused, or if any slot does not hold the tap declared for it."""
    taps = parse_taps(promise, layers)
    if observation.refusal is not None:
        yield _refused(observation.refusal)
        return
    if not observation.divides:
        yield _indivisible(observation, len(taps))
        return
    declared: list[State] = ["final_normed" if tap.k is None else tap.k for tap in taps]
    diagnosis, sentence = diagnose(slots_from(declared, [slot.report for slot in observation.slots]), layers)
    if diagnosis is None:
        return
    yield Mismatch(
        diagnosis=None if diagnosis == "inconclusive" else diagnosis,
        sentence=sentence,
        slots=tuple(_evidence(taps, observation, promise)),
    )


def _refused(refusal: Refusal) -> Mismatch:
    return Mismatch(
        diagnosis="engine_refused",
        sentence=f"the engine raised {refusal.type} at {refusal.stage}: {refusal.message}",
        details=(f"{refusal.where}: {refusal.line}",),
    )


def _indivisible(observation: Observation, declared: int) -> Mismatch:
    total, width = observation.total_width, observation.width
    return Mismatch(
        diagnosis="wrong_width",
        sentence=f"the concatenation is {total} wide, which is no whole number of slots {width} wide; {declared} slots "
        f"would be {declared * width}",
    )


def _evidence(taps: tuple[Tap, ...], observation: Observation, promise: Value) -> Iterator[SlotEvidence]:
    for index in range(max(len(taps), len(observation.slots))):
        tap = taps[index] if index < len(taps) else None
        yield SlotEvidence(
            index=index,
            declared=tap.label() if tap else None,
            position=str(tap.position if tap and tap.position else promise.position),
            seen=observation.slots[index] if index < len(observation.slots) else None,
        )
