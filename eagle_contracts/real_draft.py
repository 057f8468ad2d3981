"""How wide a real draft's `fc` is, from its config.json and its checkpoint's header: no weights are read, no torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FC = ("fc.weight", "model.fc.weight")
_MOST_HEADER = 100 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RealWidth:
    """How many values `fc` reads for a token, and the file that says so."""

    width: int
    where: str


def fc_widths(config: Path, hidden: int | None) -> tuple[RealWidth, ...]:
    """Return the width by a draft's config.json, and by the checkpoint beside it if there is one.

    `hidden` is the target's hidden size, where the draft's config does not repeat it. What cannot be read is left out
    of the answer only if it is not there: a damaged header raises `ValueError`.
    """
    return (*_by_config(config, hidden), *_by_checkpoint(config.parent))


def _by_config(path: Path, hidden: int | None) -> Iterator[RealWidth]:
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    count = _states(config)
    given = config.get("target_hidden_size") or hidden or config.get("hidden_size")
    if isinstance(given, int):
        yield RealWidth(width=count * given, where=path.name)


def _states(config: Mapping[str, Any]) -> int:
    """Return how many states the config names: a count, a list inside `eagle_config`, or one at the top; else 3."""
    count = config.get("num_aux_hidden_states")
    if isinstance(count, int):
        return count
    nested = config.get("eagle_config")
    places = [nested if isinstance(nested, Mapping) else {}, config]
    lists = [place.get("eagle_aux_hidden_state_layer_ids") for place in places]
    return next((len(one) for one in lists if isinstance(one, list) and one), 3)


def _by_checkpoint(folder: Path) -> Iterator[RealWidth]:
    for file in sorted(folder.glob("*.safetensors")):
        header = read_header(file)
        for name in FC:
            if name in header:
                yield RealWidth(width=int(header[name]["shape"][1]), where=f"{file.name} ({name})")


def read_header(file: Path) -> dict[str, Any]:
    """Return a safetensors file's header: each tensor's type, shape and place; raises `ValueError` if it is damaged."""
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MOST_HEADER, file.stat().st_size - 8):
            raise ValueError(f"{file.name} is no safetensors file: its header would be {length} bytes long")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise ValueError(f"{file.name} is no safetensors file: its header is no JSON") from error
    if not isinstance(header, dict):
        raise ValueError(f"{file.name} is no safetensors file: its header is no map")
    return header
