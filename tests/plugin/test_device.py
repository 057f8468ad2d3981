"""Engines on a GPU, told with a `nvidia-smi` of the stories' own and an engine that needs none."""

from __future__ import annotations

import sys

import pytest

from .conftest import FOLDER, MAIN, Repository, has_our_traceback, shown

SMI = f"""\
#!{sys.executable}
import os
with open(os.environ["SMI_CALLS"], "a") as file:
    file.write("asked\\n")
print("0, GPU-11aa, Test GPU, 2048, 81920, 570.1")
print("1, GPU-22bb, Test GPU, FREE, 81920, 570.1")
print("2, GPU-33cc, MIG GPU, [N/A], [N/A], 570.1")
"""
HERE = 'here: {role: serve, engine: "toy>=1.0"}'
ALONE = f"{MAIN}::slots[toy-1,cuda]"


class Machine:
    """A machine with GPUs, or with none."""

    def __init__(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repository = repository
        self._monkeypatch = monkeypatch
        (repository.root / "bin").mkdir()
        monkeypatch.setenv("PATH", str(repository.root / "bin"))
        monkeypatch.setenv("SMI_CALLS", str(repository.root / "calls.txt"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def has_gpus(self, free: int = 71680) -> None:
        """Give it two GPUs, one with this many MiB free and one with 2048, and a third that does not say."""
        self.repository.write("bin/nvidia-smi", SMI.replace("FREE", str(free))).chmod(0o755)

    def hides(self, value: str) -> None:
        """Set CUDA_VISIBLE_DEVICES for pytest."""
        self._monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)

    def set(self, name: str, value: str) -> None:
        """Set a variable that the toy reads."""
        self._monkeypatch.setenv(name, value)


@pytest.fixture
def machine(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(repository, monkeypatch)


def test_a_missing_gpu_is_a_usage_error(machine: Machine) -> None:
    """Asked for by name, a GPU that is not there stops the run before anything starts, and says what to do."""
    advice = (
        "  Leave the option out to run on the CPU, or make a GPU visible to this process:\n"
        "  nvidia-smi must list it, and CUDA_VISIBLE_DEVICES must not hide it."
    )
    for kind in ("cuda", "cuda-reference"):
        result = machine.repository.run(f"--contracts-device={kind}")
        assert result.ret == 4
        told = f"--contracts-device={kind}: there is no GPU here that can be asked (no nvidia-smi)\n{advice}"
        assert told in shown(result)
    machine.has_gpus()
    machine.hides("")
    hidden = machine.repository.run("--contracts-device=cuda")
    assert (hidden.ret, "CUDA_VISIBLE_DEVICES= leaves no GPU" in shown(hidden)) == (4, True)
    assert machine.repository.noted() == []


def test_a_run_on_a_gpu_says_so_everywhere(machine: Machine) -> None:
    """The header, the ids, the evidence and the next command name the device; the GPU is that with most room."""
    machine.has_gpus()
    machine.repository.edit(MAIN, {"offset: 1": "offset: 0"})
    machine.repository.edit(f"{FOLDER}/pipeline.yaml", {"  toy-2: {role: serve, like: toy-1}\n": ""})
    result = machine.repository.run("--contracts-device=cuda", ALONE)
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "contracts: device cuda (asked for: Test GPU, 70.0 GiB free)" in result.outlines
    assert "engine     toy 1.0, ToyForCausalLM twin of 10 layers, 43 tokens, cuda" in result.outlines
    assert "pytest --contracts 'contracts/toy/sglang_capture_offset.yaml::slots[toy-1,cuda]'" in text
    assert "--contracts-device=cuda" in text.partition("then run:")[2]


def test_every_observation_on_a_gpu_has_a_process_of_its_own(machine: Machine) -> None:
    """A process that touched a GPU cannot be forked, so each observation starts an engine, on the one GPU chosen."""
    machine.has_gpus()
    machine.repository.run("--contracts-device=cuda").assert_outcomes(passed=6)
    noted = machine.repository.noted()
    observed = [entry for entry in noted if entry.startswith("observe") or entry == "gate"]
    assert noted.count("start") == noted.count("on cuda GPU-22bb") == len(observed) == 5
    assert len(set(machine.repository.pids())) == 5


def test_a_run_on_a_cpu_hides_gpus_from_engines(machine: Machine) -> None:
    """Without the option nothing asks for GPUs, and no engine finds one by itself."""
    machine.has_gpus()
    machine.hides("0,1")
    machine.set("TOY_TELLS", "CUDA_VISIBLE_DEVICES")
    result = machine.repository.run(MAIN)
    result.assert_outcomes(passed=6)
    assert "sees GPUs ''" in machine.repository.noted()
    assert not (machine.repository.root / "calls.txt").exists()
    assert "contracts: device" not in result.stdout.str()


def test_auto_takes_a_gpu_with_room_and_says_why(machine: Machine) -> None:
    """8 GiB must be free; otherwise the CPU is taken, and the header says for what."""
    cases = [(None, "cpu (auto: no GPU)"), (8191, "cpu (auto: Test GPU has 8.0 GiB free, of the 8 GiB needed)")]
    for free, why in [*cases, (8192, "cuda (auto: Test GPU, 8.0 GiB free)")]:
        if free is not None:
            machine.has_gpus(free)
        result = machine.repository.run("--contracts-device=auto", "-k", "slots and toy-1")
        result.assert_outcomes(passed=1, deselected=5)
        assert f"contracts: device {why}" in result.outlines


def test_what_was_observed_elsewhere_is_observed_again(machine: Machine) -> None:
    """The device is part of what an observation is kept by."""
    machine.has_gpus()
    repository = machine.repository
    repository.build("toy-1", "toy-2")
    select = ("-k", "slots and toy-1")
    repository.run(*select).assert_outcomes(passed=1, deselected=5)
    assert "observe [2, 4, 8]" in repository.news()
    repository.run("--contracts-device=cuda", *select).assert_outcomes(passed=1, deselected=5)
    assert "observe [2, 4, 8]" in repository.news()
    for device in ("cpu", "cuda"):
        repository.run(f"--contracts-device={device}", *select).assert_outcomes(passed=1, deselected=5)
        assert repository.news() == []


def test_processes_of_xdist_do_not_choose_for_themselves(machine: Machine) -> None:
    """Free memory changes while engines start: the first process asks, once, and tells the others."""
    machine.has_gpus()
    machine.repository.run("-n", "2", "--contracts-device=auto").assert_outcomes(passed=6)
    assert (machine.repository.root / "calls.txt").read_text().count("asked") == 1
    assert {entry for entry in machine.repository.noted() if entry.startswith("on ")} == {"on cuda GPU-22bb"}


def test_a_gpu_that_is_required_must_be_used(machine: Machine) -> None:
    """`--contracts-require=gpu` is a usage error without one, and where there is one that this run leaves alone."""
    without = machine.repository.run("--contracts-require=gpu")
    assert (without.ret, "--contracts-require: this machine has no GPU" in shown(without)) == (4, True)
    machine.has_gpus(4096)
    for arguments, because in ((), ""), (("--contracts-device=auto",), " [cpu (auto: Test GPU has 4.0 GiB free"):
        unused = machine.repository.run("--contracts-require=gpu", *arguments)
        assert unused.ret == 4
        assert f"there is a GPU, and this run is on the CPU{because}" in shown(unused)
        assert "add --contracts-device=cuda" in shown(unused)
    used = machine.repository.run("--contracts-require=gpu", "--contracts-device=cuda", ALONE)
    used.assert_outcomes(passed=1)


def test_an_environment_that_cannot_use_the_gpu_is_unavailable(machine: Machine) -> None:
    """A torch for CPUs in one environment skips its items with that reason; with `--contracts-strict` they fail."""
    machine.has_gpus()
    machine.set("TOY_LACKS", "cuda")
    result = machine.repository.run("--contracts-device=cuda", "-rs", ALONE)
    result.assert_outcomes(skipped=1)
    told = "unavailable(device): torch 2.0 in this environment sees no GPU: it is a build for CPUs"
    assert told in result.stdout.str()
    assert not has_our_traceback(result.stdout.str())
    machine.repository.run("--contracts-device=cuda", "--contracts-strict", ALONE).assert_outcomes(failed=1)


def test_a_wrong_device_and_a_device_without_contracts_are_usage_errors(repository: Repository) -> None:
    """pytest names the choices, and the option alone changes nothing."""
    wrong = repository.run("--contracts-device=gpu")
    assert (wrong.ret, "'cpu', 'cuda', 'cuda-reference', 'auto'" in shown(wrong).replace("(choose from ", "")) == (
        4,
        True,
    )
    alone = repository.run_plain("--contracts-device=cuda")
    assert (alone.ret, "give --contracts too" in shown(alone)) == (4, True)


def test_an_engine_installed_beside_pytest_runs_on_the_gpu(machine: Machine) -> None:
    """An image that serves has its engine on PYTHONPATH: that one is run, and ids name the version found."""
    machine.has_gpus()
    repository = machine.repository
    repository.write(".site/toy-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.2\n")
    repository.write(".site/toy_core.py", "SHIFT = 1\n")
    repository.edit(f"{FOLDER}/pipeline.yaml", {f"toy-1: {{role: serve, python: {sys.executable}}}": HERE})
    repository.edit(f"{FOLDER}/pipeline.yaml", {"  toy-2: {role: serve, like: toy-1}\n": ""})
    repository.edit(MAIN, {"offset: 1": "offset: 0", ", in: toy-1, as: e": ", as: e", ", in: toy-1, as: s": ", as: s"})
    result = repository.run("--contracts-device=cuda", "-v", "-k", "slots")
    result.assert_outcomes(passed=1, deselected=3)
    result.stdout.fnmatch_lines([f"{MAIN}::slots[[]here-1.2,cuda[]] PASSED*"])
