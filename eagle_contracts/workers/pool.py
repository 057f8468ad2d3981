"""All workers of a run: one per (environment, overlay), started when first needed, busy on at most one core each."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from eagle_contracts.workers.client import START_SECONDS, Answer, Failure, Launch, Worker

RESTARTS = 3
Result = Answer | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker is made from: an interpreter, the function that imports the engine, and an overlay's text."""

    label: str
    launch: Launch
    packages: tuple[str, ...]
    prepare: str
    overlay: Mapping[str, Any] | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal keys share a worker."""
        overlay = tuple(sorted((k, repr(v)) for k, v in self.overlay.items())) if self.overlay else None
        return (self.launch.command, tuple(sorted(self.launch.environ.items())), self.packages, self.prepare, overlay)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    function: str
    params: Mapping[str, Any]
    future: Future[Result]


class Pool:
    """Workers by engine; calls of one worker run in order, calls of different workers side by side."""

    def __init__(self, cores: int | None = None) -> None:
        self._cores = threading.Semaphore(cores or len(os.sched_getaffinity(0)))
        self._threads: dict[tuple[object, ...], _EngineThread] = {}
        self._closed = threading.Event()

    def start(self, engine: Engine) -> Future[Result]:
        """Begin to import an engine, if that has not begun; the future holds what its `prepare` returned."""
        return self._thread(engine).prepared

    def submit(self, engine: Engine, function: str, params: Mapping[str, Any]) -> Future[Result]:
        """Queue a call in a forked child of the engine's worker."""
        return self._thread(engine).submit(function, params)

    def _thread(self, engine: Engine) -> _EngineThread:
        if engine.key not in self._threads:
            self._threads[engine.key] = _EngineThread(engine, self._cores, self._closed)
        return self._threads[engine.key]

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers that run now."""
        workers = [thread.worker for thread in self._threads.values()]
        return tuple(worker.pid for worker in workers if worker is not None and worker.alive)

    def close(self) -> None:
        """End every worker at once; calls still queued are cancelled."""
        self._closed.set()
        for thread in self._threads.values():
            thread.close()
        for thread in self._threads.values():
            thread.join(timeout=10)


class _EngineThread(threading.Thread):
    """Owns one worker for the whole run, since the worker ends with the thread that started it."""

    def __init__(self, engine: Engine, cores: threading.Semaphore, closed: threading.Event) -> None:
        super().__init__(name=f"eagle-contracts {engine.label}", daemon=True)
        self.worker: Worker | None = None
        self.prepared: Future[Result] = Future()
        self._engine, self._cores, self._closed = engine, cores, closed
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._starts = 0
        self.start()

    def submit(self, function: str, params: Mapping[str, Any]) -> Future[Result]:
        future: Future[Result] = Future()
        self._jobs.put(_Job(function=function, params=params, future=future))
        return future

    def close(self) -> None:
        self._jobs.put(None)
        if self.worker is not None:
            self.worker.close()

    def run(self) -> None:
        self._settle(self.prepared, self._prepare)
        while (job := self._jobs.get()) is not None:
            self._settle(job.future, lambda job=job: self._run(job))  # type: ignore[misc]
        if self.worker is not None:
            self.worker.close()

    def _settle(self, future: Future[Result], work: Callable[[], Result]) -> None:
        """Do the work on a free core; whatever goes wrong ends in the future, never in this thread."""
        with self._cores:
            if self._closed.is_set():
                future.cancel()
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

    def _prepare(self) -> Result:
        self._starts += 1
        if self.worker is not None:
            self.worker.close()
        try:
            self.worker = Worker(self._engine.launch, self._engine.packages)
        except OSError as error:
            return Failure(kind="died", type=type(error).__name__, message=str(error), traceback="", log="")
        params = {"overlay": self._engine.overlay}
        return self.worker.call(self._engine.prepare, params, fork=False, timeout=START_SECONDS)

    def _run(self, job: _Job) -> Result:
        """Make the call; a worker that ended is started again first, a few times in a run."""
        first = self.prepared.result()
        if isinstance(first, Failure):
            return first
        if self.worker is None or not self.worker.alive:
            if self._starts > RESTARTS:
                return Failure(kind="died", type="", message="the worker ended too often", traceback="", log="")
            if isinstance(again := self._prepare(), Failure):
                return again
        assert self.worker is not None
        return self.worker.call(job.function, job.params)
