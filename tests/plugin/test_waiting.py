"""A long wait says what is waited for, on lines of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from ..unit.processes import survivors, until
from .conftest import MAIN, Repository

IMPATIENT = "from eagle_contracts import waiting\n\nwaiting.PATIENCE = 0.3\n"


@pytest.fixture
def slow(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An engine whose import takes longer than the run's patience."""
    repository.write("conftest.py", IMPATIENT)
    monkeypatch.setenv("TOY_START_SECONDS", "1.2")
    return repository


def lines_of(result: pytest.RunResult, start: str) -> list[str]:
    """The lines that start so, with every number of seconds written as T."""
    return [re.sub(r"\d+ s\b", "T s", line) for line in result.outlines if line.startswith(start)]


@pytest.mark.parametrize("how", [(), ("-q",), ("-v",), ("-s",)], ids=["plain", "quiet", "verbose", "uncaptured"])
def test_an_engine_that_starts_slowly_is_named(slow: Repository, how: tuple[str, ...]) -> None:
    """The line stands between pytest's own, which are whole, whatever is captured."""
    result = slow.run(MAIN, *how)
    result.assert_outcomes(passed=6)
    said = lines_of(result, "contracts: ")
    assert said[0] == "contracts: starting toy-1, toy-2 (an import takes several seconds)"
    assert "contracts: still starting toy-1 (T s)" in said
    assert [line for line in result.outlines if "contracts: " in line and not line.startswith("contracts: ")] == []
    dots = re.findall(r"(?m)(?:^|\.yaml )(\.+)(?: |$)", result.stdout.str())
    assert "-v" in how or "".join(dots) == "......"


def test_a_quick_engine_is_not_spoken_of(repository: Repository) -> None:
    """Where nothing takes long, one line says which engines start."""
    result = repository.run(MAIN)
    assert lines_of(result, "contracts: ") == ["contracts: starting toy-1, toy-2 (an import takes several seconds)"]


def test_processes_of_xdist_are_heard_too(slow: Repository) -> None:
    """They have no terminal: what they wait for is shown by the one that has, with their names."""
    result = slow.run(MAIN, "-n", "2")
    result.assert_outcomes(passed=6)
    said = lines_of(result, "contracts: ")
    assert "contracts: starting toy-1, toy-2 (an import takes several seconds) [gw0]" in said
    assert any(re.fullmatch(r"contracts: still starting toy-\d \(T s\).* \[gw\d\]", line) for line in said)
    assert [line for line in result.outlines if "contracts: " in line and not line.startswith("contracts: ")] == []


def test_an_observation_that_takes_long_is_named(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has started, and one observation hangs: that is what is said."""
    repository.write("conftest.py", IMPATIENT)
    monkeypatch.setenv("NAP_OF_TOY", "2")
    repository.write_faulty("nap")
    result = repository.run("contracts/toy/faulty.yaml")
    assert "contracts: still running toy-1 (T s)" in lines_of(result, "contracts: ")


def test_without_a_terminal_nothing_is_said_and_nothing_fails(slow: Repository) -> None:
    """`-p no:terminal` leaves nobody to say it to."""
    assert slow.run(MAIN, "-p", "no:terminal").ret == 0


def test_ctrl_c_while_an_engine_starts_leaves_no_worker(slow: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest wait of a run is the one that people interrupt."""
    monkeypatch.setenv("TOY_START_SECONDS", "600")
    command = [sys.executable, "-m", "pytest", "--contracts", "-p", "no:cacheprovider", MAIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert until(lambda: len(slow.pids()) == 1)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=30)
    assert "KeyboardInterrupt" in said
    assert survivors(slow.pids()) == []
