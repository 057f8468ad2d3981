"""All workers of a run: one per (environment, overlay), started when first needed, busy on at most one core each."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from eagle_contracts.workers.client import CALL_SECONDS, START_SECONDS, Answer, Failure, Launch, Worker
from eagle_contracts.workers.keeper import ending

RESTARTS = 3
WAITING = "waiting for another run to observe in"
TOO_OFTEN = "the worker ended too often, the last time so"
KILLED = ending(-signal.SIGKILL)
Result = Answer | Failure
Call = Callable[[str, Mapping[str, Any]], Result]
Work = Callable[[Call], Result]
"""What an engine's thread does for a job: it is given the way to call the worker, which starts if it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker is made from: an interpreter, the function that imports the engine, and overlays' texts.

    `identity` is a digest over the interpreter's installed sources and the overlays; None where they cannot be seen.
    An engine that `spawns` gets a worker of its own for every call: a process that has touched a GPU cannot be forked.
    """

    label: str
    launch: Launch
    packages: tuple[str, ...]
    prepare: str
    prepare_params: Mapping[str, Any]
    overlays: tuple[Mapping[str, str], ...]
    identity: str | None
    spawns: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal keys share a worker."""
        return self._key(())

    @property
    def content(self) -> tuple[object, ...]:
        """Equal contents do the same: where a patch script lies does not matter, its text does."""
        return self._key(("script",))

    def _key(self, but: Container[str]) -> tuple[object, ...]:
        overlays = tuple(tuple(sorted((k, v) for k, v in overlay.items() if k not in but)) for overlay in self.overlays)
        environ = tuple(sorted(self.launch.environ.items()))
        params = repr(sorted(self.prepare_params.items()))
        return (self.launch.command, environ, self.packages, self.prepare, params, overlays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What an engine's thread is at: `starting`, `running`, or WAITING."""

    label: str
    what: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    work: Work
    future: Future[Result]


class Pool:
    """Workers by engine; calls of one worker run in order, calls of different workers side by side."""

    def __init__(self, cores: int | None = None, *, call_seconds: float = CALL_SECONDS) -> None:
        self.call_seconds = call_seconds
        self._cores = threading.Semaphore(cores or len(os.sched_getaffinity(0)))
        self._threads: dict[tuple[object, ...], _EngineThread] = {}
        self._owners: dict[Future[Any], _EngineThread] = {}
        self._closed = threading.Event()

    def submit(self, engine: Engine, work: Work) -> Future[Result]:
        """Queue work that may call the engine's worker; its calls run in forked children."""
        thread = self._thread(engine)
        future = thread.submit(work)
        self._owners[future] = thread
        return future

    def interrupt(self, future: Future[Any]) -> None:
        """Stop what the engine of this future is at, its own call or one before it; the calls after it are made."""
        owner = self._owners.get(future)
        if owner is not None and owner.worker is not None:
            owner.worker.interrupt()

    def may_try_again(self, engine: Engine, result: Result) -> bool:
        """Tell whether a call was killed, as by a system short of memory, and is to be made again: once an engine."""
        return self._thread(engine).may_try_again(result)

    def prepared(self, engine: Engine) -> Result | None:
        """Return what the engine's `prepare` gave, or None while it has not been started."""
        return self._thread(engine).prepared

    def busy(self) -> list[Busy]:
        """Return what is being done now, by engine."""
        return [busy for thread in self._threads.values() if (busy := thread.busy) is not None]

    def engines_started(self) -> tuple[int, int]:
        """Return how many engines have started, well or not, and how many there are so far."""
        return sum(thread.prepared is not None for thread in self._threads.values()), len(self._threads)

    def _thread(self, engine: Engine) -> _EngineThread:
        if engine.key not in self._threads:
            self._threads[engine.key] = _EngineThread(engine, self._cores, self._closed, self.call_seconds)
        return self._threads[engine.key]

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers that run now."""
        workers = [thread.worker for thread in self._threads.values()]
        return tuple(worker.pid for worker in workers if worker is not None and worker.alive)

    def close(self) -> None:
        """End every worker at once; calls still queued are cancelled, and who waits for another run is left waiting."""
        self._closed.set()
        for thread in self._threads.values():
            thread.close()
        for thread in self._threads.values():
            if thread.busy is None or thread.busy.what != WAITING:
                thread.join(timeout=10)


class _EngineThread(threading.Thread):
    """Owns one worker for the whole run, since the worker ends with the thread that started it."""

    def __init__(
        self, engine: Engine, cores: threading.Semaphore, closed: threading.Event, call_seconds: float
    ) -> None:
        super().__init__(name=f"eagle-contracts {engine.label}", daemon=True)
        self.worker: Worker | None = None
        self.prepared: Result | None = None
        self.busy: Busy | None = None
        self._engine, self._cores, self._closed = engine, cores, closed
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._starts, self._call_seconds = 0, call_seconds
        self._tried_again = False
        self._given_up = Failure(kind="died", type="", message=TOO_OFTEN, traceback="", log="")
        self.start()

    def submit(self, work: Work) -> Future[Result]:
        future: Future[Result] = Future()
        self._jobs.put(_Job(work=work, future=future))
        return future

    def may_try_again(self, result: Result) -> bool:
        killed = isinstance(result, Failure) and result.kind == "died" and KILLED in result.message
        if not killed or self._tried_again or self._closed.is_set():
            return False
        self._tried_again = True
        return True

    def close(self) -> None:
        self._jobs.put(None)
        if self.worker is not None:
            self.worker.close()

    def run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._settle(job)
        if self.worker is not None:
            self.worker.close()

    def _settle(self, job: _Job) -> None:
        """Do the work on a free core; whatever goes wrong ends in the future, never in this thread."""
        with self._cores:
            if self._closed.is_set():
                job.future.cancel()
                return
            # Until it calls the worker, a job takes its record's lock, which another run may hold.
            self._is(WAITING)
            try:
                job.future.set_result(job.work(self._call))
            except BaseException as error:
                job.future.set_exception(error)
            self.busy = None

    def _is(self, what: str) -> None:
        self.busy = Busy(label=self._engine.label, what=what, since=time.monotonic())

    def _prepare(self) -> Result:
        self._starts += 1
        if self.worker is not None:
            self.worker.close()
        try:
            self.worker = Worker(self._engine.launch, self._engine.packages)
        except OSError as error:
            message = f"{self._engine.launch.command[0]} cannot be started: {error.strerror or error}"
            return Failure(kind="died", type="", message=message, traceback="", log="")
        params = {**self._engine.prepare_params, "overlays": list(self._engine.overlays)}
        return self.worker.call(self._engine.prepare, params, fork=False, timeout=START_SECONDS)

    def _call(self, function: str, params: Mapping[str, Any]) -> Result:
        """Make a call; a worker that has not begun is started first, one that ended again, a few times in a run."""
        if self._closed.is_set():
            return Failure(kind="interrupted", type="", message="the run ended", traceback="", log="")
        if self._engine.spawns:
            return self._call_alone(function, params)
        if self.worker is None or not self.worker.alive:
            if self._starts > RESTARTS:
                return self._given_up
            if isinstance(self.prepared, Failure) and self.prepared.kind == "exception":
                return self.prepared
            self._is("starting")
            self.prepared = self._kept(_at_start(self._prepare()))
        if isinstance(self.prepared, Failure):
            return self.prepared
        assert self.worker is not None
        self._is("running")
        return self._kept(self.worker.call(function, params, timeout=self._call_seconds))

    def _kept(self, result: Result) -> Result:
        """Keep how the worker ended last, for those who ask after it was given up."""
        if isinstance(result, Failure) and result.kind == "died" and self.worker is not None and not self.worker.alive:
            self._given_up = replace(result, message=f"{TOO_OFTEN}: {result.message}")
        return result

    def _call_alone(self, function: str, params: Mapping[str, Any]) -> Result:
        """Make a call in a worker of its own, which ends with it; what cannot be imported is not tried again."""
        if isinstance(self.prepared, Failure) and self.prepared.kind == "exception":
            return self.prepared
        self._is("starting")
        self.prepared = _at_start(self._prepare())
        if isinstance(self.prepared, Failure):
            return self.prepared
        assert self.worker is not None
        self._is("running")
        try:
            result = self.worker.call(function, params, fork=False, timeout=self._call_seconds)
            said = self.worker.log_tail() if isinstance(result, Failure) else ""
        finally:
            self.worker.close()
        return replace(result, log=result.log or said) if isinstance(result, Failure) else result


def _at_start(result: Result) -> Result:
    return replace(result, at_start=True) if isinstance(result, Failure) else result
