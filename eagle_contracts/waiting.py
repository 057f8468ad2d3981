"""What a run says while it waits long: which engines start, which one runs. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from eagle_contracts.workers.pool import Busy, Pool

PATIENCE = 20.0
"""Seconds of one wait after which something is said, and again after as many."""

T = TypeVar("T")


class Waiting:
    """Waits for what workers do; `say` is given a sentence when that takes long."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.say: Callable[[str], None] = lambda sentence: None
        self.interrupted = ""

    def until(self, future: Future[T]) -> Future[T]:
        """Return the future when it is done, with a word now and then.

        A wait that is stopped from outside, as pytest-timeout does, stops what was waited for: it would hold up every
        item after it. `interrupted` then says what that was.
        """
        held_back = False
        try:
            while wait([future], timeout=PATIENCE).not_done:
                # What has just begun may end at once: a line would break pytest's own for nothing.
                held_back = not held_back and self._has_just_begun()
                if not held_back:
                    self.say(self._now())
        except BaseException:
            self.interrupted = self._now()
            self._pool.interrupt(future)
            raise
        return future

    def _has_just_begun(self) -> bool:
        busy = self._pool.busy()
        return bool(busy) and all(time.monotonic() - one.since < PATIENCE / 2 for one in busy)

    def _now(self) -> str:
        return sentence_of(self._pool.busy(), *self._pool.engines_started())


def sentence_of(busy: list[Busy], started: int, engines: int) -> str:
    """Say what is waited for, engines that start before others: that is what takes long."""
    if not busy:
        return "still waiting for a free core"
    starting = [one for one in busy if one.what == "starting"]
    chosen = starting or busy
    named = ", ".join(f"{one.label} ({time.monotonic() - one.since:.0f} s)" for one in chosen)
    count = f"; {started} of {engines} engines started" if starting and engines > 1 else ""
    return f"still {chosen[0].what} {named}{count}"
