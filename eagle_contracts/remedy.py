"""What to write instead: lists tried on the engine itself, none derived from a rule that is written down here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from eagle_contracts.observation import Observation
from eagle_contracts.taps import Tap

OFFSETS = (0, -1, 1)
MOST_TRIES = 15
Try = Callable[[list[int]], Observation | None]
Gives = Callable[[Observation | None, Sequence[int | None]], bool]


def candidates(wanted: Sequence[int]) -> Iterator[list[int]]:
    """Yield the lists to try, most plausible first: sorted ones, then the same ids in other orders.

    `wanted` are stream states. Engines differ by at most one either way in how an id names a state; some look at the
    first id to decide, which is why the order can matter although the capture follows the layers.
    """
    for offset in OFFSETS:
        yield sorted(k + offset for k in wanted)
    for offset in OFFSETS:
        ids = sorted(k + offset for k in wanted)
        yield from _rotations(ids)
    for offset in OFFSETS:
        ids = sorted(k + offset for k in wanted)
        known = [ids, *_rotations(ids)]
        yield from (list(p) for p in itertools.permutations(ids) if list(p) not in known)


def _rotations(ids: list[int]) -> list[list[int]]:
    return [ids[i:] + ids[:i] for i in range(1, len(ids))]


def search(
    taps: Sequence[Tap], run: Try, skip: Sequence[object] = (), gives: Gives | None = None
) -> tuple[list[int] | None, int]:
    """Return the first list with which the engine gives exactly the wanted states, and how many lists were run.

    `run` makes the observation for a list, or returns None where there is none; `skip` are lists known not to work, and
    `gives` tells whether an observation holds the wanted states (default: a capture's slots do).
    """
    ks = [tap.k for tap in taps]
    wanted = [k for k in ks if k is not None]
    if len(wanted) != len(ks):
        return None, 0
    tried = 0
    for ids in itertools.islice(_new(candidates(wanted), skip), MOST_TRIES):
        tried += 1
        if (gives or captures)(run(ids), ks):
            return ids, tried
    return None, tried


def _new(lists: Iterator[list[int]], skip: Sequence[object]) -> Iterator[list[int]]:
    seen: list[object] = list(skip)
    for ids in lists:
        if ids not in seen:
            seen.append(ids)
            yield ids


def captures(observation: Observation | None, wanted: Sequence[int | None]) -> bool:
    """Tell whether an observation holds exactly the wanted states, slot by slot, each identified."""
    if observation is None or observation.refusal is not None or len(observation.slots) != len(wanted):
        return False
    return all(
        slot.outcome == "identified" and slot.best is not None and slot.best.kind == "state" and slot.best.k == k
        for slot, k in zip(observation.slots, wanted, strict=True)
    )
