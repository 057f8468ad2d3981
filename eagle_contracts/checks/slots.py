"""`slots`: which state each slot of a concatenation, or each file of a dump, holds, against the taps declared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eagle_contracts.checks.context import Context
from eagle_contracts.observation import Observation, Refusal, SlotSeen, slot_from_json
from eagle_contracts.patterns import State, diagnose, slots_from
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import CONVENTIONS, Tap, parse_tap, parse_taps
from eagle_contracts.verdict import Mismatch, SlotEvidence


def check_slots(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if the engine refused, or if any slot does not hold the tap declared for it.

    The promise is a list of taps, for a concatenation, or a map from a file name (`final`) or a prefix of file names
    (`aux` for `aux_0`, `aux_1`, ...) to a tap or a list of taps.
    """
    if observation.refusal is not None:
        yield refused(observation.refusal)
        return
    if (ignored := _ignored(observation)) is not None:
        yield ignored
        return
    if promise.data == {}:
        raise fail(promise.position, "slots promises nothing: name taps, such as $trained.taps")
    if is_grouped(promise):
        yield from _grouped(promise, observation, context)
        return
    taps = parse_taps(promise, context.layers)
    if not observation.divides:
        yield _indivisible(observation, len(taps))
        return
    names = [f"slot {n}" for n in range(max(len(taps), len(observation.slots)))]
    found = list(_held(taps, names, observation.slots, context.layers, promise))
    yield from found or itertools.islice(_in_one_request(observation, context), 1)


def _in_one_request(observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a slot that holds its state on the whole, and not in the rows of some request."""
    for number, slot in enumerate(observation.slots):
        errors = slot.report.get("by_request") or []
        bad = [n for n, error in enumerate(errors) if not error <= max(slot.tolerance, context.noise)]
        if bad and slot.best is not None:
            listed = ", ".join(map(str, bad))
            yield Mismatch(
                diagnosis="wrong_request",
                sentence=f"slot {number} holds {slot.best.label}, but not in the rows of request {listed} of "
                f"{len(errors)} (relative error {max(errors[n] for n in bad):.1e}): what fits on the whole hides them",
            )


def _ignored(observation: Observation) -> Mismatch | None:
    """Return that the engine did not read the ids that its config has, and what it captures instead."""
    written, read = observation.data.get("written"), observation.data.get("read")
    if written is None or read is None:
        return None
    held = ", ".join(observation.states or ()) or "states that were not identified"
    if not read["use_aux_hidden_state"]:
        return Mismatch(
            diagnosis="config_ignored",
            sentence=f"the draft's config has the ids {show(written)}, and use_aux_hidden_state there is false: the "
            f"engine captures no layer and hands over {held}",
        )
    if read["ids"] == written:
        return None
    found = "no ids, and falls back to its default" if read["ids"] is None else show(read["ids"])
    return Mismatch(
        diagnosis="config_ignored",
        sentence=f"the draft's config has the ids {show(written)}, and the target side reads {found}: it captures "
        f"{held}",
    )


def refused(refusal: Refusal) -> Mismatch:
    """Return the mismatch of an engine that raised."""
    return Mismatch(
        diagnosis="engine_refused",
        sentence=f"the engine raised {refusal.type} at {refusal.stage}: {refusal.message}",
        details=(f"{refusal.where}: {refusal.line}",),
    )


def unreadable(files: Sequence[str]) -> Mismatch:
    """Return the mismatch of files that hold no tensors, or only half of one; each is `REQUEST/FILE: reason`."""
    count = "one of the files" if len(files) == 1 else f"{len(files)} of the files"
    return Mismatch(
        diagnosis="unreadable",
        sentence=f"{count} cannot be read as tensors without unpickling objects: {files[0]}",
        details=tuple(files[1:4]),
    )


def is_grouped(promise: Value) -> bool:
    """Tell whether a promise is a map from files to taps, not one list of taps."""
    return isinstance(promise.data, Mapping) and not any(key in CONVENTIONS for key in promise.data)


def _grouped(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield what is wrong with a dump's files: unreadable ones first, then each group's states and types."""
    if bad := observation.data.get("unreadable"):
        yield unreadable(bad)
        return
    named: Mapping[str, Any] = observation.data.get("named", {})
    assert isinstance(promise.data, Mapping)
    for group in promise.data:
        yield from _group(str(group), promise.child(group), named, observation, context)


def _group(
    group: str, promise: Value, named: Mapping[str, Any], observation: Observation, context: Context
) -> Iterator[Mismatch]:
    layers = context.layers
    many = isinstance(promise.data, Mapping) and any(isinstance(part, list) for part in promise.data.values())
    taps = parse_taps(promise, layers) if many else (parse_tap(promise, layers),)
    wanted = [f"{group}_{n}" for n in range(len(taps))] if many else [group]
    extra = [name for name in named if many and name.startswith(f"{group}_") and name not in wanted]
    names = [*wanted, *extra]
    if missing := [name for name in wanted if name not in named]:
        found = ", ".join(named) or "none"
        sentence = f"no request has {', '.join(f'{name}.pt' for name in missing)} (files found: {found})"
        yield Mismatch(diagnosis="missing_slot", sentence=sentence)
        return
    if flat := [name for name in names if named[name]["outcome"] == "nothing"]:
        shape = named[flat[0]].get("shape")
        sentence = f"{flat[0]}.pt is {shape}, and a state is [tokens, hidden size]"
        yield Mismatch(diagnosis="wrong_width", sentence=sentence)
        return
    seen = [slot_from_json(named[name]) for name in names]
    yield from _held(taps, names, seen, layers, promise)
    types = {name: observation.data["dtypes"][name] for name in wanted}
    if other := {name: kind for name, kind in types.items() if kind != context.dtype}:
        listed = ", ".join(f"{name}.pt is {kind}" for name, kind in other.items())
        yield Mismatch(
            diagnosis="wrong_dtype",
            sentence=f"{listed} where the engine's stream is {context.dtype}: precision is lost here",
        )


def _held(
    taps: Sequence[Tap], names: Sequence[str], seen: Sequence[SlotSeen], layers: int, promise: Value
) -> Iterator[Mismatch]:
    declared: list[State] = ["final_normed" if tap.k is None else tap.k for tap in taps]
    diagnosis, sentence = diagnose(slots_from(declared, [slot.report for slot in seen]), layers)
    if diagnosis is None:
        return
    yield Mismatch(
        diagnosis=None if diagnosis == "inconclusive" else diagnosis,
        sentence=sentence if names[0].startswith("slot ") else _with_names(sentence, names),
        slots=tuple(_evidence(taps, names, seen, promise)),
    )


def _with_names(sentence: str, names: Sequence[str]) -> str:
    """Say which files the numbers of a sentence about slots are."""
    return f"{sentence} (slots are {', '.join(f'{name}.pt' for name in names)})"


def _indivisible(observation: Observation, declared: int) -> Mismatch:
    total, width = observation.total_width, observation.width
    return Mismatch(
        diagnosis="wrong_width",
        sentence=f"the concatenation is {total} wide, which is no whole number of slots {width} wide; {declared} slots "
        f"would be {declared * width}",
    )


def _evidence(
    taps: Sequence[Tap], names: Sequence[str], seen: Sequence[SlotSeen], promise: Value
) -> Iterator[SlotEvidence]:
    for index, name in enumerate(names):
        tap = taps[index] if index < len(taps) else None
        yield SlotEvidence(
            name=name,
            declared=tap.label() if tap else None,
            position=str(tap.position if tap and tap.position else promise.position),
            seen=seen[index] if index < len(seen) else None,
        )
