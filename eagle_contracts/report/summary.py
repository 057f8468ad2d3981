"""The end of a run: what comments say beside what was measured, notes, and one sentence a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from eagle_contracts.conclude import conclude
from eagle_contracts.facts import Fact
from eagle_contracts.report.columns import wrapped

MOST_REASONS = 5
"""How many reasons why nothing could be checked are shown; `-rs` shows all."""


def _by_place(said: Sequence[str]) -> Iterator[str]:
    """Yield each place once, with what is said there below it."""
    last = ""
    for line in said:
        place, _, words = line.partition("  ")
        if place != last:
            yield place
        last = place
        yield f"  {words}"


def write_summary(facts: Sequence[Fact], write: Callable[..., Any], section: Callable[..., Any]) -> None:
    """Write all parts, where there is something to say."""
    if not facts:
        return
    section("contracts", sep="=")
    said = list(dict.fromkeys(line for fact in facts for line in fact.said))
    if said:
        write("comments say, and what was measured:")
        for line in _by_place(said):
            write(f"  {line}")
    for note in dict.fromkeys(note for fact in facts for note in fact.notes):
        for line in wrapped(f"note: {note}.", 2):
            write(line)
    for conclusion in conclude(facts):
        for line in wrapped(f"{conclusion.pipeline}: {conclusion.sentence}."):
            write(line)


def write_reasons(reasons: Sequence[str], write: Callable[..., Any]) -> None:
    """Write why nothing could be checked: each reason says what to do."""
    for reason in reasons[:MOST_REASONS]:
        for line in wrapped(reason, 4, "  "):
            write(line)
    if len(reasons) > MOST_REASONS:
        write(f"  and {len(reasons) - MOST_REASONS} more: see -rs")
