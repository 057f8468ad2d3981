"""Where things of a pipeline were written that its data does not carry a position for. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Environment, Pipeline, Ref, Value
from eagle_contracts.spec.position import Position
from eagle_contracts.workers.overlays import parse


def key_of_environment(pipeline: Pipeline, environment: Environment, key: str) -> Position | None:
    """Return where a key of an environment was written: in its own entry, or in one that it is `like`."""
    entries = pipeline.document.data
    assert isinstance(entries, dict)
    name: str | None = environment.name
    while name is not None:
        entry = entries["environments"][name]
        if key in entry:
            return pipeline.document.at("environments", name, key)
        name = entry.get("like")
    return None


def through(written: Value, found: Value) -> tuple[str, ...]:
    """Say by which references a value came, where it or parts of it were written elsewhere."""
    if isinstance(written.data, Ref):
        return (f"by {written.data} at {written.position}",)
    return tuple(
        f"{'.'.join(map(str, path))}: {ref} is written at {found.at(*path)}" for path, ref in _references(written.data)
    )


def _references(data: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Ref]]:
    parts: Mapping[str | int, object] = (
        data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
    )
    for key, part in parts.items():
        if isinstance(part, Ref):
            yield (*path, key), part
        yield from _references(part, (*path, key))


def overlay_notes(value: Value, pipeline: Pipeline) -> tuple[str, ...]:
    """Say what an overlay edits and which parameters it has; raises `SpecError` where it cannot be read."""
    from eagle_contracts.overlay_files import params_line, read_overlay

    overlay = read_overlay(value, pipeline.folder)
    if "script" in overlay:
        return ("a script of the user's, run unchanged on a copy of the engine",)
    found = parse(overlay["text"], overlay["shown"])
    where = f"{overlay['shown']}:{params_line(value, pipeline.folder)}"
    notes = [f"{name}: {show(part)} at {where}" for name, part in found.params.items()]
    edited = dict.fromkeys(f"edits {edit.module} of versions {edit.versions}" for edit in found.edits)
    return (*notes, *edited)
