"""How wide a real draft's `fc` is, from its config.json and its checkpoint's header: no weights are read, no torch."""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FC = ("fc.weight", "model.fc.weight")
IDS, COUNT, INDEX = "eagle_aux_hidden_state_layer_ids", "num_aux_hidden_states", "model.safetensors.index.json"
METADATA = "__metadata__"
_DEFAULT = 3
"""How many states SGLang's draft classes take where nothing says it."""
_MOST_HEADER = 100 * 2**20
BYTES: Mapping[object, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealWidth:
    """How many values `fc` reads for a token, and the file that says so; None for a checkpoint without `fc`."""

    width: int | None
    where: str


def fc_widths(config: Path, hidden: int | None) -> tuple[RealWidth, ...]:
    """Return the width by each place of a draft's config.json that says it, and by the checkpoint beside it, if any.

    A config that does not say how wide the target is means a target as wide as the draft, as engines take it; `hidden`
    is the target's hidden size, for a config that has neither. Damaged files raise `ValueError`.
    """
    return (*_by_config(config, hidden), *_by_checkpoint(config.parent, draft_hidden(config)))


def draft_hidden(config: Path) -> int | None:
    """Return the real draft's own hidden size; None where its config has none, or cannot be read."""
    try:
        size = map_in(config).get("hidden_size")
    except (OSError, ValueError):
        return None
    return size if isinstance(size, int) else None


def _by_config(path: Path, hidden: int | None) -> Iterator[RealWidth]:
    config = map_in(path)
    given = config.get("target_hidden_size") or config.get("hidden_size") or hidden
    if isinstance(given, int):
        for count, key in _states(config):
            yield RealWidth(width=count * given, where=f"{path.name} ({key})" if key else path.name)


def _states(config: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return how many states the config names, each with the key that does: a count, and lists of ids; else three."""
    nested = config.get("eagle_config")
    inside = nested if isinstance(nested, Mapping) else {}
    named = [(config.get(COUNT), COUNT), (inside.get(IDS), f"eagle_config.{IDS}"), (config.get(IDS), IDS)]
    counts = [(len(one) if isinstance(one, list) else one, key) for one, key in named if one]
    return [(n, key) for n, key in counts if isinstance(n, int) and not isinstance(n, bool)] or [(_DEFAULT, "")]


def _by_checkpoint(folder: Path, hidden: int | None) -> Iterator[RealWidth]:
    files = files_of(folder, only=FC)
    headers = {file: read_header(file) for file in files}
    found = [(file, name, header[name]) for file, header in headers.items() for name in FC if name in header]
    for file, name, entry in found:
        rows, columns = _shape(file, name, entry)
        if hidden is not None and rows != hidden:
            raise ValueError(f"{file.name} gives {name} {rows} rows, and the draft's hidden_size is {hidden}")
        yield RealWidth(width=columns, where=f"{file.name} ({name})")
    if files and not found:
        yield RealWidth(width=None, where=f"{', '.join(file.name for file in files[:3])} has no {min(FC)}")


def files_of(folder: Path, only: Sequence[str]) -> list[Path]:
    """Return a checkpoint's files: those that its index names, for the tensors `only` if it has one; else all."""
    if not is_there(folder / INDEX):
        return sorted(folder.glob("*.safetensors"))
    places = map_in(folder / INDEX).get("weight_map")
    if not isinstance(places, dict):
        raise ValueError(f"{INDEX} has no weight_map")
    named = sorted({str(file) for name, file in places.items() if name in only} or set(map(str, places.values())))
    for file in named:
        if Path(file).name != file or not is_there(folder / file):
            raise ValueError(f"{INDEX} names {file}, and there is no such file beside it")
    return [folder / file for file in named]


def is_there(path: Path) -> bool:
    """Tell whether anything stands at a path, a link to nothing among it."""
    return os.path.lexists(path)


def must_be_file(path: Path) -> None:
    """Raise `ValueError` for what stands at a path and is no file that can be read: a folder, a link to nothing."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if path.is_symlink():
            raise ValueError(f"{path.name} is a link to {os.readlink(path)}, and nothing is there") from error
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise ValueError(f"{path.name} is {kind}, not a file")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path.name} cannot be read: permission denied")


def _shape(file: Path, name: str, entry: Any) -> tuple[int, int]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(f"{file.name} gives {name} no shape of two whole numbers")
    each, held = bytes_each(entry), extent(entry)
    if each is None:
        raise ValueError(f"{file.name} gives {name} the type {entry.get('dtype')!s:.20}, which safetensors has not")
    if held is None or held[1] - held[0] != shape[0] * shape[1] * each:
        bytes_ = held[1] - held[0] if held else 0
        wanted = shape[0] * shape[1] * each
        raise ValueError(
            f"{file.name} keeps {bytes_} bytes for {name}, and {shape[0]} x {shape[1]} {entry['dtype']} are {wanted}"
        )
    return shape[0], shape[1]


def bytes_each(entry: Any) -> int | None:
    """Return how many bytes a value of a tensor's type takes; None for a type that safetensors has not."""
    named = entry.get("dtype") if isinstance(entry, dict) else None
    return BYTES.get(named) if isinstance(named, str) else None


def extent(entry: Any) -> tuple[int, int] | None:
    """Return where a tensor's bytes begin and end behind the header; None where that is not said."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(one) is int and one >= 0 for one in offsets):
        return None
    return offsets[0], offsets[1]


def map_in(path: Path) -> dict[str, Any]:
    """Return a JSON file's outermost map; raises `ValueError` that names the file."""
    must_be_file(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be read as JSON") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} holds no map")
    return data


def read_header(file: Path) -> dict[str, Any]:
    """Return a safetensors file's header: each tensor's type, shape and place; raises `ValueError` if it is damaged."""
    must_be_file(file)
    with file.open("rb") as stream:
        start = stream.read(8)
        if start == b"version ":
            raise ValueError(f"{file.name} is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`")
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MOST_HEADER, file.stat().st_size - 8):
            raise ValueError(f"{file.name} is no safetensors file: its header would be {length} bytes long")
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file.name} is no safetensors file: its header is no JSON") from error
    if not isinstance(header, dict):
        raise ValueError(f"{file.name} is no safetensors file: its header is no map")
    ends = [place[1] for entry in header.values() if (place := extent(entry)) is not None]
    there, wanted = file.stat().st_size, 8 + length + max(ends, default=0)
    if there < wanted or (there > wanted and all(extent(entry) for name, entry in header.items() if name != METADATA)):
        is_ = "is cut off" if there < wanted else "has more behind its last tensor"
        raise ValueError(f"{file.name} {is_}: it has {there} bytes, and its header speaks of {wanted}")
    return header
