"""However a run ends, no worker is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from eagle_contracts.workers.keeper import descendants

from ..unit.processes import survivors, until
from .conftest import Repository


@pytest.mark.parametrize(
    ("number", "flags"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGINT, ("-n", "1")),
        (signal.SIGKILL, ("-n", "1")),
    ],
)
def test_a_run_stopped_in_mid_observation_leaves_no_process(
    repository: Repository, number: signal.Signals, flags: tuple[str, ...]
) -> None:
    """Ctrl-C, a termination and `kill -9` of pytest end its workers, what they forked and programs that ran there."""
    repository.write_faulty("programs")
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--contracts", "contracts/toy/faulty.yaml", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert until(lambda: "apart" in repository.noted())
        everyone = {*descendants(run.pid), *repository.pids()}
        os.kill(run.pid, number)
        output, _ = run.communicate(timeout=20)
    finally:
        run.kill()
    assert survivors(everyone) == []
    assert run.returncode == (2 if number is signal.SIGINT else -number)
    assert ("KeyboardInterrupt" in output) is (number is signal.SIGINT)


def test_a_finished_run_leaves_no_process(repository: Repository) -> None:
    """After the last item all workers have ended, with failures too."""
    repository.write_faulty("die")
    repository.run().assert_outcomes(passed=6, errors=1)
    assert repository.starts() == 1
    assert survivors(repository.pids(), seconds=1) == []
