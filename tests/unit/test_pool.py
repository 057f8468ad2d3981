"""A pool keeps one worker for each engine, on as many cores as there are, and ends them all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from eagle_contracts.workers.client import Answer, Failure, Launch
from eagle_contracts.workers.pool import Call, Engine, Pool, Result

from .processes import survivors, until

HERE = Path(__file__).parent
KILLED = "the worker ended by signal 9 (SIGKILL)"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.syspath_prepend(HERE)
    made = Pool(cores=2)
    yield made
    made.close()


def engine(label: str = "one", *, prepare: str = "prepare", command: tuple[str, ...] = (sys.executable,)) -> Engine:
    return Engine(
        label=label,
        launch=Launch(command=command, environ={"ENGINE": label}),
        packages=("eagle_contracts", "worker_calls"),
        prepare=f"worker_calls:{prepare}",
        prepare_params={},
        overlays=(),
        identity=None,
    )


def ask(pool: Pool, engine: Engine, function: str, **params: object) -> Future[Result]:
    """Queue one call of a worker's function."""
    return pool.submit(engine, lambda call: call(f"worker_calls:{function}", params))


def started(pool: Pool, engine: Engine) -> object:
    """Start a worker, and return what its preparation gave."""
    value(ask(pool, engine, "add", a=0, b=0))
    prepared = pool.prepared(engine)
    assert isinstance(prepared, Answer)
    return prepared.value


def value(future: Future[Result]) -> object:
    result = future.result(timeout=30)
    assert isinstance(result, Answer), result
    return result.value


def failure(future: Future[Result]) -> Failure:
    result = future.result(timeout=30)
    assert isinstance(result, Failure), result
    return result


def test_an_engine_is_prepared_once(pool: Pool) -> None:
    """Equal engines share one worker, whoever asks first; others have their own."""
    prepared = started(pool, engine())
    again = started(pool, engine())
    other = started(pool, engine("two"))
    assert prepared == again != other
    assert len(pool.pids) == 2


def test_work_that_calls_nothing_starts_nothing(pool: Pool) -> None:
    """A worker begins with the first call: work that finds its answer elsewhere costs no import."""
    kept = Answer(value="kept", seconds=0.0)
    assert value(pool.submit(engine(), lambda call: kept)) == "kept"
    assert pool.prepared(engine()) is None
    assert pool.pids == ()


def test_work_that_raises_ends_in_its_own_future(pool: Pool) -> None:
    """A mistake in a job is told to whoever waits for it; the jobs after it run."""

    def broken(call: Call) -> Result:
        raise OSError("no space")

    raised = pool.submit(engine(), broken)
    with pytest.raises(OSError, match="no space"):
        raised.result(timeout=10)
    assert value(ask(pool, engine(), "add", a=1, b=2)) == 3


def test_work_may_call_more_than_once(pool: Pool) -> None:
    """A job's calls are made in the same worker, one after the other."""

    def twice(call: Call) -> Result:
        first = call("worker_calls:add", {"a": 1, "b": 2})
        assert isinstance(first, Answer)
        return call("worker_calls:add", {"a": first.value, "b": 10})

    assert value(pool.submit(engine(), twice)) == 13
    assert len(pool.pids) == 1


def test_calls_of_one_worker_run_in_order(pool: Pool) -> None:
    """Queued calls wait for each other and each gets its own answer."""
    futures = [ask(pool, engine(), "add", a=n, b=1) for n in range(5)]
    assert [value(future) for future in futures] == [1, 2, 3, 4, 5]


def test_two_workers_share_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a single core, calls of different workers never overlap."""
    monkeypatch.syspath_prepend(HERE)
    pool = Pool(cores=1)
    try:
        futures = [ask(pool, engine(name), "nap", seconds=0.1) for name in ("one", "two")]
        spans = sorted(_span(future) for future in futures)
    finally:
        pool.close()
    assert spans[0][1] <= spans[1][0]


def test_two_workers_use_two_cores(pool: Pool) -> None:
    """With two cores, calls of different workers run side by side."""
    for name in ("one", "two"):
        started(pool, engine(name))
    futures = [ask(pool, engine(name), "nap", seconds=1) for name in ("one", "two")]
    first, second = (_span(future) for future in futures)
    assert max(first[0], second[0]) < min(first[1], second[1])


def _span(future: Future[Result]) -> tuple[float, float]:
    begun_and_ended = value(future)
    assert isinstance(begun_and_ended, list)
    return begun_and_ended[0], begun_and_ended[1]


def test_a_worker_that_was_killed_is_started_again(pool: Pool) -> None:
    """A worker's death costs the call it was at; the next call is made in a new one."""
    killed = ask(pool, engine(), "kill_worker")
    after = ask(pool, engine(), "add", a=1, b=2)
    assert failure(killed).message == KILLED
    assert value(after) == 3


def test_a_worker_killed_between_calls_is_not_missed(pool: Pool) -> None:
    """A worker that died while nobody asked is started again without a failure."""
    started(pool, engine())
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    assert survivors([pid]) == []
    assert until(lambda: not pool.pids)
    assert value(ask(pool, engine(), "add", a=3, b=4)) == 7


def test_a_worker_that_always_dies_is_given_up(pool: Pool) -> None:
    """After a few restarts the answer is that it ended too often, at once, and how it did the last time."""
    futures = [ask(pool, engine(), "kill_worker") for _ in range(6)]
    messages = [failure(future).message for future in futures]
    assert messages == [KILLED] * 4 + [f"the worker ended too often, the last time so: {KILLED}"] * 2


def test_what_was_killed_may_be_tried_again_once(pool: Pool) -> None:
    """A system short of memory takes a worker or its child; each engine gets one more try, and no other end does."""
    for number, act in enumerate(("kill_worker", "crash_beside_a_process")):
        one = engine(str(number))
        killed = ask(pool, one, act).result(timeout=30)
        assert [pool.may_try_again(one, killed) for _ in range(2)] == [True, False]
    for act in ("crash", "leave", "fail", "add"):
        assert not pool.may_try_again(engine(), ask(pool, engine(), act, a=1, b=1).result(timeout=30))


def test_an_engine_that_does_not_import_fails_every_call(pool: Pool) -> None:
    """The reason why an engine cannot be prepared is the answer to each call of it."""
    broken = engine(prepare="prepare_badly")
    reasons = [failure(ask(pool, broken, "add", a=1, b=1)), failure(ask(pool, broken, "add", a=1, b=1))]
    assert [(reason.type, reason.message) for reason in reasons] == [("ImportError", "no such engine")] * 2


def test_a_missing_command_fails_every_call(pool: Pool) -> None:
    """A command that does not exist is an answer that names it."""
    reason = failure(ask(pool, engine(command=("/no/such/python",)), "add", a=1, b=1))
    said = "/no/such/python cannot be started: No such file or directory"
    assert (reason.kind, reason.type, reason.message) == ("died", "", said)


def test_closing_ends_calls_and_queues_at_once(pool: Pool, tmp_path: Path) -> None:
    """Closing ends the call in progress, cancels what waits, and leaves no worker."""
    started(pool, engine())
    pids = pool.pids
    there = tmp_path / "pids.json"
    running = ask(pool, engine(), "hang", file=str(there))
    assert until(there.exists)
    queued = ask(pool, engine(), "add", a=1, b=1)
    pool.close()
    assert failure(running).kind == "died"
    with pytest.raises(CancelledError):
        queued.result(timeout=10)
    assert survivors(pids) == []
    assert pool.pids == ()


def test_closing_ends_a_command_that_never_answers(pool: Pool) -> None:
    """Closing does not wait for a command that hangs before it is an interpreter."""
    prepared = ask(pool, engine(command=("sh", "-c", "exec sleep 60")), "add", a=1, b=1)
    assert until(lambda: bool(pool.pids))
    pids = pool.pids
    pool.close()
    assert failure(prepared).kind == "died"
    assert survivors(pids) == []
