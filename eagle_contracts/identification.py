"""What was found in a slot, as plain data: a worker writes it, the reader of its answer needs no torch.

Runs on Python 3.10 with the standard library.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["state", "final_normed", "sublayer", "normed_input", "final_norm_of"]
Outcome = Literal["identified", "inconclusive", "unknown", "non_finite", "wrong_width", "wrong_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a tensor is called if a slot turns out to hold it; the label is what a person reads after `slot 0 holds`."""

    label: str
    kind: Kind
    k: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A candidate and the slot's error against it (median over tokens of the row's relative L2 error).

    Where `exact` is false the error is estimated from the sample, and proven to be beyond the margin.
    """

    label: str
    kind: Kind
    k: int | None
    error: float
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a person compares by eye: the first values of row 0, the median row norm and the Frobenius norm."""

    first_values: tuple[float, ...]
    median_row_norm: float
    frobenius: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """How many values of which tensor (`slot` or a candidate's label) no float32 holds, and where the first one is."""

    where: str
    count: int
    row: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """What one slot holds, with the evidence.

    `errors` lists every candidate that was compared exactly, nearest first. `smallest_tolerance` is the error against
    the declared state: with a tolerance that large the slot would pass, but only if `tolerance_would_help`, that is if
    the declared state is the nearest by the margin. `worst_row` is (row, error) against the best candidate.
    """

    outcome: Outcome
    tolerance: float
    shape: tuple[int, int]
    expected_shape: tuple[int, int]
    best: Match | None = None
    second: Match | None = None
    declared: Match | None = None
    errors: tuple[tuple[str, float], ...] = ()
    worst_row: tuple[int, float] | None = None
    sink_rows: tuple[int, ...] = ()
    slot_side: Side | None = None
    best_side: Side | None = None
    declared_side: Side | None = None
    non_finite: NonFinite | None = None
    tolerance_would_help: bool = False

    @property
    def smallest_tolerance(self) -> float | None:
        """The slot's error against the declared state, if one was declared and compared."""
        return self.declared.error if self.declared else None

    def to_json(self) -> dict[str, Any]:
        """The identification as plain JSON values (no NaN, no infinity: those have an outcome of their own)."""
        return {**asdict(self), "smallest_tolerance": self.smallest_tolerance}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Identification:
        """Read what `to_json` wrote, also after a trip through a JSON text."""
        return cls(**{name: _revive(name, value) for name, value in data.items() if name != "smallest_tolerance"})


def _revive(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if name == "non_finite":
            return NonFinite(**value)
        if name.endswith("_side"):
            return Side(**{**value, "first_values": tuple(value["first_values"])})
        return Match(**value)
    if name == "errors":
        return tuple((label, error) for label, error in value)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Indivisible:
    """A concatenation whose width is not a whole number of slots: `total = whole * width + rest`."""

    total: int
    width: int
    whole: int
    rest: int
