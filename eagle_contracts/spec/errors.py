"""Errors in what a user wrote: position, message, source line with a caret, hint."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eagle_contracts.spec.position import Position

_WIDTH: Final = 92
_WRAPPER: Final = textwrap.TextWrapper(
    width=_WIDTH + 4, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecIssue:
    """One mistake, at one position."""

    position: Position
    message: str
    hint: str | None = None
    source_line: str | None = None

    def render(self) -> str:
        """Return `path:line:column: message`, the source line, a caret under the place, and the hint."""
        lines = [f"{self.position.full}: {self.message}"]
        source = self.source_line if self.source_line is not None else self.position.text
        if source.strip():
            lines += _excerpt(source, self.position.column)
        if self.hint:
            lines += _WRAPPER.wrap(self.hint)
        return "\n".join(lines)


class SpecError(Exception):
    """What is wrong with a specification; `issues` holds every mistake found, in reading order."""

    def __init__(self, issues: Iterable[SpecIssue]) -> None:
        self.issues: tuple[SpecIssue, ...] = tuple(issues)
        super().__init__(self.issues)

    def render(self) -> str:
        """Return all issues as text, one after the other."""
        return "\n".join(issue.render() for issue in self.issues)

    def __str__(self) -> str:
        return self.render()


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid word most like `word`, or None if none is close."""
    matches = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def suggest(word: str, valid: Iterable[str], what: str = "valid") -> str | None:
    """Return `did you mean 'x'?`, or the list of valid words if none is close, or None if there are none."""
    words = list(valid)
    match = nearest(word, words)
    if match is not None:
        return f"did you mean '{match}'?"
    return f"{what}: {', '.join(words)}" if words else None


def fail(position: Position, message: str, hint: str | None = None) -> SpecError:
    """Return a SpecError with a single issue, ready to be raised."""
    return SpecError([SpecIssue(position=position, message=message, hint=hint)])


def in_order(issues: Iterable[SpecIssue]) -> list[SpecIssue]:
    """Return the issues in reading order."""
    return sorted(issues, key=lambda issue: (issue.position.path, issue.position.line, issue.position.column))


def _excerpt(source: str, column: int) -> list[str]:
    """Return the source line and the caret line, clipped around the caret, without control characters."""
    shown = "".join(char if char.isprintable() else " " for char in source.rstrip("\r\n"))
    start = 0 if column <= _WIDTH - 12 else column - 1 - _WIDTH // 2
    return [f"    {shown[start : start + _WIDTH].rstrip()}", f"    {' ' * (column - 1 - start)}^"]
