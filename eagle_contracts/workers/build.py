"""Building environments: into a scratch folder, renamed when complete, one builder at a time. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from eagle_contracts.project import HOME_VARIABLE
from eagle_contracts.workers.base import build_base, counted, current_base
from eagle_contracts.workers.locks import BASE, Lock
from eagle_contracts.workers.manifest import (
    FILE,
    Manifest,
    environment_folder,
    installed_versions,
    is_intact,
    read_manifest,
    write_manifest,
)
from eagle_contracts.workers.pip import NO_ROOM, BuildError, Pip
from eagle_contracts.workers.progress import Progress

_SITE: Final = "site"


def sync(
    home: Path,
    base_lock: Lock,
    locks: Sequence[Lock],
    progress: Progress,
    *,
    base: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, bool]:
    """Build the base and an overlay for each lock, as far as they are not built already; return which were built now.

    `base` is a virtual environment to use as the base; without one, the recorded base or a new one. `environ` is what
    pip sees. Raises BuildError; what was being built is then gone, and what was complete before is as it was.
    """
    folder = home / "env"
    new: dict[str, bool] = {}
    with _writing(folder), _only_builder(folder, progress) as descriptor:
        _remove_leftovers(folder)
        with _scratch(folder, "base") as scratch:
            pip_of = partial(_pip, BASE, scratch, (descriptor,), environ)
            built, new[BASE] = _sync_base(home, base_lock, base, pip_of, progress)
        for number, lock in enumerate(locks, start=1):
            with _scratch(folder, lock.name) as scratch:
                pip = _pip(lock.name, scratch, (descriptor,), environ, Path(built.python))
                new[lock.name] = _sync_overlay(home, lock, built, pip, progress, f"{number} of {len(locks)}")
    return new


def is_current(folder: Path, lock: Lock, base: Manifest) -> bool:
    """Whether an overlay is complete, of this lock, on this base, and all there."""
    manifest = read_manifest(folder)
    if manifest is None or not manifest.complete or manifest.lock_digest != lock.digest:
        return False
    return (manifest.python, manifest.torch) == (base.python, base.torch) and is_intact(folder, manifest)


def _pip(name: str, scratch: Path, keep: tuple[int, ...], environ: Mapping[str, str], python: Path) -> Pip:
    return Pip(name=name, python=python, scratch=scratch, keep=keep, environ=environ)


def _sync_base(
    home: Path, lock: Lock, venv: Path | None, pip_of: Callable[[Path], Pip], progress: Progress
) -> tuple[Manifest, bool]:
    built = current_base(home, lock, venv)
    if built is None:
        return build_base(home, lock, venv, pip_of, progress), True
    progress.say("base: up to date")
    return built, False


def _sync_overlay(home: Path, lock: Lock, base: Manifest, pip: Pip, progress: Progress, which: str) -> bool:
    target = environment_folder(home, lock.name)
    if is_current(target, lock, base):
        progress.say(f"{lock.name}: up to date")
        return False
    new = pip.scratch / lock.name
    site = new / _SITE
    site.mkdir(parents=True)
    progress.start(lock.name, len(lock.pins), f"{_verb(target)} {counted(len(lock.pins))} ({which})")
    pip.install(["--no-deps", "--target", str(site), "--requirement", str(lock.path)], progress.update)
    manifest = _manifest(lock, base, site)
    write_manifest(new, manifest)
    _put_in_place(new, target, pip.scratch)
    progress.finish("built")
    return True


def _manifest(lock: Lock, base: Manifest, site: Path) -> Manifest:
    """What was built; raises BuildError if a distribution of the lock is not there."""
    found = installed_versions(site)
    missing = sorted(set(lock.pins) - set(found))
    if missing:
        raise BuildError(
            f"{lock.name} was not built: pip reported success, but these are not installed: {', '.join(missing)}."
        )
    return Manifest(
        name=lock.name,
        python=base.python,
        paths=(_SITE,),
        lock_digest=lock.digest,
        torch=base.torch,
        versions=found,
        complete=True,
    )


def _verb(target: Path) -> str:
    if not target.exists():
        return "installing"
    return "installing again" if (target / FILE).exists() else "half built; installing again"


def _put_in_place(new: Path, target: Path, scratch: Path) -> None:
    """Exchange the old folder for the new one; what is killed in between is seen as not built."""
    if target.exists():
        target.rename(scratch / "old")
    new.rename(target)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Make the folder of environments; raises BuildError where it cannot be made or the disk does not take more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        yield
    except OSError as error:
        raise BuildError(_unwritable(folder, error)) from error


def _unwritable(folder: Path, error: OSError) -> str:
    why = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"There is no room for environments in {folder} ({why}).\n{NO_ROOM}"
    return (
        f"Environments cannot be kept in {folder} ({why}).\n"
        f"Make it writable, or name another folder: {HOME_VARIABLE}=FOLDER eagle-contracts env sync"
    )


@contextmanager
def _scratch(folder: Path, name: str) -> Iterator[Path]:
    """A folder for what is not complete, on the same disk; its name cannot be that of an environment."""
    path = folder / f".{name}.{os.getpid()}.tmp"
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove the scratch folders of builders that were killed; the caller holds the builders' lock."""
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _only_builder(folder: Path, progress: Progress) -> Iterator[int]:
    """Hold the builders' lock; its descriptor goes to pip, so that a pip that outlives us still holds it."""
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            progress.say(f"Waiting: another `eagle-contracts env sync` (process {holder}) is building here.")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()
