"""The request loop inside a worker process: import an engine once, fork a child for every observation.

Engine objects are not reusable: a second `ModelRunner` in one process dies or accumulates capture flags (seen on SGLang
0.5.9 and 0.5.23). A forked child starts from the imported engine and ends with its observation.
Runs on Python 3.10 and newer with the standard library alone.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from eagle_contracts.workers.bootstrap import die_with_parent

LOG_TAIL_BYTES = 8000
POLL_SECONDS = 0.25
OWN_END_SECONDS = 1.0
PIPE_READS = 16
"""Reads that empty any pipe of the usual sizes, and end where something left behind goes on printing."""
ALMOST = 0.95
"""The part of its time limit after which a child prints where it is."""


class Requests:
    """Lines from the host, read without buffering ahead of `select`."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self._buffer = b""
        self.closed = False

    def fill(self) -> None:
        """Take what the pipe holds; an empty read means that the host is gone."""
        data = os.read(self.stream, 1 << 16)
        self.closed = not data
        self._buffer += data

    def next_line(self) -> bytes | None:
        """Return the next whole line, blocking; None when the host is gone."""
        while b"\n" not in self._buffer:
            if self.closed:
                return None
            self.fill()
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line


def serve() -> None:
    """Answer requests until the host closes the pipe.

    The protocol's own descriptors are set aside before any engine is imported: whatever an engine prints goes to
    standard error, and nothing an engine reads can eat a request.
    """
    requests = Requests(os.dup(0))
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    while (line := requests.next_line()) is not None:
        request = json.loads(line)
        begun = time.monotonic()
        reply = _in_child(request, requests, replies) if request["fork"] else _here(request)
        reply |= {"id": request["id"], "seconds": time.monotonic() - begun}
        _send(replies, reply)
    os._exit(0)


def _send(replies: BinaryIO, reply: dict[str, Any]) -> None:
    try:
        replies.write(_encoded(reply) + b"\n")
    except BrokenPipeError:
        os._exit(0)


def _encoded(reply: dict[str, Any]) -> bytes:
    """Return a reply as JSON; a value that no JSON holds is the called function's mistake, and told as such."""
    try:
        return json.dumps(reply).encode()
    except (TypeError, ValueError) as error:
        return json.dumps(_failure(error)).encode()


def _function(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    return found


def _here(request: dict[str, Any]) -> dict[str, Any]:
    """Run a call in this process: imports that every later child shares."""
    try:
        return {"ok": True, "value": _function(request["function"])(request["params"])}
    except BaseException as error:
        return _failure(error)


def _failure(error: BaseException) -> dict[str, Any]:
    return {
        "ok": False,
        "kind": "exception",
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def _in_child(request: dict[str, Any], requests: Requests, replies: BinaryIO) -> dict[str, Any]:
    """Fork, run, and wait for the child's answer, its end, the deadline, or the end of the host.

    The child closes the host's pipes: a process that it leaves behind must not keep them open.
    """
    reader, writer = os.pipe()
    log_reader, log_writer = os.pipe()
    log = _Log(log_reader)
    worker = os.getpid()
    pid = os.fork()
    if pid == 0:
        for descriptor in (reader, log.reader, requests.stream, replies.fileno()):
            os.close(descriptor)
        _child(request, writer, log_writer, worker)
    os.close(writer)
    os.close(log_writer)
    child = _Child(pid)
    try:
        answer, timed_out = _collect(reader, log, requests, child, request["timeout"])
        if not answer and not timed_out:
            child.let_end()
    finally:
        os.close(reader)
        _end_group(pid)
    status = child.wait()
    if requests.closed:
        os._exit(0)
    reply = _answer(answer, status, timed_out)
    reply["log"] = log.tail()
    return reply


class _Log:
    """The end of what a child prints, read while it runs: however much that is, none of it is kept on a disk."""

    def __init__(self, reader: int) -> None:
        self.reader = reader
        self.closed = False
        self._end = b""

    def fill(self) -> None:
        """Take what the pipe holds, up to its size; an empty read means that nobody holds its other end."""
        data = os.read(self.reader, 1 << 16)
        self.closed = not data
        self._end = (self._end + data)[-LOG_TAIL_BYTES:]

    def tail(self) -> str:
        """Return the last bytes as text, with what a child that was killed left in the pipe, and close it."""
        os.set_blocking(self.reader, False)
        try:
            for _ in range(PIPE_READS):
                if not self.closed:
                    self.fill()
        except BlockingIOError:
            pass
        os.close(self.reader)
        return self._end.decode(errors="replace")


class _Child:
    """A forked child's exit status, kept once it is known."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None

    def ended(self) -> bool:
        """Tell whether the child itself has ended, whatever still holds its pipe."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def let_end(self) -> None:
        """Give a child that closed its pipe without a word a moment to end by itself: its own status tells more."""
        deadline = time.monotonic() + OWN_END_SECONDS
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.01)

    def wait(self) -> int:
        """Wait for the end and return the status."""
        if self._status is None:
            _, self._status = os.waitpid(self._pid, 0)
        return self._status


def _child(request: dict[str, Any], writer: int, log: int, worker: int) -> None:
    """Run the call in its own process group, with its output in a file, and leave without clean-up handlers."""
    try:
        os.setpgid(0, 0)
        die_with_parent(worker)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        faulthandler.dump_traceback_later(request["timeout"] * ALMOST, file=2)
        reply = _encoded(_here(request))
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(writer, "wb") as answer:
            answer.write(reply)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _collect(reader: int, log: _Log, requests: Requests, child: _Child, timeout: float) -> tuple[bytes, bool]:
    """Read the child's answer to its end, and its log beside it; the second value tells that the deadline passed first.

    The end is that of the pipe, or that of the child where a process it started still holds the pipe.
    """
    parts: list[bytes] = []
    deadline = time.monotonic() + timeout
    while not requests.closed:
        left = deadline - time.monotonic()
        if left <= 0:
            return b"".join(parts), True
        ended = child.ended()
        readable = [reader, requests.stream, *([] if log.closed else [log.reader])]
        ready, _, _ = select.select(readable, [], [], 0 if ended else min(left, POLL_SECONDS))
        if log.reader in ready:
            log.fill()
        if ended and reader not in ready:
            break
        if requests.stream in ready:
            requests.fill()
        if reader in ready:
            part = os.read(reader, 1 << 16)
            if not part:
                break
            parts.append(part)
    return b"".join(parts), False


def _end_group(pid: int) -> None:
    """End whatever the child started, and the child itself where it still runs."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _answer(answer: bytes, status: int, timed_out: bool) -> dict[str, Any]:
    if timed_out:
        return {"ok": False, "kind": "timeout", "type": "", "message": "no answer in time", "traceback": ""}
    try:
        reply: dict[str, Any] = json.loads(answer)
    except ValueError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {os.WEXITSTATUS(status)}"
        return {"ok": False, "kind": "died", "type": "", "message": f"ended by {how}", "traceback": ""}
    return reply
