"""A contract file, checked against its pipeline, and built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecIssue, suggest
from eagle_contracts.spec.flow import clip, show
from eagle_contracts.spec.located import check_references, known_names, names_at, pick, value_at
from eagle_contracts.spec.model import (
    ROLES,
    Break,
    Contract,
    Control,
    Expectation,
    KnownViolation,
    Pipeline,
    Requirement,
    Verb,
)
from eagle_contracts.spec.pipelines import declares_final

_VERBS: Final = ("shift", "swap", "drop")
_LEFT_OUT: Final = "a contract that never runs looks like a green one: use a mark of your own, and -m 'not MARK'"
_HIDING: Final = {
    "skip": _LEFT_OUT,
    "skipif": _LEFT_OUT,
    "xfail": "a violation that is expected is written known_violation: {as: ..., engine: ..., link: ...}",
    "contract": "every item of a contract has it already",
    "control": "the items of must_catch have it already, and no others",
}


def check_contract(document: Document, pipeline: Pipeline) -> Iterator[SpecIssue]:
    """Yield what the schema cannot see, whether or not the schema found mistakes."""
    known = known_names(final=declares_final(pipeline.document))
    yield from check_references(document, ("with",), known)
    yield from check_references(document, ("expect",), known)
    yield from _check_names(document, pipeline, ("in",))
    yield from _check_known_violation(document, pipeline)
    yield from _check_marks(document)
    controls = pick(document.data, ("must_catch",))
    for index in range(len(controls) if isinstance(controls, list) else 0):
        yield from check_references(document, ("must_catch", index, "break"), known)
        yield from _check_names(document, pipeline, ("must_catch", index, "in"))
        yield from _check_break(document, ("must_catch", index, "break"))


def build_contract(document: Document) -> Contract:
    """Return the contract of a document that was found right."""
    data = cast("dict[str, Any]", document.data)
    left, right = data["between"]
    return Contract(
        name=document.path.stem,
        document=document,
        why=data["why"],
        between=(left, right),
        run=data["run"],
        run_position=document.at("run"),
        in_=tuple(name for name, _ in names_at(document, "in")),
        in_position=document.at("in") if "in" in data else document.key_at("with", "from"),
        with_={key: value_at(document, "with", key) for key in data.get("with", {})},
        expect=tuple(_expectation(document, index) for index in range(len(data["expect"]))),
        must_catch=tuple(_control(document, index) for index in range(len(data.get("must_catch", [])))),
        marks=tuple(data.get("marks", [])),
        known_violation=_known_violation(document) if "known_violation" in data else None,
    )


def _known_violation(document: Document) -> KnownViolation:
    entry = cast("dict[str, str]", pick(document.data, ("known_violation",)))
    return KnownViolation(
        diagnosis=entry["as"],
        engine=Requirement.parse(entry["engine"]),
        link=entry["link"],
        position=document.at("known_violation"),
    )


def _check_known_violation(document: Document, pipeline: Pipeline) -> Iterator[SpecIssue]:
    engine = pick(document.data, ("known_violation", "engine"))
    if not isinstance(engine, str) or not engine:
        return
    position = document.at("known_violation", "engine")
    try:
        name = Requirement.parse(engine).name
    except ValueError as error:
        hint = "write the engine and its versions, such as sglang==0.5.23 or sglang>=0.5.13"
        yield SpecIssue(position=position, message=str(error), hint=hint)
        return
    engines = list(dict.fromkeys(e.engine.name for e in pipeline.environments.values() if e.engine is not None))
    if name not in engines:
        message = f"no environment of {pipeline.document.shown} has the engine '{clip(name)}'"
        yield SpecIssue(position=position, message=message, hint=suggest(name, engines, "engines"))


def _check_marks(document: Document) -> Iterator[SpecIssue]:
    """Yield the marks that would hide what a contract says, or that another word is for."""
    for mark, position in names_at(document, "marks"):
        if mark in _HIDING:
            yield SpecIssue(position=position, message=f"the mark '{mark}' cannot stand here", hint=_HIDING[mark])


def _check_names(document: Document, pipeline: Pipeline, path: tuple[str | int, ...]) -> Iterator[SpecIssue]:
    roles = {role for environment in pipeline.environments.values() for role in environment.roles}
    valid = [role for role in ROLES if role in roles] + list(pipeline.environments)
    for name, position in names_at(document, *path):
        if name in ROLES and name not in valid:
            message = f"no environment of {pipeline.document.shown} has the role '{name}'"
            yield SpecIssue(position=position, message=message, hint=f"roles and environments: {', '.join(valid)}")
        elif name and name not in valid:
            message = f"'{clip(name)}' is neither a role nor an environment of {pipeline.document.shown}"
            hint = suggest(name, valid, "roles and environments")
            yield SpecIssue(position=position, message=message, hint=hint)


def _check_break(document: Document, path: tuple[str | int, ...]) -> Iterator[SpecIssue]:
    edits = pick(document.data, path)
    if not isinstance(edits, dict):
        return
    verbs = [key for key in edits if key in _VERBS]
    for key in edits if verbs else ():
        if key != verbs[0]:
            message = f"'{clip(key)}' cannot stand beside '{verbs[0]}': a break is one verb, or paths to set"
            hint = "write two entries of must_catch"
            yield SpecIssue(position=document.key_at(*path, key), message=message, hint=hint)
    yield from _check_shift(document, (*path, "shift"))


def _check_shift(document: Document, path: tuple[str | int, ...]) -> Iterator[SpecIssue]:
    shift, given = pick(document.data, path), pick(document.data, ("with",))
    parameters = [f"with.{key}" for key in given] if isinstance(given, dict) else []
    for key in shift if isinstance(shift, dict) else ():
        inside = any(key == known or key.startswith(f"{known}.") for known in parameters)
        if not inside and not key.startswith("overlay."):
            message = f"there is no '{clip(key)}' to shift"
            hint = suggest(key, parameters, "paths") or "a shift needs a list under with"
            yield SpecIssue(position=document.key_at(*path, key), message=message, hint=hint)


def _expectation(document: Document, index: int) -> Expectation:
    kind = next(iter(cast("dict[str, object]", pick(document.data, ("expect", index)))))
    return Expectation(
        kind=kind,
        value=value_at(document, "expect", index, kind),
        position=document.key_at("expect", index, kind),
    )


def _control(document: Document, index: int) -> Control:
    base: tuple[str | int, ...] = ("must_catch", index)
    entry = cast("dict[str, Any]", pick(document.data, base))
    broken = cast("dict[str, object]", value_at(document, *base, "break").data)
    return Control(
        break_=_break(document, base, broken),
        in_=tuple(name for name, _ in names_at(document, *base, "in")) or None,
        diagnosis=entry["as"],
        position=document.at(*base),
        text=_text(broken),
    )


def _break(document: Document, base: tuple[str | int, ...], broken: dict[str, object]) -> Break:
    position = document.at(*base, "break")
    key, value = next(iter(broken.items()))
    if key == "shift":
        return Break(verb="shift", edits=tuple(cast("dict[str, object]", value).items()), position=position)
    if key in _VERBS:
        content = tuple(value) if isinstance(value, list) else value
        return Break(verb=cast("Verb", key), edits=((key, content),), position=position)
    return Break(verb="set", edits=tuple(broken.items()), position=position)


def _text(broken: dict[str, object]) -> str:
    """Return a break in one line, shifts with their sign."""
    shift = broken.get("shift")
    if isinstance(shift, dict):
        return f"shift: {{{', '.join(f'{key}: {value:+d}' for key, value in shift.items())}}}"
    return ", ".join(f"{key}: {show(value)}" for key, value in broken.items())
