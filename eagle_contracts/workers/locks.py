"""Lock files: the exact distributions of an engine's environment, without torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagle_contracts.spec.document import make_position, split_lines
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.model import Environment

BASE: Final = "base"
SHIPPED: Final = Path(__file__).resolve().parents[1] / "locks"

_NOT_ENGINES: Final = frozenset({BASE, "dev"})
_PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;=]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One lock file: `pins` maps a distribution's normalized name to its version, `digest` is of the file's bytes."""

    name: str
    path: Path
    pins: Mapping[str, str]
    digest: str


def normalized(name: str) -> str:
    """Return a distribution's name as indexes compare it: lower case, single dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> Lock:
    """Read a lock file; raises SpecError with a position for every line that is not NAME==VERSION, and for torch."""
    lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
    pins: dict[str, str] = {}
    issues: list[SpecIssue] = []
    for number, line in enumerate(lines, start=1):
        pin = re.split(r"(?:^|\s)#", line)[0].strip()
        if not pin:
            continue
        match = _PIN.fullmatch(pin)
        mistake = _mistake(match, pins)
        if mistake:
            column = len(line) - len(line.lstrip()) + 1
            position = make_position(shown_path(path), lines, (number, column))
            issues.append(SpecIssue(position=position, message=mistake[0], hint=mistake[1]))
        elif match is not None:
            pins[normalized(match[1])] = match[2]
    if issues:
        raise SpecError(issues)
    return Lock(name=path.stem, path=path, pins=pins, digest=file_digest(path))


def file_digest(path: Path) -> str:
    """The digest by which a built environment knows its lock."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lock_directories(folder: Path, root: Path) -> tuple[Path, ...]:
    """Where the locks of a pipeline in `folder` are looked up: nearest first, up to `root`, then those shipped here."""
    folder, root = folder.absolute(), root.absolute()
    line = (folder, *folder.parents)
    inside = line[: line.index(root) + 1] if root in line else line[:2]
    candidates = [*(parent / "locks" for parent in inside), root / "contracts" / "locks", SHIPPED]
    return tuple(dict.fromkeys(path for path in candidates if path.is_dir()))


def find_lock(
    environment: Environment, directories: Sequence[Path], among: Mapping[str, Environment] | None = None
) -> Path | None:
    """The lock file of an environment, or None if there is none.

    An entry's own `lock` decides. Else the environment's name, the names of those it is `like` (`among` holds the
    pipeline's environments), and ENGINE-VERSION of its pinned engine are tried. Raises SpecError for a `lock` that
    names no file.
    """
    if environment.lock is not None:
        found = lock_named(environment.lock, directories)
        if found is None:
            hint = suggest(environment.lock, engine_locks(directories), "locks")
            raise fail(environment.position, f"no lock file is called {environment.lock}.txt", hint)
        return found
    names = [*_lineage(environment, among or {})]
    if environment.engine is not None and environment.engine.pinned:
        names.append(f"{environment.engine.name}-{environment.engine.pinned}")
    return next((found for name in names if (found := lock_named(name, directories))), None)


def lock_named(name: str, directories: Sequence[Path]) -> Path | None:
    """The nearest lock file of that name, or None."""
    return next((path for folder in directories if (path := folder / f"{name}.txt").is_file()), None)


def engine_locks(directories: Sequence[Path]) -> tuple[str, ...]:
    """The names of all locks that an environment can use, in order."""
    return tuple(sorted({path.stem for folder in directories for path in folder.glob("*.txt")} - _NOT_ENGINES))


def _lineage(environment: Environment, among: Mapping[str, Environment]) -> tuple[str, ...]:
    names = [environment.name]
    parent = environment.like
    while parent is not None and parent not in names:
        names.append(parent)
        parent = among[parent].like if parent in among else None
    return tuple(names)


def _mistake(match: re.Match[str] | None, pins: Mapping[str, str]) -> tuple[str, str] | None:
    if match is None:
        return (
            "expected NAME==VERSION",
            "a lock pins every distribution exactly, one a line, without hashes, markers or options",
        )
    name = normalized(match[1])
    if name == "torch":
        return "torch does not belong in a lock", "`eagle-contracts env sync` installs it into the base first"
    if name in pins:
        return f"{match[1]} is pinned twice, to {pins[name]} and {match[2]}", "keep one of the two lines"
    return None


def shown_path(path: Path) -> str:
    """A path as messages show it: relative to the current folder where it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
