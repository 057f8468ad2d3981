"""One line of progress for each environment: a bar on a terminal, plain lines elsewhere. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import shutil
import time
from typing import Final, TextIO

_BAR: Final = 24
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """Tells what a build is doing; a step that has not been finished is one line that is drawn over."""

    def __init__(self, stream: TextIO, *, terminal: bool | None = None) -> None:
        self._stream = stream
        self._terminal = stream.isatty() if terminal is None else terminal
        self._label = ""
        self._total = 0
        self._started = 0.0

    def start(self, label: str, total: int, what: str) -> None:
        """Begin a step of `total` parts."""
        self._label, self._total, self._started = label, total, time.monotonic()
        if not self._terminal:
            self.say(f"{label}: {what}")
        self.update(0, what)

    def update(self, done: int, what: str) -> None:
        """Draw the bar again; off a terminal nothing is written."""
        if not self._terminal:
            return
        done = min(done, self._total)
        filled = _BAR * done // max(self._total, 1)
        bar = "#" * filled + "." * (_BAR - filled)
        text = f"{self._label}  [{bar}] {done}/{self._total}  {duration(time.monotonic() - self._started)}  {what}"
        self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def finish(self, what: str) -> None:
        """End the step with a line that stays and says how long it took."""
        took = duration(time.monotonic() - self._started)
        self.say(f"{self._label}: {what} in {took}")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write((_CLEAR if self._terminal else "") + text + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def duration(seconds: float) -> str:
    """A time span in words: `0.3 s`, `41 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
