"""What the stories of workers call: sent to a worker as source, run there with the standard library alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Return which process was prepared."""
    return {"pid": os.getpid()}


def prepare_badly(params: dict[str, Any]) -> dict[str, Any]:
    """Fail as an import does."""
    raise ImportError("no such engine")


def add(params: dict[str, Any]) -> int:
    """Return a sum."""
    total: int = params["a"] + params["b"]
    return total


def pids(params: dict[str, Any]) -> list[int]:
    """Return the worker's process id and the child's own."""
    return [os.getppid(), os.getpid()]


def fail(params: dict[str, Any]) -> None:
    """Raise after saying something."""
    print("loading weights")
    raise ValueError("the weights are odd")


def crash(params: dict[str, Any]) -> None:
    """End as a segmentation fault does."""
    print("about to crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(params: dict[str, Any]) -> None:
    """Exit without an answer."""
    os._exit(3)


def kill_worker(params: dict[str, Any]) -> None:
    """End the worker from within its child."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def nap(params: dict[str, Any]) -> list[float]:
    """Sleep, and return when that began and ended."""
    begun = time.monotonic()
    time.sleep(params["seconds"])
    return [begun, time.monotonic()]


def shout(params: dict[str, Any]) -> str:
    """Print megabytes to both streams, as an engine with its debug log on does."""
    line = "x" * 1023 + "\n"
    for _ in range(params["megabytes"] * 512):
        sys.stdout.write(line)
        os.write(2, line.encode())
    print("the last line")
    return "done"


def echo(params: dict[str, Any]) -> str:
    """Return as much as was asked for."""
    return "y" * int(params["bytes"])


def unserializable(params: dict[str, Any]) -> object:
    """Return what no JSON holds."""
    return object()


def close_everything(params: dict[str, Any]) -> str:
    """Close all descriptors, as a daemon does when it starts."""
    os.closerange(0, 256)
    return "unheard"


def leave_a_process(params: dict[str, Any]) -> int:
    """Return while a forked process of one's own still holds every descriptor."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def crash_beside_a_process(params: dict[str, Any]) -> None:
    """Crash while a forked process of one's own still holds every descriptor."""
    leave_a_process(params)
    os.kill(os.getpid(), signal.SIGKILL)


def leave_programs(params: dict[str, Any]) -> list[int]:
    """Return while two programs run on: one beside this process, one that made itself a session of its own."""
    plain = subprocess.Popen(["sleep", "60"])
    return [plain.pid, subprocess.Popen(["sleep", "60"], start_new_session=True).pid]


def prepare_with_programs(params: dict[str, Any]) -> dict[str, Any]:
    """Start what an engine's import may start, and say what that is."""
    return {"pids": leave_programs(params)}


def hang_with_programs(params: dict[str, Any]) -> None:
    """Start programs, write down who is there, and sleep."""
    _write_down(params["file"], [os.getppid(), os.getpid(), *leave_programs(params)])
    time.sleep(60)


def read_input(params: dict[str, Any]) -> str:
    """Read standard input, which is none of the host's requests."""
    return sys.stdin.read()


def hang(params: dict[str, Any]) -> None:
    """Write down who is there, the worker and its child, then sleep."""
    _write_down(params["file"], [os.getppid(), os.getpid()])
    time.sleep(60)


def _write_down(file: str, everyone: list[int]) -> None:
    there = Path(file)
    there.with_suffix(".part").write_text(json.dumps(everyone))
    there.with_suffix(".part").rename(there)
