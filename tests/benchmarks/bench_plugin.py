"""What the plugin costs a run that asks for no contracts: `pytest --co` of an empty file, with it and without it.

Both are run in turns. The medians are printed; what is added is the median of the pairs' differences, and since other
work on the machine can only make a run slower, the budget is held against the difference of the fastest runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path

BUDGET_MS = 15.0
REPEATS = 25
PLUGIN = "eagle_contracts.plugin"
WITHOUT = ("-p", f"no:{PLUGIN}")
HEAVY = ("torch", "jsonschema", "yaml", "safetensors", "transformers", "eagle_contracts.pytest_run")
REPORT_IMPORTS = """
import json, sys
import pytest
code = pytest.main(sys.argv[1:])
print(json.dumps([int(code), sorted(sys.modules)]))
"""


def arguments(folder: Path, *extra: str) -> list[str]:
    """An empty test file to collect, without the other plugins installed, whose own cost would drown the difference."""
    others = [f"-pno:{point.name}" for point in entry_points(group="pytest11") if point.name != PLUGIN]
    return ["--co", "-q", "-pno:cacheprovider", *others, *extra, str(folder / "test_empty.py")]


def run(folder: Path, *extra: str) -> float:
    """How many seconds one run takes; collecting nothing is pytest's exit code 5."""
    command = [sys.executable, "-m", "pytest", *arguments(folder, *extra)]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    assert done.returncode == 5, done.stdout + done.stderr
    return taken


def measure(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of every run with the plugin and of every run without it, taken in turns."""
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(REPEATS + 1):
        for is_ours in (True, False) if turn % 2 else (False, True):
            taken = run(folder) if is_ours else run(folder, *WITHOUT)
            (ours if is_ours else theirs).append(taken)
    return ours[1:], theirs[1:]  # the first turn fills the caches


def imported(folder: Path, *extra: str) -> set[str]:
    """The modules that are loaded when such a run has ended."""
    command = [sys.executable, "-c", REPORT_IMPORTS, *arguments(folder, *extra)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 5, done.stdout
    return set(modules)


def empty(folder: Path) -> Path:
    """A folder with an empty test file and a configuration of its own."""
    (folder / "test_empty.py").write_text("", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return folder


def main(folder: Path) -> float:
    """Print the table and return the milliseconds between the fastest runs."""
    ours, theirs = measure(folder)
    added = statistics.median(one - other for one, other in zip(ours, theirs, strict=True))
    fastest = min(ours) - min(theirs)
    print(f"\n{'plugin idle: pytest --co':<28}{'with':>10}{'without':>10}{'ratio':>8}{'added':>11}{'budget':>10}")
    for name, one, other, more in (
        (f"median of {REPEATS} pairs", statistics.median(ours), statistics.median(theirs), added),
        ("fastest", min(ours), min(theirs), fastest),
    ):
        row = f"{one * 1e3:>7.1f} ms{other * 1e3:>7.1f} ms{one / other:>7.3f}x{more * 1e3:>8.2f} ms{BUDGET_MS:>7.0f} ms"
        print(f"{name:<28}{row}")
    return fastest * 1e3


def test_the_idle_plugin_adds_less_than_its_budget(tmp_path: Path) -> None:
    """A run without `--contracts` is not slowed down in a way that anyone could notice."""
    assert main(empty(tmp_path)) <= BUDGET_MS


def test_the_idle_plugin_imports_nothing_heavy(tmp_path: Path) -> None:
    """Without `--contracts` the plugin is loaded and neither torch nor jsonschema nor the run's own hooks are."""
    modules = imported(empty(tmp_path))
    assert PLUGIN in modules
    assert not modules & set(HEAVY)


def test_the_search_for_heavy_imports_can_find_one(tmp_path: Path) -> None:
    """The test above would notice: a conftest that imports jsonschema is seen."""
    folder = empty(tmp_path)
    (folder / "conftest.py").write_text("import jsonschema\n", encoding="utf-8")
    assert "jsonschema" in imported(folder) & set(HEAVY)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(empty(Path(scratch)))
