"""pytest's versions with and without the plugins that people use beside ours, from a built wheel.

    python -m tests.compat.matrix            every cell, some minutes
    python -m tests.compat.matrix --reduced  three cells, for every change

Every cell runs one small project and must give the same outcomes and the same texts. Exit status: 0 if all agree, 1 if
a cell differs or, but for `--reduced`, an interpreter is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.compat import project, rooms

PYTESTS = ("8.4", "9.0", "9.1", "9.2")
PYTHONS = ("3.11", "3.12", "3.13")
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "xdist": ("pytest-xdist", "execnet"),
    "randomly": ("pytest-randomly",),
    "timeout": ("pytest-timeout",),
    "cov": ("pytest-cov", "coverage"),
    "rerunfailures": ("pytest-rerunfailures",),
}
USED: Mapping[str, tuple[str, ...]] = {
    "xdist": ("-n", "2"),
    "timeout": ("--timeout=100",),
    "cov": ("--cov=toy_engine", "--cov-report="),
    "rerunfailures": ("--reruns=1",),
}
ALL = tuple(name for name in DISTRIBUTIONS if name != "none")
OURS = ("Traceback (most recent", "INTERNALERROR", "/pluggy/", "/_pytest/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One Python with one pytest and some plugins; `deep` cells run the stories of options too.

    `least` cells have the oldest versions that the package says it works with, of pytest too.
    """

    python: str
    pytest: str
    plugins: tuple[str, ...] = ("none",)
    deep: bool = False
    least: bool = False

    @property
    def name(self) -> str:
        """The cell as the table names it."""
        plugins = "all plugins" if self.plugins == ALL else " + ".join(self.plugins)
        least = ", least versions of what we need" if self.least else ""
        return f"Python {self.python}, pytest {self.pytest}, {plugins}{least}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cell runs: its interpreter, what stands before it on the import path, and a folder of its own."""

    python: Path
    shelves: tuple[Path, ...]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a cell ran with, what differs in it, what its items said, and how long it took."""

    versions: str
    differences: list[str]
    texts: Mapping[str, str]
    seconds: float


def all_cells() -> list[Cell]:
    """Return the whole matrix: every plugin with every pytest on one Python, none and all on the others."""
    first, *others = PYTHONS
    cells = [Cell(python=first, pytest=pytest, plugins=(name,)) for pytest in PYTESTS for name in DISTRIBUTIONS]
    cells += [Cell(python=p, pytest=t, plugins=("none",), deep=True) for p in others for t in PYTESTS]
    cells += [Cell(python=p, pytest=t, plugins=ALL, deep=p == PYTHONS[-1]) for p in PYTHONS for t in PYTESTS]
    return [*cells, Cell(python=first, pytest=PYTESTS[0], least=True)]


def reduced_cells() -> list[Cell]:
    """Return three cells: the oldest pytest, the newest with everything, the newest Python."""
    return [
        Cell(python=PYTHONS[0], pytest=PYTESTS[0], plugins=("xdist",), least=True),
        Cell(python=PYTHONS[0], pytest=PYTESTS[-1], plugins=ALL),
        Cell(python=PYTHONS[-1], pytest=PYTESTS[-1], deep=True),
    ]


class House:
    """The rooms and shelves that cells share, below one folder; made one after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wheel = rooms.build_wheel(folder / "wheel")

    def place(self, cell: Cell, python: Path) -> Place:
        """Return where a cell is to run, with everything installed."""
        shelves = tuple(self._shelf(cell.python, python, name) for name in cell.plugins if name != "none")
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        return Place(python=self._room(cell, python), shelves=shelves, folder=folder / "project")

    def _room(self, cell: Cell, python: Path) -> Path:
        folder = self._folder / f"python{cell.python}-pytest{cell.pytest}{'-least' if cell.least else ''}"
        if not folder.exists():
            chosen = rooms.least_versions() if cell.least else [f"pytest=={cell.pytest}.*"]
            return rooms.make_room(folder, python, [*chosen, str(self._wheel)])
        return folder / "bin" / "python"

    def _shelf(self, version: str, python: Path, plugin: str) -> Path:
        folder = self._folder / f"python{version}-{plugin}"
        return folder if folder.exists() else rooms.make_shelf(folder, python, DISTRIBUTIONS[plugin])


class Stories:
    """What is run in one cell, each story on a project of its own."""

    def __init__(self, cell: Cell, place: Place) -> None:
        self._cell, self._python, self._shelves, self._folder = cell, place.python, place.shelves, place.folder
        self._environ: dict[str, str] = {}
        self._output = ""
        self.texts: dict[str, str] = {}

    def all(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each story's name and what differs from what must come of it."""
        used = [argument for name in self._cell.plugins for argument in USED.get(name, ())]
        yield "as it is", self._plain(used)
        yield "installed", self._installed()
        if self._cell.deep:
            for name, arguments in _OPTIONS.items():
                yield name, self._same(arguments)
            yield "warnings are errors", self._warnings()
            yield "named in a conftest", self._named()
            yield "stopped and again", self._again()
        if "timeout" in self._cell.plugins:
            yield "a stage that hangs", self._hanging()
        if "rerunfailures" in self._cell.plugins:
            yield "a failure that goes away", self._flaking()

    def _plain(self, used: Sequence[str]) -> list[str]:
        found = self._same(used, keep=True)
        return found if project.NO_PROOF in self._output else [*found, "no warning of an unproven contract"]

    def _same(self, arguments: Sequence[str], *, keep: bool = False) -> list[str]:
        """Run the project, and compare every item with what must come of it."""
        self._new()
        items = self._pytest(*arguments)
        if keep:
            self.texts = {name: item.text for name, item in items.items()}
        return [*compared(items, project.EXPECTED), *self._traces()]

    def _warnings(self) -> list[str]:
        self._new()
        self._write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
        wanted = {**project.EXPECTED, project.UNPROVEN: ("error", project.NO_PROOF)}
        return [*compared(self._pytest(), wanted), *self._traces()]

    def _named(self) -> list[str]:
        """Name the plugin where a repository may, twice and without entry points."""
        self._new()
        self._write("conftest.py", 'pytest_plugins = ["eagle_contracts.plugin"]\n')
        found = compared(self._pytest("-p", "eagle_contracts.plugin"), project.EXPECTED)
        self._environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        found += compared(self._pytest("-p", "eagle_contracts.plugin"), project.EXPECTED)
        return [*found, *self._traces()]

    def _again(self) -> list[str]:
        """Stop at the first failure, then run the last failures alone."""
        self._new()
        failed = _not_passed(self._pytest("-x", *self._ordered()))
        found = [] if len(failed) == 1 else [f"-x stopped after {len(failed)} failures"]
        self._new()
        first = _not_passed(self._pytest(*self._ordered()))
        again = self._pytest("--lf", *self._ordered())
        return found if set(again) == first else [*found, f"--lf ran {sorted(again)}"]

    def _flaking(self) -> list[str]:
        """A rerun asks the engine again where it gave no result."""
        self._new()
        flaky = project.add(self._folder, "flake")
        found = []
        for arguments, outcome in ((("--reruns=0",), "error"), (("--reruns=1",), "passed")):
            (self._folder / "flaked").unlink(missing_ok=True)
            shutil.rmtree(self._folder / ".eagle_contracts", ignore_errors=True)
            items = self._pytest(flaky, *arguments)
            found += compared(items, {"flake::slots[toy-1]": (outcome, "")})
        return found

    def _hanging(self) -> list[str]:
        """pytest-timeout ends a wait, and what was waited for holds up nothing else; no process is left."""
        found = []
        for method in ("signal", "thread"):
            self._new()
            hanging = project.add(self._folder, "hang")
            begun = time.monotonic()
            items = self._pytest(hanging, project.MAIN, "--timeout=6", f"--timeout-method={method}")
            found += [f"{method}: it took {time.monotonic() - begun:.0f} s"] if time.monotonic() - begun > 30 else []
            found += [f"{method}: {left} is left" for left in self._left()]
            if method == "signal":
                found += _stopped(items) + self._traces()
        return found

    def _installed(self) -> list[str]:
        """What a person meets in an empty folder: the wheel's own files, its command, and no contracts yet."""
        self._empty()
        found = (
            [] if "found no contracts" in self._start("-m", "pytest", "--contracts") else ["no contracts: no advice"]
        )
        for word, command in _COMMANDS.items():
            said = self._start("-m", "eagle_contracts.cli", *command)
            found += [] if word in said else [f"eagle-contracts {' '.join(command)} said: {said[-300:]}"]
        said = self._start("-c", _INSIDE)
        return found if said.strip() == "all there" else [*found, f"the wheel lacks something: {said[-300:]}"]

    def _new(self) -> None:
        self._empty()
        self._environ |= project.write(self._folder, self._python)
        self._environ["PYTHONPATH"] += "".join(os.pathsep + str(shelf) for shelf in self._shelves)
        self._environ["DIARY_OF_TOY"] = str(self._folder / "diary.txt")

    def _empty(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        dropped = ("PYTEST", "EAGLE_CONTRACTS", "PYTHONPATH", "COVERAGE", "TOY_", "COLUMNS")
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self._environ["PYTHONPATH"] = os.pathsep.join(map(str, self._shelves))

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")

    def _pytest(self, *arguments: str) -> dict[str, project.Item]:
        junit = self._folder / "junit.xml"
        junit.unlink(missing_ok=True)
        self._start("-m", "pytest", "--contracts", f"--junitxml={junit}", *arguments)
        return project.items(junit) if junit.exists() else {}

    def _start(self, *command: str) -> str:
        done = subprocess.run(
            [self._python, *command],
            cwd=self._folder,
            env=self._environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=150,
        )
        self._output = done.stdout
        return self._output

    def _ordered(self) -> tuple[str, ...]:
        return ("-p", "no:randomly") if "randomly" in self._cell.plugins else ()

    def _traces(self) -> list[str]:
        # What an engine raised is shown on lines of its own; nothing else may be a trace.
        lines = [line for line in self._output.splitlines() if not line.startswith("  | ")]
        return [f"a trace of ours: {line}" for line in lines if any(sign in line for sign in OURS)]

    def _left(self) -> list[str]:
        """Return the processes of the toy that still run, once they had a moment to end."""
        diary = self._folder / "diary.txt"
        pids = {line.partition(" ")[0] for line in diary.read_text(encoding="utf-8").splitlines()}
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(map(_runs, pids)):
            time.sleep(0.05)
        return [f"process {pid}" for pid in sorted(pids) if _runs(pid)]


_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "no terminal, no cache": ("-p", "no:terminal", "-p", "no:cacheprovider"),
    "importlib, quiet, uncaptured": ("--import-mode=importlib", "-q", "-s"),
}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    '"$schema": "http://json-schema.org/draft-07/schema#"': ("schema", "contract"),
    "usage: eagle-contracts": ("--help",),
}
_INSIDE = """
from importlib.metadata import files
names = {str(file) for file in files("eagle-contracts")}
wanted = {"py.typed", "spec/schema/contract.v1.json", "spec/schema/pipeline.v1.json", "locks/base.txt",
          "locks/sglang-0.5.9.txt", "locks/sglang-0.5.23.txt", "locks/speculators-0.6.0.txt",
          "workers/bootstrap.py", "workers/standins.py", "subjects/sglang_cpu_platform.py"}
print(sorted(name for name in wanted if f"eagle_contracts/{name}" not in names) or "all there")
"""


def compared(items: Mapping[str, project.Item], wanted: Mapping[str, tuple[str, str]]) -> list[str]:
    """Hold items against what must come of each: its outcome, and how its message begins."""
    found = [f"{name} did not run" for name in wanted if name not in items]
    found += [f"{name} ran, and nobody knows it" for name in items if name not in wanted]
    for name, item in items.items():
        outcome, begins = wanted.get(name, (item.outcome, ""))
        if item.outcome != outcome or not item.first.startswith(begins):
            found.append(f"{name} is {item.outcome} ({item.first}), and not {outcome} ({begins})")
    return found


def _stopped(items: Mapping[str, project.Item]) -> list[str]:
    """Hold a run with a hanging stage against what it must be: at most the waiting items are stopped."""
    told = [name for name, item in items.items() if item.first.startswith("error(interrupted): ")]
    passed = [name for name, item in items.items() if item.outcome == "passed"]
    if 1 <= len(told) <= 2 and "hang::slots[toy-1]" in told and len(passed) >= 5:
        return []
    return [
        f"stopped {told}, passed {len(passed)}: {sorted((n, i.first) for n, i in items.items() if n not in passed)}"
    ]


def _not_passed(items: Mapping[str, project.Item]) -> set[str]:
    return {name for name, item in items.items() if item.outcome in ("failure", "error")}


def _runs(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return re.fullmatch("[ZX]", state) is None


def run_cell(cell: Cell, place: Place) -> Finding:
    """Run a cell's stories and say what differs from what must come of them."""
    begun = time.monotonic()
    stories = Stories(cell, place)
    differences = [f"{story}: {difference}" for story, found in stories.all() for difference in found]
    named = ["pytest", *(DISTRIBUTIONS[name][0] for name in cell.plugins if name != "none")]
    versions = rooms.versions(place.python, place.shelves, named)
    return Finding(versions=versions, differences=differences, texts=stories.texts, seconds=time.monotonic() - begun)


def other_texts(first: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Hold what a cell's items said against what the first cell's said."""
    return [f"{name} says something else than in the first cell" for name in texts if texts[name] != first.get(name)]


def run(cells: Sequence[Cell], folder: Path) -> tuple[int, list[str]]:
    """Run cells, as many at once as there are cores, with a line for each in their order.

    Returns how many differ, and which Pythons were not found.
    """
    begun, house = time.monotonic(), House(folder)
    pythons = {version: rooms.interpreter(version) for version in sorted({cell.python for cell in cells})}
    missing = [version for version, python in pythons.items() if python is None]
    for cell in cells:
        if cell.python in missing:
            print(f"NOT RUN  {cell.name}: no Python {cell.python} on PATH or among pyenv's", flush=True)
    there = [(cell, python) for cell in cells if (python := pythons[cell.python]) is not None]
    places = [house.place(cell, python) for cell, python in there]
    print(f"A wheel is built and {len(places)} places are ready ({time.monotonic() - begun:.0f} s).", flush=True)
    differing, first = 0, None
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for (cell, _), finding in zip(there, pool.map(run_cell, [cell for cell, _ in there], places), strict=True):
            first = first or finding
            differences = [*finding.differences, *other_texts(first.texts, finding.texts)]
            differing += bool(differences)
            verdict = "DIFFERS" if differences else "same"
            print(f"{verdict:8} {cell.name} ({finding.versions}) {finding.seconds:.0f} s", flush=True)
            for difference in differences:
                print(f"         {difference}", flush=True)
    return differing, missing


def main() -> int:
    """Read the arguments, run the cells, and say in one line what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reduced", action="store_true", help="three cells instead of all")
    cells = reduced_cells() if (reduced := parser.parse_args().reduced) else all_cells()
    with tempfile.TemporaryDirectory(prefix="eagle_contracts_matrix_") as folder:
        try:
            differing, missing = run(cells, Path(folder))
        except rooms.Broken as broken:
            print(f"The matrix could not be run: {broken}")
            return 1
    not_run = sum(cell.python in missing for cell in cells)
    told = f"; {not_run} were not run, for want of Python {' and '.join(missing)}" if missing else ""
    print(f"{len(cells) - not_run - differing} of {len(cells)} cells agree, {differing} differ{told}")
    return 1 if differing or not_run == len(cells) or (missing and not reduced) else 0


if __name__ == "__main__":
    raise SystemExit(main())
