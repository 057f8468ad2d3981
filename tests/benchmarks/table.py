"""One table for all benchmarks: what was measured, beside what, how much it varied, and the budget."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of one thing, several times, and of the plain thing that was run in turns with it, if there is one.

    The budget is a ratio where there is a plain thing, else it is seconds.
    """

    what: str
    ours: Sequence[float]
    plain: Sequence[float] = ()
    budget: float

    @property
    def value(self) -> float:
        """The fastest run, over the fastest plain one: other work on the machine can only make a run slower."""
        return min(self.ours) / min(self.plain) if self.plain else min(self.ours)

    @property
    def noise(self) -> float:
        """How far apart the quartiles of our runs are, by their median."""
        if len(self.ours) < 4:
            return (max(self.ours) - min(self.ours)) / statistics.median(self.ours)
        low, _, high = statistics.quantiles(self.ours, n=4)
        return (high - low) / statistics.median(self.ours)

    @property
    def within(self) -> bool:
        """Whether the budget is kept."""
        return self.value <= self.budget


def show(rows: Sequence[Measured]) -> None:
    """Print the table."""
    lead = max(len(row.what) for row in rows)
    print(f"\n{'':<{lead}}{'ours':>12}{'plain':>12}{'measured':>11}{'budget':>9}{'noise':>8}{'runs':>6}")
    for row in rows:
        plain = _span(min(row.plain)) if row.plain else "-"
        unit = "x" if row.plain else " s"
        print(
            f"{row.what:<{lead}}{_span(min(row.ours)):>12}{plain:>12}{row.value:>9.2f}{unit:<2}{row.budget:>7.2g}"
            f"{unit:<2}{row.noise:>7.0%}{len(row.ours):>6}{'' if row.within else '  OVER'}"
        )


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
