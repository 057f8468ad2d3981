"""Runs a patch script that edits an installed package in place, on a copy of that package. Standard library only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from eagle_contracts.workers.overlays import OverlayError
from eagle_contracts.workers.store import sources_digest

SECONDS = 120


def run(script: str, shown: str, package: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the modules that a script edits or adds, and what they were, by dotted name.

    Raises `OverlayError` if the script fails, edits nothing, or reaches the installed package.
    """
    installed = _installed(package, shown)
    before = sources_digest([installed])
    with tempfile.TemporaryDirectory(prefix="eagle_contracts_patch_") as scratch:
        copy = Path(scratch) / package
        shutil.copytree(installed, copy, ignore=_python_only)
        _run(script, shown, Path(scratch), installed.parent)
        if sources_digest([installed]) != before:
            raise OverlayError(
                f"{shown}: the script changed the installed {package} itself, at {installed}: it finds its file by "
                f"another way than the import path or its current folder. Install {package} again before anything else"
            )
        edited, original = _changed(copy, installed, package)
    if not edited:
        raise OverlayError(f"{shown}: the script ran and edited nothing of {package}")
    return edited, original


def _installed(package: str, shown: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise OverlayError(f"{shown}: {package} is not installed, so there is nothing to patch")
    return Path(next(iter(spec.submodule_search_locations)))


def _python_only(folder: str, names: list[str]) -> list[str]:
    return [n for n in names if n == "__pycache__" or not (n.endswith(".py") or os.path.isdir(os.path.join(folder, n)))]


def _run(script: str, shown: str, scratch: Path, site: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(scratch), str(site)]), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, script], cwd=scratch, env=environ, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise OverlayError(f"{shown}: the script did not end within {SECONDS} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise OverlayError(f"{shown}: the script ended with status {done.returncode}: {last[0]}")


def _changed(copy: Path, installed: Path, package: str) -> tuple[dict[str, str], dict[str, str]]:
    edited, original = {}, {}
    for path in sorted(copy.rglob("*.py")):
        relative = path.relative_to(copy)
        source, counterpart = path.read_text(encoding="utf-8"), installed / relative
        old = counterpart.read_text(encoding="utf-8") if counterpart.is_file() else None
        if source != old:
            parts = relative.with_suffix("").parts
            name = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            edited[name] = source
            if old is not None:
                original[name] = old
    return edited, original
