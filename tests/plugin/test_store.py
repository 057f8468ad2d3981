"""What was observed once is read afterwards, until something that it follows from changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ..unit.processes import survivors, until
from .conftest import CONSUMER, DRAFT, FOLDER, HOME, MAIN, STAGE_FILE, Repository, has_our_traceback

PIPELINE = f"{FOLDER}/pipeline.yaml"
OVERLAY = """\
PARAMS = {}
EDITS = [{"module": "toy_core", "versions": "==1.0", "anchor": "SHIFT = 0", "replacement": "SHIFT = 0  # NOTE"}]
"""
OF_TOY_2 = ["gate", "observe [2, 4, 8]", "observe [3, 5, 9]", "start"]
EVERYTHING = sorted([*OF_TOY_2, *OF_TOY_2, "observe [-1, 2, 4]", "observe [1, 3, 7]"])


@pytest.fixture
def built(repository: Repository) -> Repository:
    """The repository with two environments that were built, each with sources of its own."""
    repository.build("toy-1", "toy-2")
    return repository


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a run without waiting for it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:anyio", "-p", "no:hypothesispytest", "--contracts", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_second_run_starts_no_engine(built: Repository) -> None:
    """Everything is read from the store, and the verdicts are the same, evidence and advice included."""
    built.edit(MAIN, {"as: embedding_in_slot": "as: permuted"})
    first = built.run()
    first.assert_outcomes(passed=5, failed=1)
    assert built.news() == EVERYTHING
    assert "contracts: starting toy-1, toy-2 (an import takes several seconds)" in first.outlines
    second = built.run()
    second.assert_outcomes(passed=5, failed=1)
    assert built.news() == []
    assert "contracts: starting" not in second.stdout.str()
    failures = [result.stdout.str().partition("= FAILURES =")[2].partition("= short")[0] for result in (first, second)]
    assert failures[0] and failures[0] == failures[1]


def test_what_is_selected_later_is_added(built: Repository) -> None:
    """A run of one item leaves its observation to a run of all."""
    built.run(f"{MAIN}::slots[toy-1]").assert_outcomes(passed=1)
    assert built.news() == ["gate", "observe [2, 4, 8]", "start"]
    built.run("-k", "toy-1").assert_outcomes(passed=4, deselected=2)
    assert built.news() == ["observe [-1, 2, 4]", "observe [1, 3, 7]", "observe [3, 5, 9]", "start"]


def test_a_changed_engine_is_observed_again(built: Repository) -> None:
    """Sources that changed in one environment leave the other's observations as they are.

    They are longer, since Python knows bytecode by a source's second and size.
    """
    built.run().assert_outcomes(passed=6)
    built.news()
    built.write(
        f"{HOME}/env/toy-2/site/toy_core.py",
        "SHIFT = 1  # as long as the other it would pass for it in a cache of bytecode\n",
    )
    built.run().assert_outcomes(passed=4, failed=2)
    assert [entry for entry in built.news() if entry in OF_TOY_2] == OF_TOY_2


def test_a_changed_overlay_is_observed_again(built: Repository) -> None:
    """An overlay changes its own environment alone, and one that was seen before is not run again."""
    built.edit(PIPELINE, {"like: toy-1}": "like: toy-1, overlay: more.py}"})
    built.write(f"{FOLDER}/more.py", OVERLAY)
    built.run().assert_outcomes(passed=6)
    built.news()
    built.edit(f"{FOLDER}/more.py", {"NOTE": "another note"})
    built.run().assert_outcomes(passed=6)
    assert built.news() == OF_TOY_2
    built.write(f"{FOLDER}/more.py", OVERLAY)
    built.run().assert_outcomes(passed=6)
    assert built.news() == []


def test_a_changed_draft_config_is_observed_again(built: Repository) -> None:
    """New ids are run, where they are read; the control that names its own ids is not, and what reads them is."""
    built.write_stage()
    built.run().assert_outcomes(passed=10)
    built.news()
    built.write(f"{FOLDER}/draft.config.json", DRAFT.replace("[2, 4, 8]", "[4, 2, 8]"))
    built.run().assert_outcomes(passed=10)
    assert Counter(built.news()) == {
        "start": 2,
        "observe [4, 2, 8]": 2,
        "observe [5, 3, 9]": 2,
        "observe [3, 1, 7]": 1,
        "stage": 2,
        "stage ['slot_0', 'slot_1']": 2,
    }


def test_a_changed_variable_of_the_engine_is_observed_again(built: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers inherit what engines read from the environment, so it is part of what was observed, and is shown."""
    built.run().assert_outcomes(passed=6)
    built.news()
    monkeypatch.setenv("TOY_ALLOW", "1")
    built.edit(MAIN, {"offset: 1": "offset: 0"})
    text = built.run().stdout.str()
    assert "TOY_ALLOW  1  this process's environment" in text
    assert "observe [2, 4, 8]" in built.news()
    monkeypatch.setenv("OTHER_ALLOW", "1")
    built.run()
    assert built.news() == []


def test_what_nobody_reads_of_a_draft_config_changes_nothing(built: Repository) -> None:
    """The twin is the target's: a draft's config is part of what is observed only where a subject reads it."""
    built.run().assert_outcomes(passed=6)
    built.news()
    built.edit(f"{FOLDER}/draft.config.json", {'"num_hidden_layers": 1': '"num_hidden_layers": 2'})
    built.run().assert_outcomes(passed=6)
    assert built.news() == []


def test_a_changed_stage_is_observed_again(built: Repository) -> None:
    """Of a stage that changed, only the stage is run; what it reads is there."""
    built.write_stage()
    built.run().assert_outcomes(passed=10)
    built.news()
    built.write(STAGE_FILE, "def arrange(slots):\n    return slots[::-1]\n")
    built.run().assert_outcomes(passed=8, failed=2)
    assert Counter(built.news()) == {"start": 2, "stage": 2, "stage ['slot_0', 'slot_1']": 2}


def test_a_changed_target_is_observed_again(built: Repository) -> None:
    """Another target is another twin: everything is run again, the comparison with the reference too."""
    built.run().assert_outcomes(passed=6)
    built.news()
    built.edit(f"{FOLDER}/target.config.json", {'"model_type": "toy"': '"model_type": "toy", "rope_theta": 5.0'})
    built.run().assert_outcomes(passed=6)
    assert built.news() == EVERYTHING


def test_fresh_observes_everything_again_once(built: Repository) -> None:
    """`--contracts-fresh` reads nothing of earlier runs, asks for each thing once, and what it made is read later."""
    built.write_stage()
    built.run().assert_outcomes(passed=10)
    everything = built.news()
    built.run("--contracts-fresh").assert_outcomes(passed=10)
    assert built.news() == everything
    built.run().assert_outcomes(passed=10)
    assert built.news() == []


def test_fresh_needs_the_flag(repository: Repository) -> None:
    """`--contracts-fresh` in a plain run would do nothing, so it is refused."""
    result = repository.run_plain("--contracts-fresh")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--contracts-fresh changes a contracts run: give --contracts too"])


@pytest.mark.parametrize("flags", [(), ("--contracts-fresh",)], ids=["empty", "fresh"])
def test_processes_of_one_run_share_the_store(built: Repository, flags: tuple[str, ...]) -> None:
    """With pytest-xdist each thing is observed once, by whichever process comes first."""
    built.write_stage()
    if flags:
        built.run().assert_outcomes(passed=10)
        built.news()
    built.run("-n", "2", *flags).assert_outcomes(passed=10)
    seen = Counter(entry for entry in built.news() if entry != "start")
    assert set(seen) == {*EVERYTHING, "stage", "stage ['slot_0', 'slot_1']"} - {"start"}
    assert sum(seen.values()) == 12
    assert not [name for name in built.records() if name.startswith(".")]


def test_two_runs_at_once_share_the_store(built: Repository) -> None:
    """Runs that start together observe each thing once, what reads it too."""
    built.write_stage()
    runs = [start("-q"), start("-q")]
    for run in runs:
        output, _ = run.communicate(timeout=60)
        assert (run.returncode, "10 passed" in output) == (0, True), output
    seen = Counter(entry for entry in built.news() if entry != "start")
    once = Counter(entry for entry in EVERYTHING if entry != "start")
    assert seen == once + Counter({"stage": 2, "stage ['slot_0', 'slot_1']": 2})
    assert not [name for name in built.records() if name.startswith(".")]


def test_a_run_that_waits_for_another_is_stopped_at_once(built: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C of the run that waits ends it, and leaves the other's observation alone."""
    built.write_faulty("nap")
    only = f"{FOLDER}/faulty.yaml"
    monkeypatch.setenv("NAP_OF_TOY", "6")
    first = start(only)
    assert until(lambda: "observe [2, 4, 8]" in built.noted())
    second = start(only)
    assert until(lambda: _waits_for_a_lock(second.pid))
    began = time.monotonic()
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=20)
    assert (second.returncode, time.monotonic() - began < 4) == (2, True)
    output, _ = first.communicate(timeout=60)
    assert "1 passed" in output
    assert built.news() == ["gate", "observe [2, 4, 8]", "start"]


def _waits_for_a_lock(pid: int) -> bool:
    return any(f" {pid} " in line and "->" in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_run_killed_in_mid_observation_leaves_no_record(built: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `kill -9` the store holds nothing that looks whole, and the next run observes and tidies up."""
    built.write_faulty("nap")
    only = f"{FOLDER}/faulty.yaml"
    monkeypatch.setenv("NAP_OF_TOY", "300")
    run = start(only)
    assert until(lambda: "observe [2, 4, 8]" in built.noted())
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=20)
    assert survivors(built.pids()) == []
    left = [name for name in built.records() if not (built.root / HOME / "store" / name / "record.json").exists()]
    assert [name.startswith(f".making.{run.pid}.") for name in left] == [True]
    monkeypatch.setenv("NAP_OF_TOY", "0")
    built.news()
    built.run(only).assert_outcomes(passed=1, warnings=1)
    assert built.news() == ["observe [2, 4, 8]", "start"]
    assert not [name for name in built.records() if name.startswith(".")]


@pytest.mark.parametrize("act", ["full", "full_in_worker"])
def test_a_full_disk_is_an_error_in_words(built: Repository, act: str) -> None:
    """Where the disk does not take an observation, its item says so, nothing half is kept, and the others still run."""
    built.write_faulty(act)
    before = built.run("-k", "not faulty")
    before.assert_outcomes(passed=6, deselected=1)
    records = built.records()
    result = built.run()
    result.assert_outcomes(passed=6, errors=1)
    text = " ".join(result.stdout.str().split())
    assert (
        f"error(store): running the subject gave no result: OSError: No space left on device ({built.root}/{HOME}/store"
        in text
    )
    assert not has_our_traceback(result.stdout.str())
    assert built.records() == records
    built.news()
    built.run(f"{FOLDER}/faulty.yaml").assert_outcomes(errors=1)
    assert "observe [2, 4, 8]" in built.news()


def test_a_store_that_cannot_be_written_is_an_error_in_words(built: Repository) -> None:
    """Where a file stands in the store's place, every item that needs it says so."""
    built.write(f"{HOME}/store", "in the way\n")
    result = built.run("-k", "slots and toy-1")
    result.assert_outcomes(errors=1, deselected=5)
    text = " ".join(result.stdout.str().split())
    assert f"FileExistsError: File exists ({built.root}/{HOME}/store)" in text
    assert "error(store): " in text
    assert not has_our_traceback(result.stdout.str())


def test_a_damaged_record_is_made_again(built: Repository) -> None:
    """A record that was cut off is no record."""
    built.run(f"{MAIN}::slots[toy-1]").assert_outcomes(passed=1)
    built.news()
    for file in (built.root / HOME / "store").glob("*/record.json"):
        file.write_text(file.read_text()[:40])
    built.run(f"{MAIN}::slots[toy-1]").assert_outcomes(passed=1)
    assert built.news() == ["gate", "observe [2, 4, 8]", "start"]


def test_an_interpreter_whose_sources_are_not_seen_is_asked_again(repository: Repository) -> None:
    """What a user's own interpreter gives is kept for the run alone: nobody can tell whether its engine changed."""
    repository.write_stage()
    repository.run().assert_outcomes(passed=10)
    first = repository.news()
    repository.run().assert_outcomes(passed=10)
    assert first == repository.news() != []
    assert repository.records() == []
    assert (repository.root / CONSUMER).is_file()
