"""Asking an interpreter that a user named which Python and which engine it has. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

from eagle_contracts.spec.model import Requirement

OLDEST: Final = (3, 10)
_PATIENCE: Final = 30.0

# Old enough to run on any Python 3, so that an old one can be named.
_QUESTION: Final = """
import json, sys
answer = {"python": list(sys.version_info[:2]), "engine": None}
try:
    from importlib import metadata
    if sys.argv[1:]:
        answer["engine"] = metadata.version(sys.argv[1])
except Exception:
    pass
print(json.dumps(answer))
"""


class Refused(Exception):
    """Why an interpreter cannot be used, in sentences for its user."""


def locate(text: str, folder: Path) -> Path:
    """The absolute path of an interpreter.

    `~` is expanded, a bare name is looked up on PATH, a relative path starts in `folder`.
    Links are kept: a virtual environment is selected by its link.
    """
    path = Path(text).expanduser()
    if "/" not in text:
        return Path(shutil.which(text) or text)
    return path if path.is_absolute() else (folder / path).absolute()


def ask(python: Path, engine: Requirement | None, named_at: str) -> str | None:
    """The version of the engine that an interpreter has; None without an engine.

    Raises Refused, naming the place `named_at`, if the interpreter is missing, does not run, is too old, or has no
    engine in the range.
    """
    if not python.exists():
        raise Refused(f"{python}, named at {named_at}, does not exist. Correct the path there.")
    answer = _answer(python, engine.name if engine else None)
    if isinstance(answer, str):
        raise Refused(f"{python}, named at {named_at}, {answer}. Correct the path there.")
    version = tuple(answer["python"])
    if version < OLDEST:
        shown, oldest = ".".join(map(str, version)), ".".join(map(str, OLDEST))
        raise Refused(f"{python}, named at {named_at}, is Python {shown}. Name one of Python {oldest} or newer there.")
    return _in_range(answer["engine"], engine, python, named_at)


def _in_range(found: str | None, engine: Requirement | None, python: Path, named_at: str) -> str | None:
    if engine is None:
        return None
    if found is None or not engine.contains(found):
        has = f"{engine.name} {found}" if found else f"no {engine.name}"
        raise Refused(f"{python}, named at {named_at}, has {has}. Install {engine} there.")
    return found


@cache
def _answer(python: Path, package: str | None) -> Any:
    """What an interpreter says of itself, or in words why it says nothing.

    Asked once in a run, since it costs a start of Python.
    """
    command = [str(python), "-c", _QUESTION, *([package] if package else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"gave no answer within {_PATIENCE:g} seconds"
    except PermissionError:
        return "is a folder" if python.is_dir() else "may not be executed"
    except (OSError, ValueError, subprocess.SubprocessError):
        return "does not run as a Python interpreter"
