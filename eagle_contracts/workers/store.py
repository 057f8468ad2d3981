"""Observations on disk, by content: the same subject, parameters, engine and sources are run once and read afterwards.

A record is a folder `STORE/KEY` with `record.json` and whatever tensors the observation holds. It is made beside its
place and renamed, under a lock, so that two processes make it once and a killed one leaves nothing that looks whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

RECORD = "record.json"
KEPT_DAYS = 30
LEAST_FREE_BYTES = 1 << 16
_SCRATCH = ".making."
_THIS_RUN = secrets.token_hex(4)


def key_for_this_run(key: str) -> str:
    """Return the name of a record that no other run may read; the next run removes what this process leaves."""
    return f"{_SCRATCH}{os.getpid()}.{_THIS_RUN}.{key}"


def is_for_this_run(key: str) -> bool:
    """Tell whether a record is one that no other run may read."""
    return key.startswith(_SCRATCH)


class Store:
    """The folder of records; those made before `since`, in seconds since the epoch, are made again."""

    def __init__(self, folder: Path, *, since: float = 0.0) -> None:
        self.folder = folder
        self._since = since

    def path(self, key: str) -> Path:
        """Return where a record is, or will be."""
        return self.folder / key

    def read(self, key: str) -> Mapping[str, Any] | None:
        """Return a record, or None where there is none that this run may use."""
        try:
            record: dict[str, Any] = json.loads((self.path(key) / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if record.get("made", 0.0) < self._since:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path(key) / RECORD)
        return record

    def through(
        self,
        key: str,
        make: Callable[[Path], Mapping[str, Any] | None],
        *,
        usable: Callable[[], bool] | None = None,
    ) -> Mapping[str, Any] | None:
        """Return a record, made now if there is none or if it is not `usable`; None where `make` gives none.

        `make` is given an empty folder to leave files in. Another process that makes the same record is waited for, and
        only then is it asked whether the record is usable. Raises OSError where the disk does not take it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(key):
            found = self.read(key) if usable is None or usable() else None
            if found is not None:
                return found
            self._sweep()
            scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}.", dir=self.folder))
            try:
                record = make(scratch)
                if record is None:
                    return None
                record = {**record, "made": time.time()}
                self._keep(key, scratch, record)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            return record

    def _keep(self, key: str, scratch: Path, record: Mapping[str, Any]) -> None:
        """Put a record in its place; an older one is moved aside first, so that a reader hardly ever finds none."""
        (scratch / RECORD).write_text(json.dumps(record), encoding="utf-8")
        place, old = self.path(key), scratch.with_name(f"{scratch.name}.old")
        if place.exists():
            os.rename(place, old)
        os.rename(scratch, place)
        shutil.rmtree(old, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        locks = self.folder / ".locks"
        locks.mkdir(exist_ok=True)
        with open(locks / key[-2:], "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def close(self) -> None:
        """Remove this run's own records, and what no run has read for a month."""
        for left in self.folder.glob(f"{_SCRATCH}{os.getpid()}.*"):
            shutil.rmtree(left, ignore_errors=True)
        oldest = time.time() - KEPT_DAYS * 86_400
        for record in self.folder.glob(f"*/{RECORD}"):
            with contextlib.suppress(OSError):
                if record.stat().st_mtime < oldest:
                    shutil.rmtree(record.parent, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what killed processes left."""
        for left in self.folder.glob(f"{_SCRATCH}*"):
            pid = left.name.removeprefix(_SCRATCH).partition(".")[0]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)


def empty(folder: Path) -> None:
    """Remove what a folder holds."""
    shutil.rmtree(folder)
    folder.mkdir()


def is_full(folder: Path) -> bool:
    """Tell whether the disk below a folder has no room left for anything."""
    return shutil.disk_usage(folder).free < LEAST_FREE_BYTES


def key_of(*parts: object) -> str:
    """Return the name of a record: forty hex digits over everything that its content follows from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]


def sources_digest(folders: list[Path]) -> str:
    """Return a digest that changes when any Python file below changes: names, sizes and times of change."""
    digest = hashlib.sha256()
    for path in _python_files(folders):
        status = os.stat(path)
        digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]


def content_digest(folder: Path) -> str:
    """Return a digest over the Python files below, equal for a copy elsewhere; for folders of a few files."""
    digest = hashlib.sha256()
    for path in _python_files([folder]):
        with contextlib.suppress(OSError):
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            digest.update(f"{os.path.relpath(path, folder)}:{content}\n".encode())
    return digest.hexdigest()[:20]


def _python_files(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for root, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name != "__pycache__")
            yield from (os.path.join(root, name) for name in sorted(files) if name.endswith(".py"))
