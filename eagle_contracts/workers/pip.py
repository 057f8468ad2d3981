"""Running pip: its progress while it works, its last words when it fails. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from eagle_contracts.spec.flow import clip

_LAST_LINES: Final = 12
_TICK: Final = 0.5
_GRACE: Final = 5.0
_COLUMNS: Final = 160
_COUNTED: Final = ("Collecting ", "Processing ", "Requirement already satisfied: ")
NO_ROOM: Final = "Free some space, then run the command again."
_CAUSES: Final = (
    (("No space left on device", "Errno 28", "Disk quota exceeded", "Errno 122"), "the disk is full", NO_ROOM),
    (
        ("DO NOT MATCH THE HASHES", "BadZipFile", "is invalid.", "has an invalid wheel", "IncompleteRead"),
        "a distribution was damaged on its way",
        "Run `python -m pip cache purge`, then the command again.",
    ),
    (
        ("CERTIFICATE_VERIFY_FAILED", "SSLError"),
        "the index's certificate is not trusted here",
        "Check the clock, the proxy and pip's own settings, then run the command again.",
    ),
    (
        ("is not a trusted or secure host",),
        "pip does not trust an index of plain http",
        "Name it by https, or trust it: PIP_TRUSTED_HOST=HOST.",
    ),
    (
        ("401 Client Error", "403 Client Error", "407 Proxy"),
        "the package index refused access",
        "Check the credentials in pip's own settings, then run the command again.",
    ),
    (
        (
            "NewConnectionError",
            "NameResolutionError",
            "ConnectTimeout",
            "ReadTimeout",
            "ProtocolError",
            "ProxyError",
            "Network is unreachable",
            "Failed to establish a new connection",
        ),
        "the package index could not be reached",
        "Check the network or pip's own settings, then run the command again.",
    ),
    (
        ("(from versions: none)",),
        "the index has no such name, or was not reached",
        "Check the network and the index in pip's own settings, then run the command again.",
    ),
    (
        ("No matching distribution found", "Could not find a version", "is not a supported wheel on this platform"),
        "the package index has no version that fits here",
        "This Python and platform need one: name an index that has it in pip's own settings, or change the lock.",
    ),
    (
        ("Permission denied", "Errno 13", "Read-only file system", "Errno 30"),
        "there is no permission to write there",
        "Make it writable, or give a base of your own: eagle-contracts env sync --base VENV",
    ),
    (
        ("No module named pip",),
        "its interpreter has no pip",
        "Run `python -m ensurepip` with it, or give another base: eagle-contracts env sync --base VENV",
    ),
)
_NO_NEWS: Final = ("Looking in ", "WARNING: Retrying")


class BuildError(Exception):
    """Why an environment could not be built, in sentences for its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip:
    """pip of one interpreter, for the environment `name`.

    `scratch` holds its temporary files, `keep` are descriptors that outlive us with it.
    """

    name: str
    python: Path
    scratch: Path
    keep: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def install(self, arguments: Sequence[str], tell: Callable[[int, str], None]) -> None:
        """Run `pip install`, calling `tell` twice a second at least.

        `tell` gets the number of distributions met so far and pip's last line.
        Raises BuildError with the likely cause, what to do, and pip's last lines.
        """
        met, line = 0, ""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        with self._running(["install", "--progress-bar", "off", *arguments]) as (process, lines):
            for text in lines:
                if text is not None:
                    line = text.strip()
                    last.append(line)
                    met += line.startswith(_COUNTED)
                tell(met, line)
            if process.wait() != 0:
                raise BuildError(_failure(self.name, list(last)))

    def look(self, requirement: str, index: str | None) -> tuple[str, ...]:
        """What the wheel that pip would choose for `requirement` depends on; nothing is installed.

        Raises BuildError.
        """
        report = self.scratch / "report.json"
        choice = ["--dry-run", "--no-deps", "--ignore-installed", "--report", str(report), *index_options(index)]
        self.install([*choice, requirement], lambda met, line: None)
        data: Any = json.loads(report.read_text(encoding="utf-8"))
        return tuple(data["install"][0]["metadata"].get("requires_dist", ()))

    @contextmanager
    def _running(self, arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], Iterator[str | None]]]:
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"}
        process = subprocess.Popen(
            [str(self.python), "-I", "-m", "pip", "--no-color", *arguments],
            env={**self.environ, **quiet, **_one_retry(self.environ), "TMPDIR": str(self.scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=self.keep,
            start_new_session=True,
        )
        try:
            yield process, _lines_of(process)
        finally:
            _end(process)


def index_options(index: str | None) -> list[str]:
    """pip's options for an index of one's own; none means pip's own settings."""
    return ["--index-url", index] if index else []


def _one_retry(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return what lets pip try once more: without any retry it does not say that an index cannot be reached."""
    return {"PIP_RETRIES": "1"} if environ.get("PIP_RETRIES", "").strip() == "0" else {}


def _end(process: subprocess.Popen[str]) -> None:
    """End pip and all that it started, such as the build of a source distribution: asked first, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE)
            if not _group_runs(process.pid):
                return


def _group_runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _lines_of(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """pip's lines as they come, and None each time half a second brings none."""
    assert process.stdout is not None
    arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process.stdout, arrived), daemon=True)
    reader.start()
    while True:
        try:
            line = arrived.get(timeout=_TICK)
        except queue.Empty:
            yield None
            continue
        if line is None:
            reader.join()
            return
        yield line


def _read(stream: IO[str], arrived: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            arrived.put(line)
    arrived.put(None)


def _failure(name: str, last: Sequence[str]) -> str:
    text = "\n".join(last)
    causes = ((what, advice) for signs, what, advice in _CAUSES if any(sign in text for sign in signs))
    what, advice = next(causes, ("pip failed", ""))
    said = [f"  {clip(line, _COLUMNS)}" for line in last if line and not line.startswith(_NO_NEWS)]
    head = [f"{name} was not built: {what}.", *([advice] if advice else [])]
    return "\n".join([*head, *(["pip's last lines:"] if said else ["pip said nothing."]), *said])
