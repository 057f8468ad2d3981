"""The host's side of a worker: start it, send it calls, and end it, whatever happens on either side."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from eagle_contracts.workers.keeper import END_SECONDS, ending, stats

TAIL_BYTES = 4000
_SCRATCH = "eagle_contracts_worker_"
_ENDED = {
    "timeout": "no answer in time",
    "interrupted": "it was stopped, since an item that waited for it was stopped from outside",
}
_IN_THE_WAY = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS")
"""What would change a worker's imports."""
GRACE_SECONDS = 15.0
START_SECONDS = 180.0
CALL_SECONDS = 120.0

_BOOT = (
    "import os,sys\n"
    "n=b''\n"
    "while not n.endswith(b'\\n'):\n"
    "    c=os.read(0,1)\n"
    "    if not c: os._exit(0)\n"
    "    n+=c\n"
    "b=b''\n"
    "k,m=map(int,n.split())\n"
    "while len(b)<k:\n"
    "    c=os.read(0,k-len(b))\n"
    "    if not c: os._exit(0)\n"
    "    b+=c\n"
    "g={'__name__':'eagle_contracts_boot'}\n"
    "exec(compile(b,'<sent>/eagle_contracts/workers/bootstrap.py','exec'),g)\n"
    "g['main'](m)\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start an interpreter: its command line up to `-c`, and what to add to its environment."""

    command: tuple[str, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that gave no value: its kind (exception, timeout, interrupted, died), the exception, and the last lines.

    `at_start` tells that the worker was still being prepared, so that the call itself was never made.
    """

    kind: str
    type: str
    message: str
    traceback: str
    log: str
    at_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A call's value and the seconds it took in the worker."""

    value: Any
    seconds: float


class Worker:
    """One worker process; calls are made one at a time, from the thread that made the worker.

    The thread matters: Linux kills the worker when the *thread* that started it ends. The sources go out with the first
    call, under its guard: a command that never reads them must not hold up whoever started it.
    """

    def __init__(self, launch: Launch, packages: Sequence[str]) -> None:
        self._launch = launch
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the worker
        self._calls = 0
        self._ended: str | None = None
        self._scratch = scratch_folder()
        try:
            self._process = subprocess.Popen(
                [*launch.command, "-c", _BOOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**_clean_environ(), "TMPDIR": self._scratch, **launch.environ},
                start_new_session=True,
            )
        except OSError:
            self._log.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self._opening = _opening(launch, packages)

    @property
    def pid(self) -> int:
        """The process id of the worker's command, or of the keeper above the worker where that is Python itself."""
        return self._process.pid

    def call(
        self, function: str, params: Mapping[str, Any], *, fork: bool = True, timeout: float = CALL_SECONDS
    ) -> Answer | Failure:
        """Call `module:function` in the worker, in a forked child unless told otherwise."""
        self._calls += 1
        request = {"id": self._calls, "function": function, "params": params, "fork": fork, "timeout": timeout}
        opening, self._opening = self._opening, b""
        guard = threading.Timer(timeout + GRACE_SECONDS, self._kill_late)
        guard.daemon = True
        guard.start()
        try:
            sent = self._send(opening + json.dumps(request).encode() + b"\n")
            line = self._output.readline() if sent else b""
        finally:
            guard.cancel()
        if not line.endswith(b"\n"):
            return self._died()
        try:
            return _reply(json.loads(line))
        except (ValueError, TypeError, KeyError):
            return self._no_worker(line)

    @property
    def _output(self) -> Any:
        return self._process.stdout

    def _kill_late(self) -> None:
        self._ended = "timeout"
        self._stop()

    def interrupt(self) -> None:
        """End the worker in the middle of its call, which fails as `interrupted`; safe to call from any thread."""
        self._ended = "interrupted"
        self._stop()

    def _send(self, data: bytes) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            return False
        return True

    def _stop(self) -> int:
        """Ask the worker's keeper to end all below it, and kill it where it does not; return how the worker ended."""
        self._process.terminate()
        try:
            return self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _end(self) -> int:
        """End the worker and what is left of its session, such as a keeper below a command; return how it ended."""
        status = self._stop()
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + END_SECONDS
            while (left := session_members(self._process.pid)) and time.monotonic() < deadline:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                time.sleep(0.01)
        return status

    def _died(self) -> Failure:
        status = self._end()
        return Failure(
            kind=self._ended or "died",
            type="",
            message=_ENDED.get(self._ended or "", f"the worker ended by {ending(status)}"),
            traceback="",
            log=self.log_tail(),
        )

    def _no_worker(self, line: bytes) -> Failure:
        """Return the failure of a command that answers, but not as a worker does."""
        self._end()
        said = " ".join(line.decode(errors="replace").split())[:60]
        message = f"it answered '{said}', which is not what a worker answers"
        return Failure(kind="died", type="", message=message, traceback="", log=self.log_tail())

    @property
    def alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._process.poll() is None

    def log_tail(self) -> str:
        """Return the log's end; nothing where another thread has closed the worker meanwhile."""
        try:
            size = os.fstat(self._log.fileno()).st_size
            return os.pread(self._log.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")
        except (OSError, ValueError):
            return ""

    def close(self) -> None:
        """End the worker and all that it started at once; safe to call from any thread and more than once."""
        self._end()
        shutil.rmtree(self._scratch, ignore_errors=True)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except (OSError, ValueError):
                    continue


def session_members(leader: int) -> list[int]:
    """Return the processes that run in the session that a worker's command began."""
    return [pid for pid, fields in stats() if int(fields[3]) == leader and fields[0] not in "ZX"]


def scratch_folder() -> str:
    """Make a temporary folder for one worker, and remove those of processes that were killed."""
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{_SCRATCH}*"):
        pid = left.name.removeprefix(_SCRATCH).partition("_")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}_")


def _reply(reply: Mapping[str, Any]) -> Answer | Failure:
    if reply["ok"]:
        return Answer(value=reply["value"], seconds=reply["seconds"])
    return Failure(
        kind=reply["kind"],
        type=reply["type"],
        message=reply["message"],
        traceback=reply["traceback"],
        log=reply.get("log", ""),
    )


def _clean_environ() -> dict[str, str]:
    """Return this process's environment without what would change the worker's imports or measure an engine."""
    measured = ("COV_CORE_", "COVERAGE_PROCESS_")
    return {n: value for n, value in os.environ.items() if n not in _IN_THE_WAY and not n.startswith(measured)}


def _opening(launch: Launch, packages: Sequence[str]) -> bytes:
    """Return the first bytes on the pipe: two sizes, the bootstrap's text, the header."""
    modules = {name: source for package in packages for name, source in package_sources(package).items()}
    header = json.dumps({"parent": os.getpid(), "environ": dict(launch.environ), "modules": modules}).encode()
    boot = modules["eagle_contracts.workers.bootstrap"][1].encode()
    return f"{len(boot)} {len(header)}\n".encode() + boot + header


def package_sources(package: str) -> dict[str, tuple[bool, str]]:
    """Return every module of a pure Python package as (is a package, source), by its dotted name."""
    root = resources.files(package)
    out: dict[str, tuple[bool, str]] = {}
    for path in sorted(Path(str(root)).rglob("*.py")):
        parts = path.relative_to(Path(str(root))).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join([package, *(parts[:-1] if is_package else parts)])
        out[name] = (is_package, path.read_text(encoding="utf-8"))
    return out
