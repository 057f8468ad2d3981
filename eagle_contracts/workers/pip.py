"""Running pip: its progress while it works, its last words when it fails. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

_LAST_LINES: Final = 12
_TICK: Final = 0.5
_COUNTED: Final = ("Collecting ", "Processing ", "Requirement already satisfied: ")
_CAUSES: Final = (
    (("No space left on device", "Errno 28"), "The disk is full: free some space, then run the command again."),
    (
        ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ReadTimeout", "Network is unreachable"),
        "The package index could not be reached: check the network or pip's own settings, then run the command again.",
    ),
    (
        ("No matching distribution found", "Could not find a version"),
        "The package index has no such version for this Python and platform.",
    ),
    (("No module named pip",), "This interpreter has no pip: run `python -m ensurepip` with it, or give another base."),
)


class BuildError(Exception):
    """Why an environment could not be built, in sentences for its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip:
    """pip of one interpreter; `scratch` holds its temporary files, `keep` are descriptors that outlive us with it."""

    python: Path
    scratch: Path
    keep: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def install(self, arguments: Sequence[str], tell: Callable[[int, str], None]) -> None:
        """Run `pip install`, calling `tell` twice a second at least.

        `tell` gets the number of distributions met so far and pip's last line.
        Raises BuildError with pip's last lines and a sentence.
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
                raise BuildError(_failure(list(last)))

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
            env={**self.environ, **quiet, "TMPDIR": str(self.scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=self.keep,
        )
        try:
            yield process, _lines_of(process)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()


def index_options(index: str | None) -> list[str]:
    """pip's options for an index of one's own; none means pip's own settings."""
    return ["--index-url", index] if index else []


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


def _failure(last: Sequence[str]) -> str:
    text = "\n".join(last)
    advice = next((advice for signs, advice in _CAUSES if any(sign in text for sign in signs)), None)
    said = "\n".join(f"  {line}" for line in last if line)
    return f"pip failed. Its last lines:\n{said}" + (f"\n{advice}" if advice else "")
