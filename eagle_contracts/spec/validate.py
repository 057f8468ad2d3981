"""JSON Schema's errors in the user's words, with positions: one formatter for each keyword."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecIssue, in_order, suggest
from eagle_contracts.spec.flow import clip, found, show
from eagle_contracts.spec.position import Position

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Kind = Literal["pipeline", "contract"]
_TYPES: Final = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """What jsonschema found: the keyword with its value, what stands there instead, and the schema around it."""

    keyword: str
    wanted: Any
    instance: Any
    schema: dict[str, Any]
    path: tuple[str | int, ...]
    message: str


def schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file."""
    text = resources.files("eagle_contracts.spec").joinpath("schema", f"{kind}.v1.json").read_text("utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def validate(document: Document, kind: Kind) -> list[SpecIssue]:
    """Return everything in which a document differs from its schema, in reading order."""
    issues: list[SpecIssue] = []
    for failure in _failures(document, kind):
        issues += _FORMATTERS.get(failure.keyword, _other)(failure, document)
    return in_order(issues)


def _failures(document: Document, kind: Kind) -> Iterator[_Failure]:
    for error in _validator(kind).iter_errors(cast("Any", document.data)):
        yield _Failure(
            keyword=str(error.validator),
            wanted=error.validator_value,
            instance=error.instance,
            schema=cast("dict[str, Any]", error.schema),
            path=tuple(error.absolute_path),
            message=error.message,
        )


@cache
def _validator(kind: Kind) -> Validator:
    # Imported here, so that a run without contracts does not pay for it.
    from jsonschema import Draft7Validator
    from jsonschema.validators import extend

    make: Callable[..., Any] = extend
    types = Draft7Validator.TYPE_CHECKER.redefine("integer", _is_whole)
    return cast("Validator", make(Draft7Validator, type_checker=types)(schema(kind)))


def _is_whole(_: object, value: object) -> bool:
    """Tell whether a value is a whole number; draft-07 would take 1.0 for one."""
    return isinstance(value, int) and not isinstance(value, bool)


def _where(failure: _Failure) -> str:
    """Return the name of what an error is about."""
    path = failure.path
    if not path:
        return "the file"
    if isinstance(path[-1], int):
        owner = next((str(part) for part in reversed(path) if isinstance(part, str)), "the file")
        return f"entry {path[-1] + 1} of '{clip(owner)}'"
    return f"'{clip(path[-1])}'"


def _value(failure: _Failure, document: Document) -> Position:
    return document.at(*failure.path)


def _issue(position: Position, message: str, hint: str | None = None) -> Iterator[SpecIssue]:
    yield SpecIssue(position=position, message=message, hint=hint)


def _additional_properties(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    known, patterns = failure.schema.get("properties", {}), failure.schema.get("patternProperties", {})
    for key in failure.instance:
        if key not in known and not any(re.search(pattern, key) for pattern in patterns):
            message, hint = _unknown_key(key, list(known), bool(patterns))
            yield from _issue(document.key_at(*failure.path, key), message, hint)


def _unknown_key(key: str, known: list[str], has_patterns: bool) -> tuple[str, str | None]:
    if known and has_patterns:
        advice = "write shift, swap, drop, or a path to set, such as with.layer_ids or overlay.layers"
        hint = suggest(key, known)
        return f"unknown break '{clip(key)}'", hint if hint and hint.startswith("did") else advice
    if has_patterns:
        return f"'{clip(key)}' is not a name", "use letters, digits and . _ + -, starting with a letter or digit"
    return f"unknown key '{clip(key)}'", suggest(key, known, "keys here")


def _required(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    missing = next(key for key in failure.wanted if failure.message.startswith(repr(key)))
    about = failure.schema.get("properties", {}).get(missing, {}).get("description", "")
    position = document.key_at(*failure.path)
    yield from _issue(position, f"'{missing}' is missing", f"add {missing}: {about[:1].lower()}{about[1:]}")


def _type(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    wanted = failure.wanted if isinstance(failure.wanted, list) else [failure.wanted]
    words = " or ".join(_TYPES[name] for name in wanted)
    hint = f'write "{clip(show(failure.instance))}"' if "string" in wanted and _is_plain(failure.instance) else None
    yield from _issue(
        _value(failure, document), f"{_where(failure)} must be {words}, not {found(failure.instance)}", hint
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _enum(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    message = f"{_where(failure)} cannot be {found(failure.instance)}"
    yield from _issue(_value(failure, document), message, suggest(str(failure.instance), failure.wanted))


def _const(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    message = f"{_where(failure)} must be {show(failure.wanted)}, not {found(failure.instance)}"
    yield from _issue(_value(failure, document), message)


def _size(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    bound = "at least" if failure.keyword.startswith("min") else "at most"
    noun = "key" if failure.keyword.endswith("Properties") else ("entry", "entries")[failure.wanted != 1]
    count = f"{failure.wanted} {noun}"
    yield from _issue(
        _value(failure, document), f"{_where(failure)} needs {bound} {count}, not {len(failure.instance)}"
    )


def _min_length(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    yield from _issue(_value(failure, document), f"{_where(failure)} is empty")


def _unique_items(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    for index, item in enumerate(failure.instance):
        if item in failure.instance[:index]:
            position = document.at(*failure.path, index)
            yield from _issue(position, f"{_where(failure)} has {found(item)} twice")


def _pattern(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    hint = "use letters, digits and _, starting with a letter"
    yield from _issue(_value(failure, document), f"{found(failure.instance)} is not a name", hint)


def _not(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    message = f"{_where(failure)} cannot be {show(failure.instance)}: a shift by 0 changes nothing"
    yield from _issue(_value(failure, document), message, "write +1 or -1")


def _other(failure: _Failure, document: Document) -> Iterator[SpecIssue]:
    yield from _issue(_value(failure, document), clip(failure.message, 200))


_FORMATTERS: Final[dict[str, Callable[[_Failure, Document], Iterator[SpecIssue]]]] = {
    "additionalProperties": _additional_properties,
    "required": _required,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minItems": _size,
    "maxItems": _size,
    "minProperties": _size,
    "maxProperties": _size,
    "minLength": _min_length,
    "uniqueItems": _unique_items,
    "pattern": _pattern,
    "not": _not,
}
