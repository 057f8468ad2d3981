"""A small process above a worker: when the host or the worker ends, however that happens, so does all below it.

A program that an engine or a stage started need not end with it: one with a session of its own is in no process group
that could be ended, and nothing tells it of the end of its parent. Linux hands such orphans to the nearest *subreaper*
above them, which this process is; and it imports no engine, so a system short of memory takes the worker first.
Runs on Python 3.10 and newer with the standard library alone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Set

END_SECONDS = 5.0
_PAUSE = 0.005
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36


def keep(host: int) -> None:
    """Fork, and return in the worker; this process stays above it and never returns."""
    if not sys.platform.startswith("linux"):
        return
    adopt_orphans()
    end_with(host, signal.SIGTERM)
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        _leave_as(_watch(worker))
    end_with(keeper)
    adopt_orphans()


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Let Linux send this process a signal when its parent ends; a parent on another machine's side is left alone."""
    if not sys.platform.startswith("linux") or os.getppid() != parent:
        return
    _prctl(_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    if sys.platform.startswith("linux"):
        _prctl(_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(ancestor: int) -> set[int]:
    """Return every process below this one, those that have ended and were not waited for included."""
    children: dict[int, list[int]] = {}
    for pid, status in stats():
        children.setdefault(int(status[1]), []).append(pid)
    found: set[int] = set()
    new = [ancestor]
    while new:
        new = [child for pid in new for child in children.get(pid, []) if child not in found]
        found.update(new)
    return found


def stats() -> list[tuple[int, list[str]]]:
    """Return all processes that are seen from here, with the fields of their status from `state` on."""
    out = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    out.append((int(name), file.read().rpartition(")")[2].split()))
            except OSError:
                continue
    return [(pid, fields) for pid, fields in out if len(fields) > 3]


def end_descendants(but: Set[int] = frozenset()) -> None:
    """Kill what is below this process, again while that shows new orphans; `but` names those that live on."""
    deadline = time.monotonic() + END_SECONDS
    while (found := descendants(os.getpid()) - but) and time.monotonic() < deadline:
        for pid in found:
            _kill(pid)
            _collect(pid)
        time.sleep(_PAUSE)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _collect(pid: int) -> None:
    """Let a child that has ended go; what is no child of this process is waited for by its own parent."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def ending(code: int) -> str:
    """Say how a process ended: `exit status 3`, or `signal 9 (SIGKILL)` for a code of -9."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def _watch(worker: int) -> int:
    """Wait until the worker has ended, or the host has or asks for the end; end all below; return how the worker ended.

    The host holds the other end of standard input, which says that it is gone where no signal can: from a container.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _noted)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    poll = select.poll()
    poll.register(0, 0)
    poll.register(reader, select.POLLIN)
    status, stopped = _status(worker), False
    while status is None and not stopped:
        ready = {descriptor for descriptor, _ in poll.poll()}
        told = os.read(reader, 512) if reader in ready else b""
        stopped = 0 in ready or signal.SIGTERM in told
        status = _status(worker)
    if status is None:
        _kill(worker)
        _, status = os.waitpid(worker, 0)
    end_descendants()
    return status


def _noted(number: int, frame: object) -> None:
    """Let a signal wake the wait and do nothing else."""


def _status(worker: int) -> int | None:
    """Let every child that has ended go; return how the worker ended, if it has."""
    found = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == worker else found
    except ChildProcessError:
        pass
    return found


def _leave_as(status: int) -> None:
    """End as the worker did, so that the host learns that."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
