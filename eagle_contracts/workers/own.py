"""A user's own interpreters, from HOME/environments.yaml. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagle_contracts.spec.document import Document, load_yaml
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
from eagle_contracts.spec.position import Position
from eagle_contracts.workers.locks import shown_path

FILE: Final = "environments.yaml"
_KEYS: Final = ("python", "command")
_FORMS: Final = "write `NAME: {python: PATH}` or `NAME: {command: [WORD, ...]}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """An interpreter that a user named: a path, or a command's words; the other one is None."""

    python: str | None
    command: tuple[str, ...] | None
    position: Position


def own_interpreters(home: Path) -> Mapping[str, Own]:
    """The entries of HOME/environments.yaml by environment name; none where there is no file.

    Raises SpecError with every mistake in the file.
    """
    path = home / FILE
    if not path.is_file():
        return {}
    document = load_yaml(path, shown=shown_path(path), empty=_FORMS)
    issues: list[SpecIssue] = []
    entries = _entries(document, issues)
    if issues:
        raise SpecError(issues)
    return entries


def _entries(document: Document, issues: list[SpecIssue]) -> dict[str, Own]:
    if not isinstance(document.data, dict):
        issues.append(_issue(document.at(), "expected a map of environments", _FORMS))
        return {}
    return {name: _entry(document, name, data, issues) for name, data in document.data.items()}


def _entry(document: Document, name: str, data: object, issues: list[SpecIssue]) -> Own:
    position = document.key_at(name)
    keys = list(data) if isinstance(data, dict) else []
    strange = [key for key in keys if key not in _KEYS]
    issues += [_issue(document.key_at(name, key), f"unknown key '{key}'", suggest(key, _KEYS)) for key in strange]
    if not isinstance(data, dict) or (len(keys) != 1 and not strange):
        issues.append(_issue(position, f"'{name}' needs one of python and command", _FORMS))
        return Own(python=None, command=None, position=position)
    python, command = data.get("python"), data.get("command")
    if "python" in data and not (isinstance(python, str) and python):
        issues.append(_issue(document.at(name, "python"), "expected a path", _FORMS))
    if "command" in data and not _is_words(command):
        issues.append(_issue(document.at(name, "command"), "expected a list of words", _FORMS))
    words = tuple(command) if isinstance(command, list) and _is_words(command) else None
    return Own(python=python if isinstance(python, str) else None, command=words, position=position)


def _is_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word for word in value)


def _issue(position: Position, message: str, hint: str | None) -> SpecIssue:
    return SpecIssue(position=position, message=message, hint=hint)
