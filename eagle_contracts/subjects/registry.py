"""Finds adapters by their entry points, the framework's own and those of a user's package."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points

from eagle_contracts.subjects.protocol import GROUP, Subject


class UnknownSubject(LookupError):
    """No adapter has this name; `names` holds those there are."""

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        super().__init__(name)
        self.name, self.names = name, names


class BrokenSubject(TypeError):
    """An adapter's entry point does not lead to a `Subject`, or its module fails to import."""


def subject_named(name: str) -> Subject:
    """Return the adapter of that name; raises `UnknownSubject` or `BrokenSubject`."""
    points = _points()
    if name not in points:
        raise UnknownSubject(name, tuple(sorted(points)))
    try:
        found = points[name].load()
    except (ImportError, AttributeError) as error:
        raise BrokenSubject(f"adapter {name} ({points[name].value}) cannot be imported: {error}") from error
    if not isinstance(found, Subject):
        raise BrokenSubject(f"adapter {name} ({points[name].value}) is {type(found).__name__}, not a Subject")
    return found


@functools.cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
