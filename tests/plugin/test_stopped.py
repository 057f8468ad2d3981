"""An item that is stopped from outside, or run again, leaves the others as they are."""

from __future__ import annotations

import re

from .conftest import CAPTURE, CONSUMER, MAIN, Repository, has_our_traceback

# What pytest-timeout does with its method `signal`: an alarm fails whatever the main thread is at.
ALARM = """
import signal
import pytest

def stop(number, frame):
    pytest.fail("Timeout (>1.0s) from a conftest")

@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
"""
AGAIN = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    try:
        return (yield)
    except Exception:
        item.setup()
"""


def test_a_stopped_wait_ends_what_was_waited_for_and_nothing_else(repository: Repository) -> None:
    """The item that waited says so, without a trace of ours; what hung is ended and told, and the others pass."""
    repository.write("conftest.py", ALARM)
    repository.write_faulty("hang")
    result = repository.run("contracts/toy/faulty.yaml", MAIN)
    result.assert_outcomes(passed=6, errors=1)
    text = result.stdout.str()
    assert re.search(
        r"(?m)^error\(interrupted\): Timeout \(>1.0s\) from a conftest; still running toy-1 \(\d s\)$", text
    )
    assert not has_our_traceback(text)
    assert repository.starts() == 2


def test_what_hung_is_told_also_where_another_item_waited(repository: Repository) -> None:
    """The item that waited behind it is stopped; the one that hung says why it was, at once; the rest is judged."""
    repository.write("conftest.py", ALARM)
    repository.write_faulty("hang")
    repository.write_stage()
    result = repository.run("-v", CONSUMER, "contracts/toy/faulty.yaml")
    text = result.stdout.str()
    assert (
        "\nerror(interrupted): running the subject gave no result: it was stopped, since an item that waited\n"
        "  for it was stopped from outside\n" in text
    )
    assert text.count("error(interrupted): Timeout (>1.0s) from a conftest; still running toy-1") == 1
    result.assert_outcomes(passed=3, errors=2)
    assert not has_our_traceback(text)


def test_a_rerun_asks_again_where_the_engine_gave_no_result(repository: Repository) -> None:
    """An engine that failed once passes when its item is run again; what was observed is not observed again."""
    repository.write("conftest.py", AGAIN)
    repository.write_faulty("flake")
    result = repository.run("--junitxml=junit.xml")
    result.assert_outcomes(passed=7)
    assert sorted(repository.noted()).count("observe [2, 4, 8]") == 3
    junit = (repository.root / "junit.xml").read_text()
    assert junit.count('<property name="contract" value="faulty" />') == 1


def test_a_violated_contract_without_controls_is_told_as_violated(repository: Repository) -> None:
    """With warnings as errors, the warning that a contract is unproven does not hide what is wrong with it."""
    repository.write(MAIN, CAPTURE.partition("must_catch")[0].replace("offset: 1", "offset: 0"))
    result = repository.run("-W", "error")
    result.assert_outcomes(failed=2)
    assert "unproven" not in result.stdout.str()
