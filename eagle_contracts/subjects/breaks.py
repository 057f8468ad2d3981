"""The verbs of a break that act on what `from` gives: swap and drop. Runs inside a worker."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any


class BreakFailed(Exception):
    """A break that finds nothing to act on; the first line is the sentence."""


def in_files(folder: Path, broken: dict[str, Any]) -> None:
    """Exchange two files of a dump, or remove one, in every request's folder."""
    for place in sorted(p for p in folder.iterdir() if p.is_dir()):
        names = sorted(file.stem for file in place.glob("*.pt"))
        if "drop" in broken:
            _known([broken["drop"]], names)
            (place / f"{broken['drop']}.pt").unlink()
            continue
        _known(broken["swap"], names)
        one, other = (place / f"{name}.pt" for name in broken["swap"])
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)


def in_sample(sample: dict[str, Any], upstream: dict[str, Any], broken: dict[str, Any]) -> dict[str, Any]:
    """Return a sample with two upstream tensors exchanged, or one left out, wherever its lists hold them."""
    from eagle_contracts.subjects.provenance import whose

    names = {
        key: [whose(part, [upstream])["name"] for part in value]
        for key, value in sample.items()
        if isinstance(value, list)
    }
    wanted = [broken["drop"]] if "drop" in broken else list(broken["swap"])
    acted_on = [key for key, held in names.items() if set(wanted) <= set(held)]
    if not acted_on:
        _known(wanted, [name for held in names.values() for name in held])
    return {
        key: _in_list(value, names[key], broken, wanted) if key in acted_on else value for key, value in sample.items()
    }


def _in_list(parts: list[Any], names: list[Any], broken: dict[str, Any], wanted: list[Any]) -> list[Any]:
    if "drop" in broken:
        return [part for part, name in zip(parts, names, strict=True) if name not in wanted]
    exchanged = dict(zip(wanted, wanted[::-1], strict=True))
    return [parts[names.index(exchanged.get(name, name))] for name in names]


def in_slots(parts: list[Any], broken: dict[str, Any]) -> list[Any]:
    """Return slots, named slot_0 and on, with two exchanged or one left out."""
    names = [f"slot_{n}" for n in range(len(parts))]
    wanted = [broken["drop"]] if "drop" in broken else list(broken.get("swap", ()))
    _known(wanted, names)
    return _in_list(parts, names, broken, wanted)


def _known(wanted: list[str], names: list[Any]) -> None:
    there = [str(name) for name in names if name is not None]
    for name in wanted:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            advice = f"did you mean {near[0]}?" if near else f"it holds {', '.join(there) or 'nothing that was dumped'}"
            raise BreakFailed(f"the break names {name}, and what it acts on has none of that name\n{advice}")
