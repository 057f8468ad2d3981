"""Lines of a run beside pytest's own: on the terminal, outside capture, also from pytest-xdist's processes.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from typing import Any

import pytest

NOTES = "eagle_contracts_notes"
"""The key under which a process of pytest-xdist is told the file that its lines go to."""

_EVERY = 0.5


class News:
    """Says lines on the terminal; a process of pytest-xdist has none, and leaves them in a file for the one that has.

    A line goes through pytest's own reporter, which ends the line of dots that it is in and begins it again after.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        self._file: str | None = worker.get(NOTES)
        self._who = str(worker.get("workerid", ""))
        self._ended = threading.Event()
        self._reader: threading.Thread | None = None

    def say(self, sentence: str) -> None:
        """Write a line now."""
        if self._who:
            self._leave(f"contracts: {sentence} [{self._who}]")
        else:
            self._write(f"contracts: {sentence}")

    def follow(self, node: Any) -> None:
        """Tell a process of pytest-xdist where its lines go, and show them from now on."""
        if self._file is None:
            descriptor, self._file = tempfile.mkstemp(prefix="eagle_contracts_notes_")
            os.close(descriptor)
            self._reader = threading.Thread(target=self._read, name="eagle-contracts notes", daemon=True)
            self._reader.start()
        node.workerinput[NOTES] = self._file

    def close(self) -> None:
        """Show what is left, and take the file away."""
        if self._reader is not None and self._file is not None:
            self._ended.set()
            self._reader.join()
            self._reader = None
            with contextlib.suppress(OSError):
                os.unlink(self._file)

    def _leave(self, line: str) -> None:
        # A process on another machine has no such file: its lines are for nobody.
        if self._file is not None and os.path.exists(self._file):
            with contextlib.suppress(OSError), open(self._file, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def _read(self) -> None:
        assert self._file is not None
        with open(self._file, encoding="utf-8") as file:
            ended = False
            while not ended:
                ended = self._ended.wait(_EVERY)
                for line in file:
                    self._write(line.rstrip("\n"))

    def _write(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if terminal is None:
            return
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            terminal.ensure_newline()
            if self._config.get_terminal_writer().width_of_current_line:
                terminal.write("\n")  # dots that stand behind no file's name, as with -q and with pytest-xdist
            terminal.write_line(line)
