"""What `$trained.taps`, `$draft.layer_ids` and `$env.NAME` stand for, and where that was written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from eagle_contracts.spec.document import Document, load_json
from eagle_contracts.spec.draft_config import BY_DEFAULT, IDS, NESTED, unread
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.flow import found, show
from eagle_contracts.spec.located import value_at
from eagle_contracts.spec.model import SETTABLE, Environment, Pipeline, Ref, Value
from eagle_contracts.spec.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where names are looked up: overrides first, then the environment's `set`, then the pipeline."""

    pipeline: Pipeline
    environment: Environment | None = None
    overrides: Mapping[str, Value] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def resolve(value: Value, scope: Scope) -> Value:
    """Return the value with every reference replaced; positions are where the replacements were written.

    Raises SpecError for a name that is not declared, a circle, and ids that are no list of whole numbers.
    """
    return _resolve(value, scope, ())


def lookup(name: str, scope: Scope, position: Position) -> Value:
    """Return what a name such as `draft.layer_ids` stands for; `position` is where it is asked for."""
    return _lookup(Ref(name=name, position=position), scope, ())


def _resolve(value: Value, scope: Scope, trail: tuple[str, ...]) -> Value:
    if isinstance(value.data, Ref):
        return _lookup(value.data, scope, trail)
    if not isinstance(value.data, (list, dict)):
        return value
    keys = list(value.data) if isinstance(value.data, dict) else list(range(len(value.data)))
    parts = {key: _resolve(value.child(key), scope, trail) for key in keys}
    places: dict[tuple[str | int, ...], Position] = {}
    for key, part in parts.items():
        places[(key,)] = part.position
        places.update({(key, *path): place for path, place in part.places.items()})
    data: object = [part.data for part in parts.values()]
    if isinstance(value.data, dict):
        data = {key: part.data for key, part in parts.items()}
    return Value(data=data, position=value.position, places=places)


def _lookup(ref: Ref, scope: Scope, trail: tuple[str, ...]) -> Value:
    if ref.name in trail:
        circle = " -> ".join(f"${name}" for name in (*trail[trail.index(ref.name) :], ref.name))
        raise fail(ref.position, f"the reference goes in a circle: {circle}", "write the value in one of the places")
    if ref.name.startswith("env."):
        return _from_environ(ref, scope)
    if ref.name not in SETTABLE:
        raise fail(ref.position, f"the reference '{ref}' names nothing", suggest(ref.name, SETTABLE, "names"))
    result = _resolve(_written(ref, scope), scope, (*trail, ref.name))
    if ref.name == "draft.layer_ids":
        check_ids(result)
    return result


def _from_environ(ref: Ref, scope: Scope) -> Value:
    name = ref.name.removeprefix("env.")
    if name not in scope.environ:
        raise fail(ref.position, f"the environment variable {name} is not set", f"set it: export {name}=...")
    return Value(data=scope.environ[name], position=ref.position)


def _written(ref: Ref, scope: Scope) -> Value:
    """Return the value as written, with its own references still in it."""
    if ref.name in scope.overrides:
        return scope.overrides[ref.name]
    if scope.environment is not None and ref.name in scope.environment.set:
        return scope.environment.set[ref.name]
    if ref.name == "draft.layer_ids":
        return _draft_ids(ref, scope)
    key = ref.name.removeprefix("trained.")
    if key not in scope.pipeline.trained:
        shown = scope.pipeline.document.shown
        raise fail(ref.position, f"'{ref}' is not declared in {shown}", f"add {key}: {key} under trained")
    return scope.pipeline.trained[key]


def _draft_ids(ref: Ref, scope: Scope) -> Value:
    pipeline = scope.pipeline
    if pipeline.draft_config is None:
        raise fail(ref.position, "no draft.layer_ids: the pipeline names no draft config", _ids_advice(scope, ""))
    document = pipeline.draft_document or load_json(pipeline.draft_config)
    places = [path for path in (("eagle_config", IDS), (IDS,)) if _has(document.data, path)]
    if not places:
        message = f"no draft.layer_ids: {document.shown} has no {IDS}"
        raise fail(ref.position, message, _misspelt(document) or _ids_advice(scope, document.shown))
    values = [value_at(document, *path) for path in places]
    if len(values) == 2 and values[0].data != values[1].data:
        raise SpecError([_disagreement(document, places[0], values)])
    return values[0]


def _misspelt(document: Document) -> str:
    """Return which key of the draft's config was meant for the ids, if one looks like it."""
    keys = unread(document.data) if isinstance(document.data, dict) else ()
    near = [one for one in keys if IDS in one.write and one.path[-1] != NESTED]
    return (
        f"{document.key_at(*near[0].path)}: {near[0].sentence} {near[0].write[:1].upper()}{near[0].write[1:]}"
        if near
        else ""
    )


def _ids_advice(scope: Scope, config: str) -> str:
    example = "set: {draft.layer_ids: [...]}"
    inside = f"write {IDS} in the eagle_config of {config}, or " if config else "write "
    none = f". If the engine's own default layers are meant, write {BY_DEFAULT} for the list" if config else ""
    if scope.environment is None:
        return f"{inside}{example} in an environment, or give --contracts-set draft.layer_ids=[...]{none}"
    return f"{inside}{example} in {scope.environment.name} ({scope.environment.position}){none}"


def _disagreement(document: Document, path: tuple[str, ...], values: list[Value]) -> SpecIssue:
    first, second = values
    message = f"eagle_config.{IDS} is {show(first.data)}, but {IDS} at {second.position} is {show(second.data)}"
    return SpecIssue(position=document.at(*path), message=message, hint="engines read one or the other: keep one")


def _has(data: object, path: tuple[str, ...]) -> bool:
    """Tell whether a value other than null stands at the path."""
    for key in path:
        if not isinstance(data, dict) or data.get(key) is None:
            return False
        data = data[key]
    return True


def check_ids(value: Value, name: str = "draft.layer_ids") -> None:
    """Raise SpecError unless a value is a list of whole numbers, which is what engines take for ids.

    Layer ids may be the word `default` too: then the config has none, and the engine takes its own.
    """
    data = value.data
    if data == BY_DEFAULT and name.endswith("layer_ids"):
        return
    if not isinstance(data, list):
        message = f"{name} must be a list of whole numbers, not {found(data)}"
        more = f", or {BY_DEFAULT} for none" if name.endswith("layer_ids") else ""
        raise fail(value.position, message, f"write what the engine's config gets, such as [2, 30, 58]{more}")
    for index, item in enumerate(data):
        if not isinstance(item, int) or isinstance(item, bool):
            raise fail(value.at(index), f"{name} must be a list of whole numbers, not {found(item)}")
