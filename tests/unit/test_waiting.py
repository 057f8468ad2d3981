"""The sentence of a long wait names what takes long."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from eagle_contracts import waiting
from eagle_contracts.waiting import Waiting, sentence_of
from eagle_contracts.workers.pool import Busy, Pool


def busy(label: str, what: str, seconds: float) -> Busy:
    """What an engine has been at for so long."""
    return Busy(label=label, what=what, since=time.monotonic() - seconds)


def test_engines_that_start_come_before_those_that_run() -> None:
    """An import is what takes long; of several engines the count is told, of one it would say nothing."""
    running, first, second = busy("a", "running", 3), busy("b", "starting", 25), busy("c", "starting", 4)
    assert sentence_of([running, first, second], 1, 3) == "still starting b (25 s), c (4 s); 1 of 3 engines started"
    assert sentence_of([first], 0, 1) == "still starting b (25 s)"
    assert sentence_of([running], 3, 3) == "still running a (3 s)"
    locked = busy("a", "waiting for another run to observe in", 40)
    assert sentence_of([locked], 0, 1) == "still waiting for another run to observe in a (40 s)"
    assert sentence_of([], 0, 1) == "still waiting for a free core"


def test_a_wait_is_spoken_of_again_and_again_and_ends_with_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of a future that is done."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.01)
    said: list[str] = []
    future: Future[int] = Future()
    pool = Pool(cores=1)
    patient = Waiting(pool)

    def say(sentence: str) -> None:
        said.append(sentence)
        if len(said) == 3:
            future.set_result(7)

    patient.say = say
    assert patient.until(future).result() == 7
    assert said == ["still waiting for a free core"] * 3
    assert patient.until(future).result() == 7
    assert len(said) == 3
    pool.close()


def test_what_has_just_begun_is_held_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that says `0 s` would split pytest's own; the round after it is said whatever has begun since."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.2)
    future: Future[int] = Future()
    pool = Pool(cores=1)
    monkeypatch.setattr(pool, "busy", lambda: [busy("a", "running", 0)])
    patient, said, begun = Waiting(pool), list[float](), time.monotonic()

    def say(sentence: str) -> None:
        said.append(time.monotonic() - begun)
        future.set_result(7)

    patient.say = say
    assert patient.until(future).result() == 7
    assert said[0] >= 0.4
    pool.close()
