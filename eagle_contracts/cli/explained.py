"""What a contract comes to in one environment, as rows of name, value and origin. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from eagle_contracts.cli.interpreters import Interpreters
from eagle_contracts.cli.written import key_of_environment, overlay_notes, through
from eagle_contracts.plan import Case, break_of, parameters
from eagle_contracts.promises import both_readings, promise_issues, taps_promised
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Control, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.targets import twin_of
from eagle_contracts.workers.environments import Unavailable
from eagle_contracts.workers.locks import shown_path

DEFAULT: Final = "default"
"""The origin of a value that nobody wrote."""


class Row(NamedTuple):
    """One value: where it was written is file:line or the override; `error` says why there is no value."""

    name: str
    value: str
    position: str
    notes: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        return {**self._asdict(), "notes": list(self.notes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment, with the producers chosen for it, and the cases that run there."""

    cases: tuple[Case, ...]

    @property
    def base(self) -> Case:
        """The case that stands for what all of them share."""
        return self.cases[0]


def explained(place: Place, interpreters: Interpreters, overrides: Mapping[str, Value]) -> dict[str, object]:
    """Return the rows of one environment: how it is found, what the subject is given, promises, controls, items."""
    case = place.base
    rows = [
        *_environment(case, interpreters),
        *_parameters(case, overrides),
        *_producers(case),
        *_promises(place, overrides),
        *_controls(place, overrides),
        Row("items", ", ".join(one.name for one in place.cases), ""),
    ]
    entry = case.environment
    return {
        "environment": entry.name,
        "roles": list(entry.roles),
        "position": str(entry.position),
        "producers": {name: producer.environment.name for name, producer in case.producers.items()},
        "items": [one.name for one in place.cases],
        "values": [row.to_json() for row in rows],
    }


def _environment(case: Case, interpreters: Interpreters) -> Iterator[Row]:
    entry, pipeline = case.environment, case.pipeline
    if entry.like is not None:
        yield Row("like", entry.like, str(key_of_environment(pipeline, entry, "like")))
    yield Row("role", ", ".join(entry.roles), str(key_of_environment(pipeline, entry, "role") or entry.position))
    if entry.engine is None:
        yield Row("engine", "none named", DEFAULT)
    else:
        yield Row("engine", str(entry.engine), str(key_of_environment(pipeline, entry, "engine")))
    if entry.overlay is not None:
        yield _overlay("overlay", entry.overlay, case)
    yield _interpreter(case, interpreters)


def _interpreter(case: Case, interpreters: Interpreters) -> Row:
    entry = case.environment
    found = interpreters.of(case.pipeline, entry)
    if isinstance(found, Unavailable):
        return Row("interpreter", f"unavailable({found.reason})", "", (found.message,))
    version = f" ({entry.engine.name} {found.engine_version})" if entry.engine and found.engine_version else ""
    environ = tuple(
        f"with {name}={shown_path(Path(part))}" if name == "PYTHONPATH" else f"with {name}={part}"
        for name, value in found.env.items()
        for part in value.split(os.pathsep)
    )
    return Row("interpreter", f"{found.source}{version}", "", (f"command: {' '.join(found.command)}", *environ))


def _overlay(name: str, value: Value, case: Case) -> Row:
    try:
        return Row(name, show(value.data), str(value.position), overlay_notes(value, case.pipeline))
    except SpecError as error:
        return unresolved(name, value, error)


def _parameters(case: Case, overrides: Mapping[str, Value]) -> Iterator[Row]:
    scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=overrides)
    for name, value in case.contract.with_.items():
        if name == "from":
            continue
        try:
            found = resolve(value, scope)
        except SpecError as error:
            yield unresolved(name, value, error)
            continue
        if name == "overlay":
            yield _overlay(name, found, case)
        else:
            yield Row(name, show(found.data), str(found.position), through(value, found))
    for name in case.subject.optional:
        if name not in case.contract.with_:
            yield Row(name, "not given", DEFAULT)


def _producers(case: Case) -> Iterator[Row]:
    source = case.contract.with_.get("from")
    for name, producer in case.producers.items():
        position = str(source.at(name)) if source is not None else ""
        yield Row(f"from {name}", _named(producer), position, tuple(_chain(producer)))


def _chain(case: Case) -> Iterator[str]:
    """Yield what a producer reads itself, and what that reads."""
    for name, producer in case.producers.items():
        yield f"which reads {_named(producer)} as {name}"
        yield from _chain(producer)


def _named(case: Case) -> str:
    return f"{case.contract.name} in {case.environment.name}"


def _promises(place: Place, overrides: Mapping[str, Value]) -> Iterator[Row]:
    case = place.base
    scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=overrides)
    for one in case.contract.expect:
        try:
            layers = twin_of(case.pipeline).layers
            found = resolve(one.value, scope)
            issues = list(promise_issues(one.kind, found, layers))
            if issues:
                raise SpecError(issues)
        except SpecError as error:
            yield unresolved(f"expect {one.kind}", one.value, error)
            continue
        notes = []
        for group, taps in taps_promised(one.kind, found, layers):
            head = f"{group}: " if group else ""
            notes.append(f"{head}{', '.join(tap.label() for tap in taps)}")
            notes.append(f"{head}{both_readings(taps, layers)}")
        yield Row(f"expect {one.kind}", show(found.data), str(found.position), (*through(one.value, found), *notes))


def _controls(place: Place, overrides: Mapping[str, Value]) -> Iterator[Row]:
    for case in place.cases:
        if case.control is None:
            continue
        control, name = case.control, f"must catch {case.control.diagnosis}"
        try:
            notes = tuple(f"then {text}" for text in _broken(case, control, overrides))
        except SpecError as error:
            yield Row(name, control.text, str(control.position), (_first(error),), error.render())
            continue
        yield Row(name, control.text, str(control.position), notes)


def _broken(case: Case, control: Control, overrides: Mapping[str, Value]) -> Iterator[str]:
    """Yield the values that a break comes to."""
    break_of(case)
    names = {path.removeprefix("with.").partition(".")[0] for path, _ in control.break_.edits if "with." in path}
    for name, value in parameters(case, overrides).items():
        if name in names:
            yield f"{name}: {show(value.data)}"


def unresolved(name: str, value: Value, error: SpecError) -> Row:
    """Return the row of a value that comes to nothing, with the reason."""
    return Row(name, show(value.data), str(value.position), (_first(error),), error.render())


def _first(error: SpecError) -> str:
    issue = error.issues[0]
    hint = f"; {issue.hint}" if issue.hint else ""
    return f"{issue.position.full}: {issue.message}{hint}"
