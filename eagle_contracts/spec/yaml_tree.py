"""YAML text to plain data with a position for every key and value; refuses all that is not plain data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml

from eagle_contracts.spec.document import Mark, Path_, make_position
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, in_order, suggest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.scalars import resolve_plain

MAX_ALIASED: Final = 10_000
MAX_DEPTH: Final = 100
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Node:
    """A scalar, list or map as written; `parts` of a map alternate between keys and values."""

    kind: Literal["scalar", "list", "map"]
    mark: Mark
    scalar: bool | int | float | str | None = None
    text: str = ""
    plain: bool = False
    parts: list[_Node] = field(default_factory=list)
    alias_marks: dict[int, Mark] = field(default_factory=dict)
    closed: bool = False


def parse(
    text: str, shown: str, lines: tuple[str, ...], origin: str | None = None, empty: str | None = None
) -> tuple[object, dict[Path_, Mark], dict[Path_, Mark]]:
    """Return the data, the marks of its values and the marks of its keys; raises SpecError with all mistakes.

    `empty` is what to do about a text without data.
    """
    composer = _Composer(text, shown, lines, origin)
    root = composer.compose(empty)
    builder = _Builder(composer)
    data = builder.build(root, (), 0)
    issues = composer.issues + builder.issues
    if issues:
        raise SpecError(in_order(dict.fromkeys(issues)))
    return data, builder.values, builder.keys


class _Composer:
    """Turns the parser's events into one tree of nodes, without recursion."""

    def __init__(self, text: str, shown: str, lines: tuple[str, ...], origin: str | None) -> None:
        self.issues: list[SpecIssue] = []
        self._text, self._shown, self._lines, self._origin = text, shown, lines, origin
        self._starts = _line_starts(text)
        self._anchors: dict[str, _Node] = {}
        self._open: list[_Node] = []
        self._root: _Node | None = None
        self._documents = 0

    def compose(self, empty: str | None) -> _Node:
        for event in self._events():
            self._take(event)
        if self._root is None or (self._root.plain and not self._root.text):
            raise fail(self.position((1, 1)), "is empty", empty)
        return self._root

    def position(self, mark: Mark) -> Position:
        return make_position(self._shown, self._lines, mark, self._origin)

    def _events(self) -> Iterator[Any]:
        try:
            yield from yaml.parse(self._text, Loader=_LOADER)
        except yaml.reader.ReaderError as error:
            # The position is counted in bytes by one of PyYAML's two readers, and in characters by the other.
            code = error.character if isinstance(error.character, int) else ord(error.character[:1])
            mark = self._mark_at(max(0, self._text.find(chr(code))))
            raise fail(self.position(mark), f"the character U+{code:04X} is not allowed in YAML") from None
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except UnicodeEncodeError as error:
            raise fail(self.position(self._mark_at(error.start)), "is not valid text", "save it as UTF-8") from None

    def _syntax(self, error: yaml.MarkedYAMLError) -> SpecError:
        at = error.problem_mark or error.context_mark
        index = at.index if at is not None else 0
        position = self.position(self._mark_at(index))
        if self._text[index : index + 1] == "\t":
            return fail(position, "a tab cannot indent YAML", "indent with spaces")
        if "nesting depth" in str(error.problem):
            return self._too_deep(self._mark_at(index))
        context = f", {error.context}" if error.context else ""
        return fail(position, f"is not YAML: {error.problem}{context}")

    def _take(self, event: Any) -> None:
        mark = self._mark_at(event.start_mark.index)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise fail(self.position(mark), "a second document starts here", "keep one document in each file")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._attach(self._scalar(event, mark), event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            kind: Literal["list", "map"] = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
            node = _Node(kind, mark)
            self._attach(node, event)
            self._open.append(node)
            if len(self._open) > MAX_DEPTH:
                raise self._too_deep(mark)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._open.pop().closed = True

    def _scalar(self, event: Any, mark: Mark) -> _Node:
        plain = bool(event.implicit[0]) and not event.style
        text: str = event.value
        value: bool | int | float | str | None = text
        if plain:
            try:
                value = resolve_plain(text)
            except ValueError:
                self._issue(mark, f"a number of {len(text)} digits is too long")
        return _Node("scalar", mark, scalar=value, text=text, plain=plain, closed=True)

    def _attach(self, node: _Node, event: Any) -> None:
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._issue(node.mark, f"the tag {tag} is not allowed", "write plain values; quote what must stay text")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._append(node)

    def _append(self, node: _Node) -> None:
        if self._open:
            self._open[-1].parts.append(node)
        else:
            self._root = node

    def _alias(self, name: str, mark: Mark) -> None:
        node = self._anchors.get(name)
        if node is None:
            raise fail(self.position(mark), f"no anchor &{name} comes before *{name}", suggest(name, self._anchors))
        if not node.closed:
            raise fail(self.position(mark), f"*{name} stands inside its own anchor &{name}")
        self._open[-1].alias_marks[len(self._open[-1].parts)] = mark
        self._append(node)

    def _too_deep(self, mark: Mark) -> SpecError:
        return fail(self.position(mark), f"is nested more than {MAX_DEPTH} levels deep")

    def _issue(self, mark: Mark, message: str, hint: str | None = None) -> None:
        self.issues.append(SpecIssue(position=self.position(mark), message=message, hint=hint))

    def _mark_at(self, index: int) -> Mark:
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1


class _Builder:
    """Turns nodes into data, expanding aliases within bounds."""

    def __init__(self, composer: _Composer) -> None:
        self.issues: list[SpecIssue] = []
        self.values: dict[Path_, Mark] = {}
        self.keys: dict[Path_, Mark] = {}
        self._position = composer.position
        self._aliased = 0
        self._alias: Mark | None = None

    def build(self, node: _Node, path: Path_, depth: int) -> object:
        self._count(node, depth)
        self.values[path] = node.mark
        if node.kind == "scalar":
            return node.scalar
        if node.kind == "list":
            return [self._part(node, index, (*path, index), depth) for index in range(len(node.parts))]
        return self._map(node, path, depth)

    def _count(self, node: _Node, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise fail(self._position(self._alias or node.mark), f"is nested more than {MAX_DEPTH} levels deep")
        if self._alias is not None:
            self._aliased += 1
            if self._aliased > MAX_ALIASED:
                raise fail(self._position(self._alias), f"aliases expand to more than {MAX_ALIASED:,} values")

    def _part(self, parent: _Node, index: int, path: Path_, depth: int) -> object:
        outer = self._alias
        self._alias = outer or parent.alias_marks.get(index)
        data = self.build(parent.parts[index], path, depth + 1)
        self._alias = outer
        return data

    def _map(self, node: _Node, path: Path_, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for index in range(0, len(node.parts), 2):
            key = node.parts[index]
            mark = node.alias_marks.get(index, key.mark)
            if self._is_key(key, mark):
                self._check_duplicate((*path, key.text), mark)
                self.keys[(*path, key.text)] = mark
                result[key.text] = self._part(node, index + 1, (*path, key.text), depth)
        return result

    def _is_key(self, key: _Node, mark: Mark) -> bool:
        if key.kind != "scalar":
            self._issue(mark, f"a {key.kind} cannot be a key", "quote values that begin with { or [")
        elif key.plain and key.text == "<<":
            self._issue(mark, "<< does not merge in YAML 1.2", "write the keys out")
        else:
            return True
        return False

    def _check_duplicate(self, path: Path_, mark: Mark) -> None:
        first = self.keys.get(path)
        if first is not None:
            self._issue(mark, f"the key '{clip(str(path[-1]))}' is written twice", f"it stands in line {first[0]} too")

    def _issue(self, mark: Mark, message: str, hint: str | None = None) -> None:
        self.issues.append(SpecIssue(position=self._position(mark), message=message, hint=hint))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for index, char in enumerate(text):
        if char == "\n" or (char == "\r" and text[index + 1 : index + 2] != "\n"):
            starts.append(index + 1)
    return starts
