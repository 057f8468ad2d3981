"""What an item of a contracts run costs over a plain pytest item, where its verdict is there already.

The session is a stub that has judged everything, so that no engine's time is in the numbers: what is left is the
framework's own work on an item, and reading and planning its contract at collection.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import pytest

ITEMS = 200
REPEATS = 9
BUDGET_MS = 1.0
PLUGIN = "eagle_contracts.plugin"
PIPELINE = Path(__file__).resolve().parents[2] / "contracts" / "qwen3"
Kind = Literal["contract", "plain"]


class Clock:
    """Takes the time of collection and of the loop over all items; a plugin of the measured run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Time the collection."""
        start = time.perf_counter()
        result = yield
        self.seconds["collect"] = time.perf_counter() - start
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Time all items."""
        start = time.perf_counter()
        result = yield
        self.seconds["run"] = time.perf_counter() - start
        return result


class JudgedSession:
    """A session that starts no engine."""

    def __init__(self, root: Path, overrides: Mapping[str, object], *, since: float = 0.0) -> None:
        self.root, self.overrides = root, overrides
        self.waiting = SimpleNamespace(say=None)

    def label(self, pipeline: Any, environment: Any) -> str:
        """Name an environment as its pipeline does."""
        return str(environment.name)

    def start(self, cases: Sequence[object]) -> list[str]:
        """Start nothing."""
        return []

    def close(self) -> None:
        """End nothing."""


def child(kind: Kind, folder: Path) -> None:
    """Run one kind of items in this process and print the clock's seconds as JSON."""
    from eagle_contracts import pytest_items, pytest_run
    from eagle_contracts.verdict import Verdict

    clock = Clock()
    verdict = Verdict(status="passed", properties={"contract": "many", "environment": "one"})
    others = [f"-pno:{point.name}" for point in entry_points(group="pytest11") if point.name != PLUGIN]
    options = ["-q", "-pno:cacheprovider", *others, "--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
    wanted = ["--contracts", str(folder / "contracts")] if kind == "contract" else [str(folder / "test_plain.py")]
    with (
        mock.patch.object(pytest_run, "Session", JudgedSession),
        mock.patch.object(pytest_items, "judge", lambda case, session: verdict),
    ):
        code = pytest.main([*options, *wanted], plugins=[clock])
    assert code == pytest.ExitCode.OK
    print(json.dumps(clock.seconds))


def write(folder: Path) -> Path:
    """A contract of as many items as the plain test file beside it."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    functions = "\n".join(f"def test_{number}(): pass" for number in range(ITEMS))
    (folder / "test_plain.py").write_text(functions + "\n", encoding="utf-8")
    contracts = folder / "contracts"
    shutil.copytree(PIPELINE, contracts, ignore=shutil.ignore_patterns("sglang_capture_offset.yaml"))
    promises = "\n".join(["  - slots: $trained.taps"] * ITEMS)
    (contracts / "many.yaml").write_text(
        "spec: 1\nwhy: many items\nbetween: [one, other]\nrun: sglang.capture\nin: sglang-0.5.23\n"
        "with: {layer_ids: $draft.layer_ids}\n"
        f"expect:\n{promises}\nmust_catch:\n  - {{break: {{shift: {{with.layer_ids: -1}}}}, as: shifted}}\n",
        encoding="utf-8",
    )
    return folder


def run(kind: Kind, folder: Path) -> dict[str, float]:
    """The clock's milliseconds for each item of one run in a process of its own."""
    command = [sys.executable, __file__, kind, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    count = ITEMS + 1 if kind == "contract" else ITEMS
    assert f"{count} passed" in done.stdout, done.stdout
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {phase: taken * 1e3 / count for phase, taken in seconds.items()}


def main(folder: Path) -> float:
    """Print the table and return the milliseconds that an item's run adds over a plain one's."""
    turns = [(run("contract", folder), run("plain", folder)) for _ in range(REPEATS)]
    added: dict[str, float] = {}
    print(f"\n{f'per item, {ITEMS} items':<28}{'contract':>10}{'plain':>10}{'ratio':>8}{'added':>11}{'budget':>10}")
    for phase in ("run", "collect"):
        ours = statistics.median(contract[phase] for contract, _ in turns)
        theirs = statistics.median(plain[phase] for _, plain in turns)
        added[phase] = statistics.median(contract[phase] - plain[phase] for contract, plain in turns)
        budget = f"{BUDGET_MS:>7.0f} ms" if phase == "run" else f"{'-':>10}"
        row = f"{ours:>7.2f} ms{theirs:>7.2f} ms{ours / theirs:>7.2f}x{added[phase]:>8.2f} ms{budget}"
        print(f"{f'{phase}, median of {REPEATS} pairs':<28}{row}")
    return added["run"]


def test_an_item_adds_less_than_its_budget(tmp_path: Path) -> None:
    """Where the verdict is there already, an item of a contract costs about as much as any test."""
    assert main(write(tmp_path)) <= BUDGET_MS


if __name__ == "__main__":
    if sys.argv[1:]:
        child("contract" if sys.argv[1] == "contract" else "plain", Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(write(Path(scratch)))
