"""Which interpreter runs an environment's code, or why there is none. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagle_contracts.spec.model import Environment
from eagle_contracts.workers.interpreters import Refused, ask, locate
from eagle_contracts.workers.locks import (
    BASE,
    engine_locks,
    file_digest,
    find_lock,
    lock_named,
    normalized,
    shown_path,
)
from eagle_contracts.workers.manifest import Manifest, environment_folder, import_paths, read_manifest
from eagle_contracts.workers.own import FILE, Own, own_interpreters

SYNC: Final = "eagle-contracts env sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """How to start an environment's interpreter.

    `env` is to be set over the process environment. `label` names the environment in ids. `engine_version` is None
    where it cannot be known without starting the command. `source` says in words where the interpreter comes from.
    `folders` are those that its engine is imported from, where they are known to be all.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    label: str
    engine_version: str | None
    source: str
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Why an environment cannot run: `reason` is the code of the verdict, `message` ends with what to do."""

    reason: str
    message: str


def resolve(
    environment: Environment,
    home: Path,
    lock_dirs: Sequence[Path],
    *,
    among: Mapping[str, Environment] | None = None,
    folder: Path | None = None,
) -> Resolved | Unavailable:
    """Find the interpreter of an environment.

    In this order: HOME/environments.yaml, the entry's own `python` or `command`, the environment built for its lock,
    and the interpreter that runs this. `among` holds the pipeline's environments, `folder` is where a relative `python`
    of the entry starts (default: the current one). Raises SpecError for mistakes in environments.yaml and for a `lock`
    that names no file.
    """
    try:
        return _resolve(environment, home, lock_dirs, among or {}, folder or Path.cwd())
    except Refused as refused:
        return Unavailable(reason="environment", message=str(refused))


def _resolve(
    environment: Environment,
    home: Path,
    lock_dirs: Sequence[Path],
    among: Mapping[str, Environment],
    folder: Path,
) -> Resolved:
    own = own_interpreters(home).get(environment.name)
    if own is not None:
        return _own(environment, own, home.parent)
    if environment.python is not None or environment.command is not None:
        position = environment.position
        entry = Own(python=environment.python, command=environment.command, position=position)
        return _own(environment, entry, folder)
    lock = find_lock(environment, lock_dirs, among)
    if lock is not None and environment_folder(home, lock.stem).exists():
        return _built(environment, home, lock, lock_named(BASE, lock_dirs))
    here = _here(environment)
    if here is None:
        raise Refused(_nothing(environment, lock, home, lock_dirs))
    return here


def _own(environment: Environment, own: Own, folder: Path) -> Resolved:
    """The interpreter that a user named; a command is not started, since it may be a container or another machine."""
    if own.command is not None:
        return Resolved(
            command=own.command,
            env={},
            label=environment.name,
            engine_version=None,
            source=f"command at {own.position}",
        )
    python = locate(str(own.python), folder)
    version = ask(python, environment.engine, str(own.position))
    return Resolved(
        command=(str(python),),
        env={},
        label=environment.name,
        engine_version=version,
        source=f"interpreter at {own.position}",
    )


def _built(environment: Environment, home: Path, lock: Path, base_lock: Path | None) -> Resolved:
    folder = environment_folder(home, lock.stem)
    manifest = _usable(folder, lock, environment)
    base = _usable(environment_folder(home, BASE), base_lock, environment)
    command = f"{SYNC} {environment.name}"
    if (manifest.python, manifest.torch) != (base.python, base.torch):
        raise Refused(f"{shown_path(folder)} was built on another base. Build it again: {command}")
    paths = import_paths(folder, manifest)
    if not all(path.is_dir() for path in paths) or not Path(manifest.python).exists():
        raise Refused(f"{shown_path(folder)} has lost files since it was built. Build it again: {command}")
    version = _locked_version(environment, manifest, lock)
    python_path = os.pathsep.join(map(str, paths))
    return Resolved(
        command=(manifest.python,),
        env={"PYTHONPATH": python_path},
        label=environment.name,
        engine_version=version,
        source=f"built from {shown_path(lock)}",
        folders=tuple(paths),
    )


def _usable(folder: Path, lock: Path | None, environment: Environment) -> Manifest:
    manifest = read_manifest(folder)
    command = f"{SYNC} {environment.name}"
    if manifest is None or not manifest.complete:
        raise Refused(f"{shown_path(folder)} is only half built. Build it again: {command}")
    if lock is None or manifest.lock_digest != file_digest(lock):
        named = shown_path(lock) if lock is not None else f"{folder.name}.txt"
        raise Refused(f"{named} has changed since {shown_path(folder)} was built. Build it again: {command}")
    return manifest


def _locked_version(environment: Environment, manifest: Manifest, lock: Path) -> str | None:
    engine = environment.engine
    if engine is None:
        return None
    version = manifest.versions.get(normalized(engine.name))
    if version is None or not engine.contains(version):
        has = f"{engine.name} {version}" if version else f"no {engine.name}"
        raise Refused(
            f"{environment.position} asks for {engine}, and {shown_path(lock)} has {has}. "
            "Change one of the two, or give the environment another lock."
        )
    return version


def _here(environment: Environment) -> Resolved | None:
    """The interpreter that runs this, if it has the engine in a version that the entry accepts.

    It keeps its PYTHONPATH, on which images for serving often have their engine.
    """
    engine, label, version = environment.engine, environment.name, None
    if engine is not None:
        try:
            version = importlib.metadata.version(engine.name)
        except importlib.metadata.PackageNotFoundError:
            return None
        if not engine.contains(version):
            return None
        label = label if engine.pinned else f"{label}-{version}"
    env = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    return Resolved(command=(sys.executable,), env=env, label=label, engine_version=version, source="this interpreter")


def _nothing(environment: Environment, lock: Path | None, home: Path, lock_dirs: Sequence[Path]) -> str:
    if lock is not None:
        return f"The environment '{environment.name}' is not built. Build it: {SYNC} {environment.name}"
    known = ", ".join(engine_locks(lock_dirs)) or "none"
    name = environment.name
    return (
        f"The environment '{name}' ({environment.position}) has no interpreter: {environment.engine} is not installed "
        f"here, and no lock has its name (locks: {known}). Name an interpreter in {shown_path(home / FILE)}, or write "
        f"{name}.txt beside the other locks and build it: {SYNC} {name}"
    )
