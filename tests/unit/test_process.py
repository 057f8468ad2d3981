"""A worker answers every call, whatever the called code does to its process, and leaves nothing running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.workers import client
from eagle_contracts.workers.client import Answer, Failure, Launch, Worker

from .processes import alive, survivors, until

HERE = Path(__file__).parent
LAUNCH = Launch(command=(sys.executable,), environ={"WORKER_STORY": "told"})
PACKAGES = ("eagle_contracts", "worker_calls")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def worker(_importable: None) -> Iterator[Worker]:
    started = Worker(LAUNCH, PACKAGES)
    yield started
    started.close()


def answered(worker: Worker, function: str, **params: object) -> Any:
    result = worker.call(f"worker_calls:{function}", params, timeout=20)
    assert isinstance(result, Answer), result
    return result.value


def failed(worker: Worker, function: str, timeout: float = 20, **params: object) -> Failure:
    result = worker.call(f"worker_calls:{function}", params, timeout=timeout)
    assert isinstance(result, Failure), result
    return result


def test_a_call_runs_in_a_child_of_its_own(worker: Worker) -> None:
    """Every call gets a fresh process, forked from one that stays."""
    first, second = answered(worker, "pids"), answered(worker, "pids")
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[0] == second[0]
    assert len({worker.pid, first[0], first[1], second[1]}) == 4


def test_a_call_can_stay_in_the_worker(worker: Worker) -> None:
    """What is imported once for all children runs in the worker itself."""
    result = worker.call("worker_calls:prepare", {}, fork=False)
    assert isinstance(result, Answer)
    assert answered(worker, "pids")[0] == result.value["pid"]


def test_an_exception_comes_back_with_its_trace_and_the_output(worker: Worker) -> None:
    """The host learns the exception, where it was raised in the sent source, and what was printed before."""
    failure = failed(worker, "fail")
    assert (failure.kind, failure.type, failure.message) == ("exception", "ValueError", "the weights are odd")
    assert failure.log == "loading weights\n"
    assert '<sent>/worker_calls.py", line ' in failure.traceback
    assert 'raise ValueError("the weights are odd")' in failure.traceback


def test_a_crash_is_an_answer_and_the_worker_stays(worker: Worker) -> None:
    """A child that a signal ends costs one call: its output is kept, and the next call works."""
    failure = failed(worker, "crash")
    assert (failure.kind, failure.message) == ("died", "ended by signal 11 (SIGSEGV)")
    assert failure.log.startswith("about to crash\n")
    assert answered(worker, "add", a=2, b=3) == 5


def test_an_exit_without_an_answer_is_told(worker: Worker) -> None:
    """Code that leaves the process on its own is named by its exit status."""
    assert failed(worker, "leave").message == "ended by exit status 3"


def test_a_deadline_ends_the_child(worker: Worker) -> None:
    """A call that takes too long ends with all that it started, and the next call works."""
    failure = failed(worker, "nap", timeout=0.2, seconds=60)
    assert (failure.kind, failure.message) == ("timeout", "no answer in time")
    assert answered(worker, "add", a=1, b=1) == 2


def test_fifty_megabytes_of_output_are_no_answer(worker: Worker) -> None:
    """What an engine prints can neither fill a pipe nor be read as a reply; only its end is kept."""
    assert answered(worker, "shout", megabytes=50) == "done"
    assert answered(worker, "add", a=1, b=2) == 3


def test_a_large_answer_comes_whole(worker: Worker) -> None:
    """An answer may be larger than any pipe's buffer."""
    assert answered(worker, "echo", bytes=3_000_000) == "y" * 3_000_000


def test_an_answer_that_is_no_json_is_told(worker: Worker) -> None:
    """An adapter that returns something else than plain data is told so."""
    failure = failed(worker, "unserializable")
    assert (failure.kind, failure.type) == ("exception", "TypeError")
    assert failure.message == "Object of type object is not JSON serializable"


def test_a_child_may_close_every_descriptor(worker: Worker) -> None:
    """Closing what it does not own costs the child its answer, and the worker nothing."""
    failure = failed(worker, "close_everything")
    assert (failure.kind, failure.message) == ("died", "ended by exit status 0")
    assert answered(worker, "add", a=4, b=4) == 8


def test_standard_input_is_empty_for_the_called_code(worker: Worker) -> None:
    """An engine that reads its input cannot eat a request."""
    assert answered(worker, "read_input") == ""
    assert answered(worker, "add", a=0, b=1) == 1


def test_a_process_left_behind_holds_up_nobody(worker: Worker) -> None:
    """The answer counts when the child has ended, although a process that it forked still holds its pipe."""
    left = answered(worker, "leave_a_process")
    assert isinstance(left, int)
    assert survivors([left]) == []


def test_programs_left_behind_end_with_their_call(worker: Worker) -> None:
    """A program that a stage started ends with the stage, also where it made itself a session of its own."""
    assert survivors(answered(worker, "leave_programs")) == []
    assert answered(worker, "add", a=1, b=1) == 2


def test_programs_of_an_engine_live_as_long_as_it(worker: Worker) -> None:
    """What an import started serves every call, and ends with the worker."""
    result = worker.call("worker_calls:prepare_with_programs", {}, fork=False)
    assert isinstance(result, Answer)
    answered(worker, "leave_programs")
    assert all(map(alive, result.value["pids"]))
    worker.close()
    assert survivors(result.value["pids"]) == []


def test_a_killed_worker_leaves_no_program(worker: Worker) -> None:
    """When the worker alone is killed, what it and its child had started ends too."""
    result = worker.call("worker_calls:prepare_with_programs", {}, fork=False)
    assert isinstance(result, Answer)
    assert failed(worker, "kill_worker").message == "the worker ended by signal 9 (SIGKILL)"
    assert survivors(result.value["pids"]) == []


def test_a_crash_beside_a_process_is_seen_at_once(worker: Worker) -> None:
    """A child that dies is told as dead, not as late, although a process that it forked still holds its pipe."""
    failure = failed(worker, "crash_beside_a_process")
    assert (failure.kind, failure.message) == ("died", "ended by signal 9 (SIGKILL)")


def test_a_killed_worker_is_told_and_takes_its_child_along(worker: Worker) -> None:
    """When the worker itself is killed in mid-call, the host gets an answer, and the child ends."""
    failure = failed(worker, "kill_worker")
    assert (failure.kind, failure.message) == ("died", "the worker ended by signal 9 (SIGKILL)")
    assert not worker.alive


def test_a_command_that_is_no_interpreter_is_told() -> None:
    """A command that ends at once gives its last lines, not an exception."""
    worker = Worker(Launch(command=("sh", "-c", "echo no such container >&2; exit 125"), environ={}), PACKAGES)
    failure = failed(worker, "add", a=1, b=1)
    worker.close()
    assert (failure.kind, failure.message) == ("died", "the worker ended by exit status 125")
    assert failure.log == "no such container\n"


def test_a_command_that_never_reads_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stuck command, such as a container that hangs, is given up after the deadline."""
    monkeypatch.setattr(client, "GRACE_SECONDS", 0.1)
    worker = Worker(Launch(command=("sh", "-c", "exec sleep 60"), environ={}), PACKAGES)
    failure = failed(worker, "add", timeout=0.2, a=1, b=1)
    worker.close()
    assert (failure.kind, failure.message) == ("timeout", "no answer in time")
    assert not alive(worker.pid)


def test_closing_ends_a_worker_twice_without_complaint(worker: Worker) -> None:
    """Closing is safe to repeat, and a closed worker answers that it ended."""
    worker.close()
    worker.close()
    assert not worker.alive


HOST = """
import sys
from eagle_contracts.workers.client import Launch, Worker
launch = Launch(command=(sys.executable,), environ={})
Worker(launch, ("eagle_contracts", "worker_calls")).call("worker_calls:hang_with_programs", {"file": sys.argv[1]})
"""


def test_a_killed_host_leaves_no_worker(tmp_path: Path) -> None:
    """When the host is killed, so that it cannot clean up, its worker ends, and all that was started below it."""
    there = tmp_path / "pids.json"
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    host = subprocess.Popen([sys.executable, "-c", HOST, str(there)], env={**os.environ, "PYTHONPATH": path})
    try:
        assert until(there.exists)
        pids = json.loads(there.read_text())
        assert all(map(alive, (host.pid, *pids)))
    finally:
        host.kill()
        host.wait()
    assert survivors(pids) == []
