"""The verbs of a break that act on what `from` gives: swap and drop. Runs inside a worker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def in_files(files: Path, scratch: Path, broken: dict[str, Any]) -> Path:
    """Return a copy of a dump with two files exchanged, or one left out, in every request's folder."""
    copy = scratch.with_name(f"{scratch.name}.{files.name}.broken")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(files, copy)
    for place in (p for p in copy.iterdir() if p.is_dir()):
        if "drop" in broken:
            (place / f"{broken['drop']}.pt").unlink()
            continue
        one, other = (place / f"{name}.pt" for name in broken["swap"])
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
    return copy


def in_sample(sample: dict[str, Any], upstream: dict[str, Any], broken: dict[str, Any]) -> dict[str, Any]:
    """Return a sample with two upstream tensors exchanged, or one left out, wherever its lists hold them."""
    return {
        key: _in_list(value, upstream, broken) if isinstance(value, list) else value for key, value in sample.items()
    }


def _in_list(parts: list[Any], upstream: dict[str, Any], broken: dict[str, Any]) -> list[Any]:
    from eagle_contracts.subjects.provenance import whose

    names = [whose(part, [upstream])["name"] for part in parts]
    if "drop" in broken:
        _known([broken["drop"]], names)
        return [part for part, name in zip(parts, names, strict=True) if name != broken["drop"]]
    one, other = broken["swap"]
    _known([one, other], names)
    exchanged = {one: other, other: one}
    return [parts[names.index(exchanged.get(name, name))] for name in names]


def _known(wanted: list[str], names: list[Any]) -> None:
    for name in wanted:
        if name not in names:
            raise LookupError(f"the break names {name}, and the input holds {', '.join(map(str, names))}")
