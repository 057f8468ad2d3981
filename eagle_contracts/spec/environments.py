"""The `environments` of a pipeline: what each one says, and what it inherits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecIssue, suggest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.located import check_references, names_at, pick, value_at
from eagle_contracts.spec.model import Environment, Requirement, Value
from eagle_contracts.spec.paths import is_file

_ROOMS: Final = ("python", "command", "lock")


def check_environments(document: Document, folder: Path, known: tuple[str, ...]) -> Iterator[SpecIssue]:
    """Yield what the schema cannot see: parents, engines, overlays, references, more than one interpreter."""
    entries = _entries(document)
    for name, entry in entries.items():
        yield from _check_parent(document, name, entries)
        yield from _check_engine(document, name, entry)
        yield from _check_overlay(document, name, entry, folder)
        yield from _check_rooms(document, name, entry)
        yield from check_references(document, ("environments", name, "set"), known)


def build_environments(document: Document) -> dict[str, Environment]:
    """Return the environments of a document that was found right, with all that `like` inherits filled in."""
    built: dict[str, Environment] = {}
    entries = _entries(document)
    for name in entries:
        for each in reversed(_ancestry(name, entries)):
            if each not in built:
                parent = built.get(str(entries[each].get("like")))
                built[each] = _build(document, each, entries[each], parent)
    return {name: built[name] for name in entries}


def _entries(document: Document) -> dict[str, dict[str, object]]:
    data = pick(document.data, ("environments",))
    items = data.items() if isinstance(data, dict) else ()
    return {name: entry for name, entry in items if isinstance(entry, dict)}


def _ancestry(name: str, entries: dict[str, dict[str, object]]) -> list[str]:
    """Return the name, its parent, and so on, up to the first that has none, is unknown, or came before."""
    chain: list[str] = []
    while name in entries and name not in chain:
        chain.append(name)
        name = str(entries[name].get("like"))
    return chain


def _check_parent(document: Document, name: str, entries: dict[str, dict[str, object]]) -> Iterator[SpecIssue]:
    parent = entries[name].get("like")
    if not isinstance(parent, str):
        return
    position = document.at("environments", name, "like")
    if parent not in entries:
        others = [other for other in entries if other != name]
        hint = suggest(parent, others, "environments")
        yield SpecIssue(position=position, message=f"there is no environment '{clip(parent)}'", hint=hint)
        return
    chain = _ancestry(name, entries)
    if entries[chain[-1]].get("like") == name:
        circle = " -> ".join([*chain, name])
        yield SpecIssue(position=position, message=f"like goes in a circle: {circle}")


def _check_engine(document: Document, name: str, entry: dict[str, object]) -> Iterator[SpecIssue]:
    engine = entry.get("engine")
    if not isinstance(engine, str):
        return
    try:
        Requirement.parse(engine)
    except ValueError as error:
        position = document.at("environments", name, "engine")
        yield SpecIssue(position=position, message=str(error), hint="write sglang==0.5.9 or sglang>=0.5.9,<0.6")


def _check_overlay(document: Document, name: str, entry: dict[str, object], folder: Path) -> Iterator[SpecIssue]:
    overlay = entry.get("overlay")
    if isinstance(overlay, dict):
        overlay = overlay.get("script")
    if not isinstance(overlay, str) or not overlay:
        return
    if overlay.startswith("$"):
        yield from check_references(document, ("environments", name, "overlay"), ())
    elif not is_file(folder / overlay):
        message = f"there is no file '{clip(overlay)}' beside {document.path.name}"
        yield SpecIssue(position=document.at("environments", name, "overlay"), message=message)


def _check_rooms(document: Document, name: str, entry: dict[str, object]) -> Iterator[SpecIssue]:
    given = [key for key in _ROOMS if key in entry]
    for key in given[1:]:
        message = f"'{key}' cannot stand beside '{given[0]}': each says where the code runs"
        yield SpecIssue(position=document.key_at("environments", name, key), message=message, hint="keep one of them")


def _build(document: Document, name: str, entry: dict[str, object], parent: Environment | None) -> Environment:
    base: tuple[str | int, ...] = ("environments", name)
    settings = {key: value_at(document, *base, "set", key) for key in _keys(entry.get("set"))}
    own_room = any(key in entry for key in _ROOMS)
    room = None if own_room else parent
    command = tuple(text for text, _ in names_at(document, *base, "command"))
    return Environment(
        name=name,
        roles=tuple(text for text, _ in names_at(document, *base, "role")),
        position=document.key_at(*base),
        engine=_engine(entry, parent),
        overlay=_overlay(document, base, entry, parent),
        set={**(parent.set if parent else {}), **settings},
        python=_text(entry, "python") or (room.python if room else None),
        command=command or (room.command if room else None),
        lock=_text(entry, "lock") or (room.lock if room else None),
        like=_text(entry, "like"),
    )


def _engine(entry: dict[str, object], parent: Environment | None) -> Requirement | None:
    text = _text(entry, "engine")
    if text is not None:
        return Requirement.parse(text)
    return parent.engine if parent else None


def _overlay(
    document: Document, base: tuple[str | int, ...], entry: dict[str, object], parent: Environment | None
) -> Value | None:
    if "overlay" in entry:
        return value_at(document, *base, "overlay")
    return parent.overlay if parent else None


def _text(entry: dict[str, object], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _keys(data: object) -> list[str]:
    return list(data) if isinstance(data, dict) else []
