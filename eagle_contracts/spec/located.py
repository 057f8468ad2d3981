"""Values with positions, and the references among them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecIssue, nearest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.model import SETTABLE, Ref, Value
from eagle_contracts.spec.position import Position

_ENV: Final = re.compile(r"env\.[A-Za-z_][A-Za-z0-9_]*")


def value_at(document: Document, *path: str | int) -> Value:
    """Return the document's value at `path`, with Ref objects for references and the position of every part."""
    places: dict[tuple[str | int, ...], Position] = {}
    data = _convert(document, path, (), pick(document.data, path), places)
    return Value(data=data, position=document.at(*path), places=places)


def check_references(document: Document, path: tuple[str | int, ...], known: Collection[str]) -> Iterator[SpecIssue]:
    """Yield an issue for every text under `path` that starts with `$` and names nothing in `known` nor `env.NAME`."""
    for place, text in _texts(pick(document.data, path), path):
        if text.startswith("$") and text[1:] not in known and _ENV.fullmatch(text[1:]) is None:
            yield SpecIssue(
                position=document.at(*place),
                message=f"the reference '{clip(text)}' names nothing",
                hint=_advice(text[1:], known),
            )


def pick(data: object, path: tuple[str | int, ...]) -> object:
    """Return the part of plain data at `path`, or None where there is none."""
    for key in path:
        if isinstance(data, dict) and isinstance(key, str):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


def names_at(document: Document, *path: str | int) -> list[tuple[str, Position]]:
    """Return the texts of one text or a list of them, with positions; whatever else stands there is left out."""
    data = pick(document.data, path)
    if isinstance(data, str):
        return [(data, document.at(*path))]
    items = data if isinstance(data, list) else []
    return [(item, document.at(*path, index)) for index, item in enumerate(items) if isinstance(item, str)]


def known_names(*, final: bool) -> tuple[str, ...]:
    """Return what references may name, besides `env.NAME`; `final`: whether trained.final is declared."""
    return tuple(name for name in SETTABLE if final or name != "trained.final")


def _advice(name: str, known: Collection[str]) -> str:
    if name == "trained.final":
        return "pipeline.yaml does not declare it: add final: final under trained"
    match = nearest(name, known)
    if match is not None:
        return f"did you mean '${match}'?"
    return f"references: {', '.join(f'${word}' for word in known)}, $env.NAME"


def _convert(
    document: Document,
    base: tuple[str | int, ...],
    path: tuple[str | int, ...],
    data: object,
    places: dict[tuple[str | int, ...], Position],
) -> object:
    position = document.at(*base, *path)
    if path:
        places[path] = position
    if isinstance(data, str) and data.startswith("$"):
        return Ref(name=data[1:], position=position)
    if isinstance(data, list):
        return [_convert(document, base, (*path, index), item, places) for index, item in enumerate(data)]
    if isinstance(data, dict):
        return {key: _convert(document, base, (*path, key), item, places) for key, item in data.items()}
    return data


def _texts(data: object, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from _texts(item, (*path, index))
    elif isinstance(data, dict):
        for key, item in data.items():
            yield from _texts(item, (*path, key))
