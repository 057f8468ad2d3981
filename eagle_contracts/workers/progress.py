"""One line of progress for each environment: a bar on a terminal, plain lines elsewhere. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import shutil
import time
from typing import Final, TextIO

PATIENCE: Final = 20.0
"""Seconds after which a line off a terminal says how far a step is."""
_BAR: Final = 24
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """Tells what a build is doing; a step that has not been finished is one line that is drawn over."""

    def __init__(self, stream: TextIO, *, terminal: bool | None = None, patience: float = PATIENCE) -> None:
        self._stream, self._patience = stream, patience
        self._terminal = is_terminal(stream) if terminal is None else terminal
        self._label = ""
        self._total: int | None = None
        self._started = self._said = 0.0

    def start(self, label: str, total: int | None, what: str) -> None:
        """Begin a step of `total` parts; without a total there is no bar."""
        self._label, self._total, self._started = label, total, time.monotonic()
        self._said = self._started
        if not self._terminal:
            self.say(f"{label}: {what}")
        self.update(0, what)

    def update(self, done: int, what: str) -> None:
        """Draw the line again; off a terminal a line is written now and then."""
        now = time.monotonic()
        if self._terminal:
            text = f"{self._label}  {self._bar(done)}{duration(now - self._started)}  {what}"
            self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])
        elif now - self._said >= self._patience:
            self._said = now
            far = f"{min(done, self._total)} of {self._total}, " if self._total else ""
            self.say(f"{self._label}: {far}{duration(now - self._started)}: {what}")

    def finish(self, what: str) -> None:
        """End the step with a line that stays and says how long it took."""
        took = duration(time.monotonic() - self._started)
        self.say(f"{self._label}: {what} in {took}")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write((_CLEAR if self._terminal else "") + text + "\n")

    def clear(self) -> None:
        """Take away a line that is drawn over, for what another one writes there."""
        if self._terminal:
            self._write(_CLEAR)

    def _bar(self, done: int) -> str:
        if not self._total:
            return ""
        done = min(done, self._total)
        filled = _BAR * done // self._total
        return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{self._total}  "

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def is_terminal(stream: TextIO) -> bool:
    """Tell whether lines can be drawn over there."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """A time span in words: `0.3 s`, `41 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
