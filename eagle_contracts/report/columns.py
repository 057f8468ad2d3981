"""Text of at most 100 columns, as everything printed here is. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import textwrap
from typing import Final

COLUMNS: Final = 100


def wrapped(text: str, indent: int = 2, first: str = "") -> list[str]:
    """Return a sentence as lines, the later ones indented; words longer than a line, such as paths, stay whole."""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def fit(text: str) -> str:
    """Return laid-out text with its longer lines broken: a mistake's first line names a path of any length."""
    out: list[str] = []
    for line in text.splitlines():
        start = line[: len(line) - len(line.lstrip())]
        out += [line] if len(line) <= COLUMNS else wrapped(line.lstrip(), len(start) + 2, start)
    return "\n".join(out)
