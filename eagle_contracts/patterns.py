"""The pattern over all slots: one diagnosis and one sentence from what each slot was found to hold. Torch-free.

Every rule is a function that returns the sentence if it applies; the table `RULES` holds them in their precedence:
embedding over missing slots over permutation over shift over what concerns single slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

Diagnosis: TypeAlias = Literal[
    "embedding_in_slot", "permuted", "shifted", "duplicated", "missing_slot", "wrong_width", "normed",
    "missing_residual", "other_state", "unknown_state", "inconclusive",
]  # fmt: skip
State: TypeAlias = int | Literal["final_normed"]
MOST_LISTED: Final = 4
NORMED: Final = ("final_normed", "final_norm_of", "normed_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One position of the concatenation: what was declared for it and what was found in it.

    `declared` is None for a slot that nobody declared. `outcome` is an identification's outcome, or `missing` for a
    slot that was declared and is not there. `detail` says in words what is wrong where nothing could be compared.
    """

    index: int
    declared: State | None
    outcome: str
    observed_kind: str | None = None
    observed_k: int | None = None
    observed_label: str = ""
    error: float | None = None
    second_label: str = ""
    second_error: float | None = None
    detail: str = ""

    @property
    def observed(self) -> State | None:
        """The stream state that the slot was found to hold, None if it holds none."""
        if self.outcome != "identified":
            return None
        if self.observed_kind == "final_normed":
            return "final_normed"
        return self.observed_k if self.observed_kind == "state" else None

    @property
    def right(self) -> bool:
        """Whether the slot holds what was declared for it."""
        return self.observed is not None and self.observed == self.declared


def slots_from(declared: Sequence[State], reports: Sequence[Mapping[str, Any]]) -> tuple[Slot, ...]:
    """Pair the declared states with `Identification.to_json()` of the slots that were found, in order."""
    slots = []
    for index in range(max(len(declared), len(reports))):
        state = declared[index] if index < len(declared) else None
        missing = Slot(index=index, declared=state, outcome="missing")
        slots.append(missing if index >= len(reports) else _filled(missing, reports[index]))
    return tuple(slots)


def diagnose(slots: Sequence[Slot], n_layers: int) -> tuple[Diagnosis | None, str]:
    """Name the pattern over all slots of a target with `n_layers` layers, with a sentence that says what was found.

    The diagnosis is None if every slot holds what was declared, and `inconclusive` if only slots that could not be
    told apart keep it from being so. Raises ValueError for no slots, or for a state that such a target does not have.
    """
    if not slots:
        raise ValueError("no slots to diagnose")
    for slot in slots:
        if slot.observed_k is not None and not 0 <= slot.observed_k <= n_layers:
            raise ValueError(f"slot {slot.index} holds {slot.observed_label}, but the states are h[0] to h[{n_layers}]")
    for diagnosis, rule in RULES:
        if sentence := rule(slots, n_layers):
            return diagnosis, sentence
    return None, "every slot holds the state that was declared for it"


def _filled(slot: Slot, report: Mapping[str, Any]) -> Slot:
    best, second = report["best"] or {}, report["second"] or {}
    return replace(
        slot,
        outcome=report["outcome"],
        observed_kind=best.get("kind"),
        observed_k=best.get("k"),
        observed_label=best.get("label", ""),
        error=best.get("error"),
        second_label=second.get("label", ""),
        second_error=second.get("error"),
        detail=_detail(report),
    )


def _detail(report: Mapping[str, Any]) -> str:
    found, expected = report["shape"], report["expected_shape"]
    if report["outcome"] == "wrong_width":
        return f"is {found[1]} wide where a state is {expected[1]} wide"
    if report["outcome"] == "wrong_rows":
        return f"has {_count(found[0], 'row')} where the reference has {_count(expected[0], 'row')}"
    if report["outcome"] == "non_finite":
        bad = report["non_finite"]
        owner = "holds" if bad["where"] == "slot" else f"cannot be compared, since the reference {bad['where']} holds"
        at = f"the first at row {bad['row']}, column {bad['column']}"
        return f"{owner} {_count(bad['count'], 'value')} that no float32 can hold ({at})"
    return ""


def _embedding(slots: Sequence[Slot], n_layers: int) -> str:
    if any(slot.declared == 0 for slot in slots):
        return ""
    found = [slot for slot in slots if slot.observed == 0]
    if not found:
        return ""
    head = f"{_slots(found)} the embedding"
    rest = [slot for slot in slots if slot not in found]
    moved = _moved(rest, slots)
    if moved:
        return f"{head}; {moved}"
    offset = _offset(slots)
    if offset:
        return f"{head}; {_by(offset)}"
    return f"{head}{_instead(found, n_layers)}; {_rest(rest, n_layers)}" if rest else head


def _rest(slots: Sequence[Slot], n_layers: int) -> str:
    wrong = [slot for slot in slots if not slot.right]
    if wrong:
        return _listed(wrong, n_layers)
    return "the other slot is right" if len(slots) == 1 else f"the other {len(slots)} slots are right"


def _instead(slots: Sequence[Slot], n_layers: int) -> str:
    states = [_state(slot.declared, n_layers) for slot in slots if slot.declared is not None]
    return f" where {_and(states)} {'is' if len(states) == 1 else 'are'} declared" if states else ""


def _moved(rest: Sequence[Slot], slots: Sequence[Slot]) -> str:
    """`slots 1 and 2 hold the states trained for slots 0 and 1`, if the slots in `rest` hold those of others."""
    home = {slot.declared: slot.index for slot in slots if slot.declared is not None}
    origins = [home.get(slot.observed) if slot.observed is not None else None for slot in rest]
    known = [origin for origin in origins if origin is not None]
    if not rest or len(known) < len(rest) or any(slot.right for slot in rest):
        return ""
    noun = "state" if len(known) == 1 else "states"
    return f"{_slots(rest)} the {noun} trained for {_numbers(known)}"


def _missing(slots: Sequence[Slot], n_layers: int) -> str:
    absent = [slot for slot in slots if slot.outcome == "missing"]
    if not absent:
        return ""
    there = len(slots) - len(absent)
    are = "is" if len(slots) == 1 else "are"
    held = Counter(slot.observed for slot in slots)
    lost = list((Counter(slot.declared for slot in slots) - held).elements())
    names = _and([_state(state, n_layers) for state in lost], "or")
    head = f"{_count(there, 'slot')} where {len(slots)} {are} declared: no slot holds {names}"
    others = [slot for slot in slots if slot.observed not in (None, *(slot.declared for slot in slots))]
    return f"{head}; {_listed(others, n_layers)}" if others else head


def _duplicate_of_extra(slots: Sequence[Slot], n_layers: int) -> str:
    return _duplicated(slots, n_layers) if any(slot.declared is None for slot in slots) else ""


def _width(slots: Sequence[Slot], n_layers: int) -> str:
    wide = [slot for slot in slots if slot.outcome == "wrong_width"]
    if wide:
        return _details(wide)
    extra = [slot for slot in slots if slot.declared is None]
    if not extra:
        return ""
    declared = len(slots) - len(extra)
    are = "is" if declared == 1 else "are"
    return f"{_count(len(slots), 'slot')} where {declared} {are} declared: {_listed(extra, n_layers)}"


def _permuted(slots: Sequence[Slot], n_layers: int) -> str:
    wrong = [slot for slot in slots if not slot.right]
    observed = Counter(slot.observed for slot in slots)
    if not wrong or observed != Counter(slot.declared for slot in slots):
        return ""
    moved = _moved(wrong, slots)
    return f"the declared states are all there, in another order: {moved}"


def _shifted(slots: Sequence[Slot], n_layers: int) -> str:
    offset = _offset(slots)
    if not offset:
        return ""
    if len(slots) > MOST_LISTED:
        return _by(offset)
    observed = ", ".join(_state(slot.observed, n_layers) for slot in slots)
    declared = ", ".join(_state(slot.declared, n_layers) for slot in slots)
    return f"{_by(offset)}: {observed} where {declared} {'is' if len(slots) == 1 else 'are'} declared"


def _offset(slots: Sequence[Slot]) -> int:
    """Observed minus declared if that is one number in every slot, else 0."""
    offsets = {
        slot.observed - slot.declared if isinstance(slot.observed, int) and isinstance(slot.declared, int) else 0
        for slot in slots
    }
    return offsets.pop() if len(offsets) == 1 else 0


def _by(offset: int) -> str:
    layers = "one layer" if abs(offset) == 1 else f"{abs(offset)} layers"
    return f"every slot holds the state {layers} {'earlier' if offset < 0 else 'later'} than declared ({offset:+d})"


def _duplicated(slots: Sequence[Slot], n_layers: int) -> str:
    allowed = Counter(slot.declared for slot in slots)
    parts = []
    for state, count in Counter(slot.observed for slot in slots if slot.observed is not None).items():
        holders = [slot for slot in slots if slot.observed == state]
        if count > max(1, allowed[state]):
            parts.append(f"{_slots(holders)} the same state, {_state(state, n_layers)}")
    if not parts:
        return ""
    lost = Counter(slot.declared for slot in slots if slot.declared is not None)
    unheld = [state for state in lost if all(slot.observed != state for slot in slots)]
    names = _and([_state(state, n_layers) for state in unheld], "or")
    return "; ".join(parts) + (f"; no slot holds {names}" if names else "")


def _normed(slots: Sequence[Slot], n_layers: int) -> str:
    return _of_wrong(slots, n_layers, lambda slot: slot.observed_kind in NORMED and slot.outcome == "identified")


def _without_residual(slots: Sequence[Slot], n_layers: int) -> str:
    return _of_wrong(slots, n_layers, lambda slot: slot.observed_kind == "sublayer" and slot.outcome == "identified")


def _other(slots: Sequence[Slot], n_layers: int) -> str:
    return _of_wrong(slots, n_layers, lambda slot: slot.observed is not None)


def _unknown(slots: Sequence[Slot], n_layers: int) -> str:
    return _of_wrong(slots, n_layers, lambda slot: slot.outcome in ("unknown", "non_finite", "wrong_rows"))


def _inconclusive(slots: Sequence[Slot], n_layers: int) -> str:
    return _of_wrong(slots, n_layers, lambda slot: slot.outcome == "inconclusive")


def _of_wrong(slots: Sequence[Slot], n_layers: int, applies: Callable[[Slot], bool]) -> str:
    """Every wrong slot in one sentence, those that decided first; empty if the rule applies to none."""
    wrong = [slot for slot in slots if not slot.right]
    deciding = [slot for slot in wrong if applies(slot)]
    if not deciding:
        return ""
    return _listed([*deciding, *(slot for slot in wrong if slot not in deciding)], n_layers)


RULES: Final[tuple[tuple[Diagnosis, Callable[[Sequence[Slot], int], str]], ...]] = (
    ("embedding_in_slot", _embedding),
    ("missing_slot", _missing),
    ("duplicated", _duplicate_of_extra),
    ("wrong_width", _width),
    ("permuted", _permuted),
    ("shifted", _shifted),
    ("duplicated", _duplicated),
    ("normed", _normed),
    ("missing_residual", _without_residual),
    ("other_state", _other),
    ("unknown_state", _unknown),
    ("inconclusive", _inconclusive),
)


def _listed(slots: Sequence[Slot], n_layers: int) -> str:
    """What each slot holds instead, one after the other while that is short."""
    shown = "; ".join(_one(slot, n_layers) for slot in slots[:MOST_LISTED])
    more = len(slots) - MOST_LISTED
    return f"{shown}; and {_count(more, 'more slot')} not as declared" if more > 0 else shown


def _one(slot: Slot, n_layers: int) -> str:
    if slot.detail:
        return f"slot {slot.index} {slot.detail}"
    instead = _instead([slot], n_layers)
    nearest = f"{slot.observed_label} (error {_number(slot.error)})"
    if slot.outcome == "missing":
        return f"slot {slot.index} is missing{instead}"
    if slot.outcome == "unknown":
        return f"slot {slot.index} holds nothing that is known{instead}; the nearest is {nearest}"
    if slot.outcome == "inconclusive":
        rival = f"{slot.second_label} (error {_number(slot.second_error)})"
        return f"slot {slot.index} cannot be told apart{instead}: {nearest} is not five times nearer than {rival}"
    return f"slot {slot.index} holds {_held(slot, n_layers)}{instead}"


def _held(slot: Slot, n_layers: int) -> str:
    if slot.observed is not None:
        return _state(slot.observed, n_layers)
    return f"{slot.observed_label}," if "," in slot.observed_label else slot.observed_label


def _state(state: State | None, n_layers: int) -> str:
    if state == "final_normed":
        return "the normed final state"
    if state == 0:
        return "the embedding"
    return f"h[{state}] (the final state before the norm)" if state == n_layers else f"h[{state}]"


def _details(slots: Sequence[Slot]) -> str:
    return "; ".join(f"slot {slot.index} {slot.detail}" for slot in slots[:MOST_LISTED])


def _slots(slots: Sequence[Slot]) -> str:
    return f"{_numbers([slot.index for slot in slots])} {'holds' if len(slots) == 1 else 'hold'}"


def _numbers(numbers: Sequence[int]) -> str:
    return f"{'slot' if len(numbers) == 1 else 'slots'} {_and([str(number) for number in numbers])}"


def _and(words: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"
