"""What a subject produced, as plain data: identified slots, or the engine's refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ADVICE = " This could be because of an issue with the checkpoint"
"""How transformers begins its advice on its own installation, which a pipeline's author has no use for."""
_MADE = re.compile(
    r"(?<![\w.])(?:/[^\s'\"`:,()]+)+/(?:eagle_contracts_draft_[^\s'\"`:,()/]+|(draft|target))(?=[/\s'\"`:,.()]|$)"
)


def in_own_words(message: str) -> str:
    """Return an engine's words without advice on its installation, and without the folders of this run."""
    return _MADE.sub(lambda path: f"the {path[1] or 'draft'}'s twin", message.partition(_ADVICE)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The engine's own exception: at what stage, its type and words, the line that raised it."""

    stage: str
    type: str
    message: str
    where: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A candidate state and the slot's error against it."""

    label: str
    kind: str
    k: int | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a person compares by eye: the first values of the first token's row, and the median row norm."""

    first_values: tuple[float, ...]
    median_row_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen:
    """One slot: what it holds, how sure that is, and both sides' numbers."""

    outcome: str
    tolerance: float
    shape: tuple[int, int]
    expected_shape: tuple[int, int]
    best: Match | None
    second: Match | None
    declared: Match | None
    worst_row: tuple[int, float] | None
    sink_rows: tuple[int, ...]
    slot_side: Side | None
    declared_side: Side | None
    smallest_tolerance: float | None
    tolerance_would_help: bool
    non_finite: str | None
    report: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A capture's slots, in the order of the concatenation; `refusal` is set instead where the engine raised.

    `data` is all that the subject returned, for the checks of other adapters.
    """

    refusal: Refusal | None
    slots: tuple[SlotSeen, ...]
    rows: int
    total_width: int
    width: int
    data: Mapping[str, Any] = field(repr=False)

    @property
    def divides(self) -> bool:
        """Tell whether the concatenation is a whole number of slots wide."""
        return self.refusal is not None or (self.total_width > 0 and self.total_width % self.width == 0)

    @property
    def states(self) -> tuple[str, ...] | None:
        """The labels of the states held, slot by slot; None if any slot is not identified."""
        if self.refusal is not None or not self.slots:
            return None
        labels = [s.best.label if s.outcome == "identified" and s.best else None for s in self.slots]
        known = [label for label in labels if label is not None]
        return tuple(known) if len(known) == len(labels) else None


def observation_from_json(data: Mapping[str, Any]) -> Observation:
    """Read what a subject's `observe` returned."""
    if data.get("refused"):
        return Observation(
            refusal=refusal_from_json(data["refused"]), slots=(), rows=0, total_width=0, width=1, data=data
        )
    return Observation(
        refusal=None,
        slots=tuple(slot_from_json(slot) for slot in data.get("slots", [])),
        rows=data["rows"] if "slots" in data else 0,
        total_width=data.get("total_width", 0),
        width=data.get("width", 1),
        data=data,
    )


def refusal_from_json(data: Mapping[str, str]) -> Refusal:
    """Read what a worker sent of an engine's exception."""
    return Refusal(**{**data, "message": in_own_words(data["message"])})


def slot_from_json(data: Mapping[str, Any]) -> SlotSeen:
    """Read one identification."""
    bad = data.get("non_finite")
    return SlotSeen(
        outcome=data["outcome"],
        tolerance=data["tolerance"],
        shape=(data["shape"][0], data["shape"][1]),
        expected_shape=(data["expected_shape"][0], data["expected_shape"][1]),
        best=_match(data["best"]),
        second=_match(data["second"]),
        declared=_match(data["declared"]),
        worst_row=tuple(data["worst_row"]) if data["worst_row"] else None,
        sink_rows=tuple(data["sink_rows"]),
        slot_side=_side(data["slot_side"]),
        declared_side=_side(data["declared_side"]),
        smallest_tolerance=data["smallest_tolerance"],
        tolerance_would_help=data["tolerance_would_help"],
        non_finite=f"{bad['count']} values of {bad['where']}, first at row {bad['row']}" if bad else None,
        report=data,
    )


def _match(data: Mapping[str, Any] | None) -> Match | None:
    return Match(label=data["label"], kind=data["kind"], k=data["k"], error=data["error"]) if data else None


def _side(data: Mapping[str, Any] | None) -> Side | None:
    if not data:
        return None
    return Side(first_values=tuple(data["first_values"]), median_row_norm=data["median_row_norm"])
