"""A small repository with contracts on the toy engine, for stories that start a pytest of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import eagle_contracts
from eagle_contracts.workers.locks import file_digest
from eagle_contracts.workers.manifest import Manifest, write_manifest

TOY = Path(__file__).parent / "toy"
TARGET = """\
{"architectures": ["ToyForCausalLM"], "model_type": "toy", "hidden_size": 64, "num_hidden_layers": 10}
"""
DRAFT = """\
{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
 "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}}
"""
PIPELINE = f"""\
spec: 1
target: {{config: target.config.json}}
draft: {{config: draft.config.json}}
trained: {{taps: {{hidden_states: [3, 5, 9]}}}}
environments:
  toy-1: {{role: serve, python: {sys.executable}}}
  toy-2: {{role: serve, like: toy-1}}
"""
CAPTURE = """\
spec: 1
why: The same list of ids names different layers in different engines.
between: [serving config, target forward]
run: toy.capture
in: serve
with: {layer_ids: $draft.layer_ids, offset: 1}
expect:
  - slots: $trained.taps
must_catch:
  - {break: {shift: {with.layer_ids: +1}}, as: shifted}
  - {break: {with.layer_ids: [-1, 2, 4]}, in: toy-1, as: embedding_in_slot}
  - {break: {shift: {with.layer_ids: -1}}, in: toy-1, as: shifted}
"""
FAULTY = """\
spec: 1
why: The engine does something else than to answer.
between: [serving config, target forward]
run: toy.faulty
in: toy-1
with: {layer_ids: $draft.layer_ids, act: ACT}
expect:
  - slots: $trained.taps
"""
STAGE = """\
spec: 1
why: The order of this list is the only record of which slot is which.
between: [target forward, training sample]
run: toy.stage
with: {stage: stages/keep.py, from: {states: sglang_capture_offset}}
expect:
  - slots: $trained.taps
must_catch:
  - {break: {swap: [slot_0, slot_1]}, as: permuted}
"""
PARITY = """\
spec: 1
why: Each side may be wrong on its own.
between: [training sample, target forward in serving]
run: toy.parity
with: {from: {train: extraction_ordering, serve: sglang_capture_offset}}
expect:
  - same: {slots: $trained.taps}
must_catch:
  - {break: {swap: [slot_0, slot_1]}, as: permuted}
"""
ENTRY_POINTS = """\
[eagle_contracts.subjects]
toy.capture = toy_engine.adapter:CAPTURE
toy.faulty = toy_engine.adapter:FAULTY
toy.stage = toy_engine.adapter:STAGE
toy.dump = toy_engine.adapter:DUMP
toy.serving = toy_engine.adapter:SERVING
toy.parity = toy_engine.adapter:PARITY
toy.absent = toy_engine.adapter:ABSENT
toy.number = toy_engine.adapter:NUMBER
"""
INSTALLED = ".site/toy_engine-1.0.dist-info"
FOLDER = "contracts/toy"
MAIN = f"{FOLDER}/sglang_capture_offset.yaml"
CONSUMER = f"{FOLDER}/extraction_ordering.yaml"
STAGE_FILE = f"{FOLDER}/stages/keep.py"
KEEP = "def arrange(slots):\n    return slots\n"
HOME = ".eagle_contracts"
SETTINGS = ("EAGLE_CONTRACTS_HOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER", "COLUMNS")
"""Variables of whoever runs these tests that would change the runs they start, as do those that tell of a CI."""


class Repository:
    """Files, a pytest started among them, and the diary in which the toy engine writes what it was asked for."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.root = pytester.path
        self.diary = self.root / "diary.txt"
        self._told = 0
        self.write(f"{INSTALLED}/METADATA", "Metadata-Version: 2.1\nName: toy-engine\nVersion: 1.0\n")
        self.write(f"{INSTALLED}/entry_points.txt", ENTRY_POINTS)
        self.write("pytest.ini", "[pytest]\n")
        self.write(f"{FOLDER}/target.config.json", TARGET)
        self.write(f"{FOLDER}/draft.config.json", DRAFT)
        self.write(f"{FOLDER}/pipeline.yaml", PIPELINE)
        self.write(MAIN, CAPTURE)

    def write(self, name: str, text: str) -> Path:
        """Write a file, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, name: str, changes: Mapping[str, str]) -> None:
        """Replace texts in a file, each of which must be there."""
        text = (self.root / name).read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        self.write(name, text)

    def write_faulty(self, act: str, name: str = "faulty") -> None:
        """Add a contract whose engine does what the act says."""
        self.write(f"{FOLDER}/{name}.yaml", FAULTY.replace("ACT", act))

    def write_stage(self) -> None:
        """Add a contract that reads what the first one observes."""
        self.write(STAGE_FILE, KEEP)
        self.write(CONSUMER, STAGE)

    def build(self, *names: str) -> None:
        """Give environments engines of their own, as `eagle-contracts env sync` leaves them: locks, folders, manifests.

        What an environment observes is kept from run to run only where its sources can be seen, as here.
        """
        self.edit(f"{FOLDER}/pipeline.yaml", {f"python: {sys.executable}": "engine: toy==1.0"})
        for name in ("base", *names):
            lock = self.write(f"contracts/locks/{name}.txt", "toy==1.0\n")
            site = f"{HOME}/env/{name}/site"
            self.write(f"{site}/toy_core.py", "SHIFT = 0\n")
            self.write(f"{site}/toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
            manifest = Manifest(
                name=name,
                python=sys.executable,
                paths=("site",),
                lock_digest=file_digest(lock),
                torch="2.0",
                versions={"toy": "1.0"},
                complete=True,
            )
            write_manifest(self.root / HOME / "env" / name, manifest)

    def news(self) -> list[str]:
        """Return what the engines were asked for since this was last called, sorted."""
        entries, self._told = self.noted()[self._told :], len(self.noted())
        return sorted(entries)

    def records(self) -> list[str]:
        """Return what lies in the store, whole or not."""
        store = self.root / HOME / "store"
        return sorted(path.name for path in store.iterdir() if path.name != ".locks") if store.is_dir() else []

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run `pytest --contracts` with these arguments in a process of its own."""
        return self.run_plain("--contracts", *arguments)

    def run_plain(self, *arguments: str) -> pytest.RunResult:
        """Run pytest with these arguments in a process of its own, without other plugins that take long to import."""
        slow = ("-p", "no:anyio", "-p", "no:hypothesispytest")
        return self.pytester.runpytest_subprocess(*slow, *arguments, timeout=60)

    def starts(self) -> int:
        """Return how often the engine was imported."""
        return self.noted().count("start")

    def noted(self) -> list[str]:
        """Return the diary's entries without the process ids."""
        return [line.partition(" ")[2] for line in self._lines()]

    def pids(self) -> list[int]:
        """Return the processes that wrote into the diary: workers and their children."""
        return [int(line.partition(" ")[0]) for line in self._lines()]

    def _lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository with one right contract in two environments, three controls, and no environment of the machine's."""
    made = Repository(pytester)
    for name in (*SETTINGS, "CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    package = Path(eagle_contracts.__file__).parents[1]  # the one under test, also where another one is installed
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TOY, (made.root / INSTALLED).parent, package))))
    monkeypatch.setenv("DIARY_OF_TOY", str(made.diary))
    return made


def shown(result: pytest.RunResult) -> str:
    """Return what a person saw."""
    return result.stdout.str() + result.stderr.str()


def flat(text: str) -> str:
    """Return text in one line: where a long message breaks depends on its path."""
    return " ".join(text.split())


def has_our_traceback(text: str) -> bool:
    """Tell whether a person was shown lines of the package, of pytest or of pluggy."""
    return any(sign in text for sign in ("Traceback (most recent", "pytest_items.py", "_pytest/", "pluggy/"))
