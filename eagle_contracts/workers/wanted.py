"""What the pipelines of a project want built. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle_contracts.project import pipeline_files
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
from eagle_contracts.spec.load import load_pipeline
from eagle_contracts.spec.model import Environment, Pipeline
from eagle_contracts.workers.locks import (
    BASE,
    Lock,
    engine_locks,
    find_lock,
    lock_directories,
    lock_named,
    normalized,
    read_lock,
    shown_path,
)
from eagle_contracts.workers.own import Own, own_interpreters
from eagle_contracts.workers.pip import BuildError


class UnknownName(Exception):
    """A name that no pipeline and no lock has, with the nearest one that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One environment of one pipeline, and where its locks are looked up."""

    environment: Environment
    pipeline: Pipeline
    lock_dirs: tuple[Path, ...]

    def lock(self) -> Path | None:
        """The environment's lock file, or None."""
        return find_lock(self.environment, self.lock_dirs, self.pipeline.environments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to build: the base's lock, the overlays' locks, and a sentence for each environment that needs no build."""

    base: Lock
    locks: tuple[Lock, ...]
    notes: tuple[str, ...]


def named_environments(root: Path) -> tuple[Named, ...]:
    """Every environment of every pipeline of a project; raises SpecError for a pipeline with mistakes."""
    found: list[Named] = []
    for path in pipeline_files(root):
        pipeline = load_pipeline(path, shown=shown_path(path))
        directories = lock_directories(pipeline.folder, root)
        found += [
            Named(environment=environment, pipeline=pipeline, lock_dirs=directories)
            for environment in pipeline.environments.values()
        ]
    return tuple(found)


def wanted(root: Path, home: Path, names: Sequence[str]) -> Wanted:
    """What to build for these names of environments or locks; for none, what the pipelines name.

    `base` stands for the base alone. Raises UnknownName, BuildError for an environment that has no lock or for two
    different locks of one name, and SpecError.
    """
    everything = named_environments(root)
    own = own_interpreters(home)
    if names:
        needing = [named for named in everything if named.environment.name in names]
        notes: list[str] = []
        locks = _locks_called(names, everything, root)
        locks += [_lock_or_fail(named) for named in needing]
    else:
        needing = [named for named in everything if not _has_own(named, own)]
        notes = [_own_note(named) for named in everything if _has_own(named, own)]
        notes += [_no_lock_note(named) for named in needing if named.lock() is None]
        locks = [lock for named in needing if (lock := named.lock()) is not None]
    _check_engines(needing)
    bases = [lock for directories in _directories(everything, root) if (lock := lock_named(BASE, directories))]
    return Wanted(base=_one_each(bases)[0], locks=_one_each(locks), notes=tuple(dict.fromkeys(notes)))


def _directories(everything: Sequence[Named], root: Path) -> tuple[tuple[Path, ...], ...]:
    return tuple(dict.fromkeys(named.lock_dirs for named in everything)) or (lock_directories(root, root),)


def _locks_called(names: Sequence[str], everything: Sequence[Named], root: Path) -> list[Path]:
    """The lock files of the names that no environment has; raises UnknownName for a name without one."""
    environments = {named.environment.name for named in everything}
    directories = tuple(dict.fromkeys(path for paths in _directories(everything, root) for path in paths))
    found: list[Path] = []
    for name in names:
        if name in environments or name == BASE:
            continue
        path = lock_named(name, directories) if name in engine_locks(directories) else None
        if path is None:
            valid = sorted({BASE, *environments, *engine_locks(directories)})
            raise UnknownName(f"no environment is called '{name}': {suggest(name, valid, 'known')}")
        found.append(path)
    return found


def _lock_or_fail(named: Named) -> Path:
    lock = named.lock()
    if lock is None:
        raise BuildError(_no_lock_note(named))
    return lock


def _check_engines(needing: Sequence[Named]) -> None:
    """Raise SpecError where a lock does not hold the engine that its environment asks for: it could never run."""
    issues: list[SpecIssue] = []
    for named in needing:
        engine, path = named.environment.engine, named.lock()
        if engine is None or path is None:
            continue
        version = read_lock(path).pins.get(normalized(engine.name))
        if version is None or not engine.contains(version):
            has = f"{engine.name} {version}" if version else f"no {engine.name}"
            message = f"{named.environment.name} asks for {engine}, and {shown_path(path)} has {has}"
            hint = "change one of the two, or give the environment another lock"
            issues.append(SpecIssue(position=named.environment.position, message=message, hint=hint))
    if issues:
        raise SpecError(issues)


def _no_lock_note(named: Named) -> str:
    name = named.environment.name
    return (
        f"{name}: nothing to build, it has no lock ({named.environment.position}). "
        f"To have it built, write {name}.txt into {shown_path(named.lock_dirs[0])}."
    )


def _own_note(named: Named) -> str:
    return f"{named.environment.name}: nothing to build, its interpreter is named by hand."


def _has_own(named: Named, own: Mapping[str, Own]) -> bool:
    environment = named.environment
    return environment.name in own or environment.python is not None or environment.command is not None


def _one_each(paths: Sequence[Path]) -> tuple[Lock, ...]:
    """The locks of these files, one for each name; raises BuildError where files of one name differ."""
    locks: dict[str, Lock] = {}
    for path in paths:
        lock = read_lock(path)
        other = locks.setdefault(lock.name, lock)
        if other.digest != lock.digest:
            raise BuildError(
                f"Two different locks are called {lock.name}: {shown_path(other.path)} and {shown_path(path)}. "
                "Rename one of them, with its environments."
            )
    return tuple(locks.values())
