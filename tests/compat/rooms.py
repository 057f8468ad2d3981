"""Where the cells of the matrix run: interpreters that are found, a wheel that is built, environments that are made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class Broken(Exception):
    """A command of the matrix itself failed, so that a cell could not be run; the message is its output."""


def interpreter(version: str) -> Path | None:
    """Return a Python of this version that runs, from PATH or among pyenv's; None where there is none.

    A candidate is run, not only looked up: version managers leave launchers for interpreters that are not installed.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = [Path(found)] if (found := shutil.which(f"python{version}")) else []
    for candidate in [Path(sys.executable), *named, *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]:
        try:
            done = subprocess.run([candidate, "-c", _VERSION], capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.stdout.strip() == version:
            return candidate
    return None


def build_wheel(folder: Path) -> Path:
    """Build the package's wheel from this checkout, and return its file."""
    _pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY))
    (wheel,) = folder.glob("eagle_contracts-*.whl")
    return wheel


def least_versions() -> list[str]:
    """Return the oldest version of each dependency that `pyproject.toml` declares, as requirements."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return [requirement.replace(">=", "==") for requirement in declared]


def make_room(folder: Path, python: Path, requirements: Sequence[str]) -> Path:
    """Make a virtual environment with these distributions and what they need; return its interpreter."""
    _run([str(python), "-m", "venv", "--without-pip", str(folder)])
    made = folder / "bin" / "python"
    _pip(str(made), "install", *requirements)
    return made


def make_shelf(folder: Path, python: Path, requirements: Sequence[str]) -> Path:
    """Install these distributions, and nothing that they need, into a folder for the import path; return it."""
    _pip(str(python), "install", "--no-deps", "--target", str(folder), *requirements)
    return folder


def versions(python: Path, shelves: Sequence[Path], names: Sequence[str]) -> str:
    """Return `name version` of distributions as an interpreter sees them, for the table."""
    ask = (
        "import sys; from importlib.metadata import version as v; print(', '.join(f'{n} {v(n)}' for n in sys.argv[1:]))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, shelves))}
    return _run([str(python), "-c", ask, *names], environ).strip()


def _pip(python: str, command: str, *arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--python", python, "--quiet", "--quiet", command, *arguments])


def _run(command: Sequence[str], environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environ, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Broken(f"{' '.join(command[:8])} ended with {done.returncode}:\n{done.stdout}{done.stderr}".strip())
    return done.stdout
