"""One file, read into plain Python with the position of every key and value."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.position import Position as Position

Path_ = tuple[str | int, ...]
Mark = tuple[int, int]
MAX_BYTES = 1 << 20
EMPTY = "write `spec: 1` and the other keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data and where each part of it stands.

    `shown` is the path as messages print it. `data` is made of None, bool, int, float, str, list and dict with text
    keys. Paths are keys and list indices from the root.
    """

    path: Path
    shown: str
    data: object
    origin: str | None = None
    lines: tuple[str, ...] = field(default=(), repr=False)
    values: Mapping[Path_, Mark] = field(default_factory=dict, repr=False)
    keys: Mapping[Path_, Mark] = field(default_factory=dict, repr=False)

    def at(self, *path: str | int) -> Position:
        """Return the position of the value at `path`, or of its nearest parent that is there."""
        while path not in self.values and path:
            path = path[:-1]
        return self._position(self.values.get(path, (1, 1)))

    def key_at(self, *path: str | int) -> Position:
        """Return the position of the key at `path`; of the value where there is no key."""
        mark = self.keys.get(path)
        return self.at(*path) if mark is None else self._position(mark)

    def line(self, number: int) -> str:
        """Return the text of line `number`, counted from 1; empty where there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def _position(self, mark: Mark) -> Position:
        return make_position(self.shown, self.lines, mark, self.origin)


def make_position(shown: str, lines: tuple[str, ...], mark: Mark, origin: str | None = None) -> Position:
    """Return the Position of a (line, column) mark counted from 1, with the text of its line."""
    text = lines[mark[0] - 1] if 0 < mark[0] <= len(lines) else ""
    return Position(path=shown, line=mark[0], column=mark[1], origin=origin, text=text)


def load_yaml(path: Path, shown: str | None = None, *, empty: str = EMPTY) -> Document:
    """Read a YAML 1.2 file; raises SpecError with positions for anything that is not plain data.

    `empty` is the hint where the file holds nothing.
    """
    shown = shown or str(path)
    return parse_yaml(_read(path, shown), path=path, shown=shown, empty=empty)


def load_json(path: Path, shown: str | None = None) -> Document:
    """Read a JSON file; raises SpecError with positions for syntax errors and duplicate keys."""
    from eagle_contracts.spec.json_tree import parse

    shown = shown or str(path)
    text = _read(path, shown)
    lines = split_lines(text)
    data, values, keys = parse(text, shown, lines)
    return Document(path=path, shown=shown, data=data, lines=lines, values=values, keys=keys)


def parse_yaml(
    text: str,
    *,
    path: Path,
    shown: str,
    origin: str | None = None,
    lines: tuple[str, ...] | None = None,
    empty: str = EMPTY,
) -> Document:
    """Read YAML text; `lines` is what messages show, if it is not the text itself."""
    from eagle_contracts.spec.yaml_tree import parse

    shown_lines = split_lines(text) if lines is None else lines
    data, values, keys = parse(text, shown, shown_lines, origin, empty)
    return Document(path=path, shown=shown, data=data, origin=origin, lines=shown_lines, values=values, keys=keys)


def split_lines(text: str) -> tuple[str, ...]:
    r"""Return the lines of a text, split where YAML and JSON count them: at \n, \r\n and \r."""
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _kind(path: Path) -> str:
    return "a folder" if path.is_dir() else "a pipe, a socket or a device"


def _read(path: Path, shown: str) -> str:
    start = Position(path=shown, line=1, column=1)
    try:
        # A pipe without a writer would never end, and a device never run out.
        if not stat.S_ISREG(path.stat().st_mode):
            raise fail(start, f"is {_kind(path)}, not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise fail(start, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise fail(start, "is larger than 1 MiB", "no specification or config is that big: is this another file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        lines = split_lines(before)
        position = Position(path=shown, line=len(lines), column=len(lines[-1]) + 1)
        raise fail(position, f"is not UTF-8: byte 0x{raw[error.start]:02x}", "save the file as UTF-8") from None
