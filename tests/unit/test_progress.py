"""What a person sees while an environment is built."""

from __future__ import annotations

import io
import time

import pytest

from eagle_contracts.workers.progress import Progress, duration, is_terminal

from .processes import timeless


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal one line is drawn over and over: a bar, the count, the time and what pip is at."""
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    progress = Progress(stream, terminal=True)
    progress.start("engine-1.0", 4, "installing 4 distributions")
    progress.update(3, "Collecting shared==1.0")
    progress.update(9, "Installing collected packages")
    progress.finish("built")
    assert timeless(stream.getvalue()).split("\r\x1b[2K") == [
        "",
        "engine-1.0  [........................] 0/4  T  installing 4 distributions",
        "engine-1.0  [##################......] 3/4  T  Collecting shared==1.0",
        "engine-1.0  [########################] 4/4  T  Installing collected packages",
        "engine-1.0: built in T\n",
    ]


def test_a_step_without_a_total_has_no_bar() -> None:
    """One big download has no parts to count: the time and pip's own line are what there is."""
    stream = io.StringIO()
    progress = Progress(stream, terminal=True)
    progress.start("base", None, "installing torch 2.13.0")
    progress.update(1, "Downloading torch-2.13.0.whl (200 MB)")
    progress.clear()
    assert timeless(stream.getvalue()).split("\r\x1b[2K") == [
        "",
        "base  T  installing torch 2.13.0",
        "base  T  Downloading torch-2.13.0.whl (200 MB)",
        "",
    ]


def test_off_a_terminal_a_long_step_says_now_and_then_how_far_it_is() -> None:
    """A log of a CI run shows that the build still goes on, in lines without control characters."""
    stream = io.StringIO()
    progress = Progress(stream, terminal=False, patience=0.05)
    progress.start("engine-1.0", 4, "installing 4 distributions")
    progress.update(1, "Collecting common==1.0")
    time.sleep(0.06)
    progress.update(3, "Collecting shared==1.0")
    progress.update(4, "Collecting engine==1.0")
    progress.finish("built")
    assert timeless(stream.getvalue()) == (
        "engine-1.0: installing 4 distributions\n"
        "engine-1.0: 3 of 4, T: Collecting shared==1.0\n"
        "engine-1.0: built in T\n"
    )


def test_a_terminal_that_cannot_draw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor's shell is a terminal called dumb."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert is_terminal(Terminal())


def test_durations_are_words() -> None:
    """Times are given as precisely as a person needs them."""
    assert [duration(span) for span in (0.26, 9.94, 41.2, 125)] == ["0.3 s", "9.9 s", "41 s", "2 min 5 s"]
