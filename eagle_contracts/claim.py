"""Is it the claim about training that is wrong? Asked before anyone is told to change serving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eagle_contracts.engines import Unrunnable
from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case, environments_of, parameters
from eagle_contracts.session import Session
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Environment, Value
from eagle_contracts.taps import CONVENTIONS, Tap, as_hidden_states, make_tap

UNCLEAR: tuple[int | None, ...] = ()
"""What an environment shows whose slots are not all identified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Every serve environment agrees on states other than the claimed ones."""

    sentences: tuple[str, ...]
    taps: str


def doubt(case: Case, session: Session, taps: Sequence[Tap]) -> Claim | None:
    """Return why the claim may be wrong, if every environment with its own `set` shows one and the same other states.

    Where none has its own, all that read one list together are asked. One environment alone is no agreement. An
    environment that is unavailable is left out.
    """
    asked, whose = _asked(case)
    shown = [seen for e in asked if (seen := _own_states(case, e, session)) is not None]
    claimed = tuple(tap.k for tap in taps)
    if len(shown) < 2 or len({states for _, states in shown}) != 1 or shown[0][1] in (claimed, UNCLEAR):
        return None
    layers = session.twin(case.pipeline).layers
    held = [make_tap(k, layers) for k in shown[0][1]]
    where = (
        case.pipeline.trained["taps"].position
        if "taps" in case.pipeline.trained
        else session.declared(case)[0].position
    )
    names = ", ".join(name for name, _ in shown)
    listed = ", ".join(tap.label() for tap in held)
    text = as_hidden_states(held, layers)
    return Claim(
        taps=text,
        sentences=(
            f"The claim may be what is wrong, not serving: with {whose}, every environment shows {listed} ({names}).",
            f"Look first at what was trained. If it was {listed}, write trained.taps: {{{text}}} at {where} and change "
            f"no id.",
        ),
    )


def other_reading(claimed: Value, taps: Sequence[Tap], observation: Observation) -> tuple[str, ...]:
    """Return that the claim's list, counted by the other convention, names exactly what was observed, if it does."""
    held = _plain_states(observation)
    data: Mapping[str, Any] = claimed.data if isinstance(claimed.data, Mapping) else {}
    written = next(iter(data), "")
    if written not in CONVENTIONS or not isinstance(data[written], list):
        return ()
    ids, other = data[written], next(one for one in CONVENTIONS if one != written)
    offset = 1 if other == "layer_outputs" else 0
    if not all(type(entry) is int for entry in ids) or held != tuple(entry + offset for entry in ids):
        return ()
    said = ", ".join(tap.label() for tap in taps)
    return (
        f"Did you mean {other}: {show(ids)} at {claimed.position}? {written}: {show(ids)} names {said}; counted the "
        f"other way the list names exactly what the engine hands over.",
    )


def in_layer_order(claimed: Value, taps: Sequence[Tap], layers: int) -> tuple[str, ...]:
    """Return what to do about a claim whose states no list of ids can put in their order."""
    text = as_hidden_states(sorted(taps, key=lambda tap: layers if tap.k is None else tap.k), layers)
    return (
        f"The engine hands states over in layer order, whatever the order of the ids. If training joined them so, "
        f"write {{{text}}} at {claimed.position}. If it joined them as declared, no list serves this draft: put the "
        f"columns of its fc in layer order.",
    )


def _plain_states(observation: Observation) -> tuple[int, ...] | None:
    best = [slot.best for slot in observation.slots if slot.outcome == "identified"]
    held = [one.k for one in best if one is not None and one.kind == "state" and one.k is not None]
    return tuple(held) if held and len(held) == len(observation.slots) else None


def _asked(case: Case) -> tuple[list[Environment], str]:
    """Return the environments whose agreement counts, and whose ids they read: own lists before a shared one."""
    there = environments_of(case.contract.in_, case.pipeline)
    own = [environment for environment in there if "draft.layer_ids" in environment.set]
    return (own, "the ids of its own `set`") if own else (there, "the ids that they share")


def _own_states(case: Case, environment: Environment, session: Session) -> tuple[str, tuple[int | None, ...]] | None:
    """Return the states that an environment shows with its own ids, or UNCLEAR."""
    beside = replace(case, environment=environment)
    ids_free = {key: value for key, value in session.overrides.items() if key != "draft.layer_ids"}
    try:
        seen = session.observe(beside, parameters(beside, ids_free)).observation
    except Unrunnable as stopped:
        return None if stopped.status == "unavailable" else (environment.name, UNCLEAR)
    except SpecError:
        return None
    best = [slot.best for slot in seen.slots]
    if seen.states is None or any(one is None or one.kind not in ("state", "final_normed") for one in best):
        return (environment.name, UNCLEAR)
    return (environment.name, tuple(one.k for one in best if one is not None))
