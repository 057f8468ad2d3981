"""Where a value was written, for every message that names it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a file, or on the command line when `origin` is set; line and column count from 1."""

    path: str
    line: int
    column: int
    origin: str | None = None
    text: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        """Return `path:line`, or the origin, such as `--contracts-set trained.taps`."""
        return self.origin or f"{self.path}:{self.line}"

    @property
    def full(self) -> str:
        """Return `path:line:column`, or the origin."""
        return self.origin or f"{self.path}:{self.line}:{self.column}"
