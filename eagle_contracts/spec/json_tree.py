"""JSON text to plain data with a position for every key and value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eagle_contracts.spec.document import Mark, Path_, make_position
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.position import Position

_TOKEN: Final = re.compile(r'\r\n|[\r\n]|"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(slots=True)
class _Level:
    """An open list or object: the next index, or the key whose value comes next."""

    path: Path_
    is_map: bool
    index: int = 0
    key: str | None = None


def parse(text: str, shown: str, lines: tuple[str, ...]) -> tuple[object, dict[Path_, Mark], dict[Path_, Mark]]:
    """Return the data, the marks of its values and the marks of its keys; raises SpecError with a position."""

    def position(mark: Mark) -> Position:
        return make_position(shown, lines, mark)

    data = _load(text, position)
    scanner = _Scanner(position)
    scanner.scan(text)
    if scanner.issues:
        raise SpecError(scanner.issues)
    return data, scanner.values, scanner.keys


def _load(text: str, position: Callable[[Mark], Position]) -> object:
    if not text.strip():
        raise fail(position((1, 1)), "is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        mark = _mark_at(text, error.pos)
        raise fail(position(mark), f"is not JSON: {error.msg[0].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise fail(position((1, 1)), "is nested too deep") from None
    except ValueError:
        raise fail(position((1, 1)), "holds a number with too many digits") from None


class _Scanner:
    """Walks the tokens of text that json.loads has accepted, and notes where each key and value starts."""

    def __init__(self, position: Callable[[Mark], Position]) -> None:
        self.issues: list[SpecIssue] = []
        self.values: dict[Path_, Mark] = {}
        self.keys: dict[Path_, Mark] = {}
        self._position = position
        self._levels: list[_Level] = []

    def scan(self, text: str) -> None:
        line, start = 1, 0
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token[0] in "\r\n":
                line, start = line + 1, match.end()
            else:
                self._take(token, (line, match.start() - start + 1))

    def _take(self, token: str, mark: Mark) -> None:
        if token in "}]":
            self._levels.pop()
        elif token == ",":
            level = self._levels[-1]
            level.index, level.key = level.index + 1, None
        elif token != ":":
            self._key_or_value(token, mark)

    def _key_or_value(self, token: str, mark: Mark) -> None:
        level = self._levels[-1] if self._levels else None
        if level is not None and level.is_map and level.key is None:
            self._key(level, json.loads(token), mark)
            return
        path: Path_ = ()
        if level is not None:
            path = (*level.path, level.index if level.key is None else level.key)
        self.values[path] = mark
        if token in "{[":
            self._levels.append(_Level(path, token == "{"))

    def _key(self, level: _Level, key: str, mark: Mark) -> None:
        level.key = key
        path = (*level.path, key)
        first = self.keys.get(path)
        if first is not None:
            message = f"the key '{clip(key)}' is written twice"
            hint = f"it stands in line {first[0]} too"
            self.issues.append(SpecIssue(position=self._position(mark), message=message, hint=hint))
        self.keys[path] = mark


def _mark_at(text: str, index: int) -> Mark:
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, index - max(text.rfind("\n", 0, index), text.rfind("\r", 0, index))
