"""The end of a run: what comments say beside what was measured, and one sentence a pipeline."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from eagle_contracts.conclude import conclude
from eagle_contracts.facts import Fact

COLUMNS = 100


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
    """Write both parts, where there is something to say."""
    if not facts:
        return
    section("contracts", sep="=")
    said = list(dict.fromkeys(line for fact in facts for line in fact.said))
    if said:
        write("comments say, and what was measured:")
        for line in _by_place(said):
            write(f"  {line}")
    for conclusion in conclude(facts):
        for line in textwrap.wrap(
            f"{conclusion.pipeline}: {conclusion.sentence}.",
            COLUMNS,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        ):
            write(line)
