"""Watching processes from outside, and what they say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits for its parent to notice its end does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def survivors(pids: Iterable[int], seconds: float = 5.0) -> list[int]:
    """Return who still runs when the time is over; at once if nobody does."""
    everyone = list(pids)
    until(lambda: not any(map(alive, everyone)), seconds)
    return [pid for pid in everyone if alive(pid)]


def until(happened: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait for something to happen, and tell whether it did."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def timeless(text: str) -> str:
    return re.sub(r"\d+(\.\d+)? s\b", "T", text)
