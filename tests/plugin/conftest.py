"""A small repository with contracts on the toy engine, for stories that start a pytest of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

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
ENTRY_POINTS = """\
[eagle_contracts.subjects]
toy.capture = toy_engine.adapter:CAPTURE
toy.faulty = toy_engine.adapter:FAULTY
toy.absent = toy_engine.adapter:ABSENT
toy.number = toy_engine.adapter:NUMBER
"""
INSTALLED = ".site/toy_engine-1.0.dist-info"
FOLDER = "contracts/toy"
MAIN = f"{FOLDER}/sglang_capture_offset.yaml"


class Repository:
    """Files, a pytest started among them, and the diary in which the toy engine writes what it was asked for."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.root = pytester.path
        self.diary = self.root / "diary.txt"
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
    for name in ("EAGLE_CONTRACTS_HOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), str((made.root / INSTALLED).parent)]))
    monkeypatch.setenv("TOY_DIARY", str(made.diary))
    return made


def shown(result: pytest.RunResult) -> str:
    """Return what a person saw."""
    return result.stdout.str() + result.stderr.str()


def has_our_traceback(text: str) -> bool:
    """Tell whether a person was shown lines of the package, of pytest or of pluggy."""
    return any(sign in text for sign in ("Traceback (most recent", "pytest_items.py", "_pytest/", "pluggy/"))
