"""What a pipeline and a contract say, as data; every value knows where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from eagle_contracts.spec.document import Document
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.requirement import Requirement as Requirement

ROLES: Final = ("train", "trainer", "serve")
DIAGNOSES: Final = (
    "shifted",
    "permuted",
    "embedding_in_slot",
    "missing_residual",
    "normed",
    "duplicated",
    "missing_slot",
    "wrong_width",
    "fc_skipped",
    "fc_repeated",
    "wrong_request",
    "missing_tokens",
    "wrong_dtype",
    "unreadable",
    "unstable",
    "altered",
    "engine_refused",
    "other_state",
    "unknown_state",
    "mispaired",
    "config_ignored",
)
SETTABLE: Final = ("trained.taps", "trained.final", "draft.layer_ids")
Verb = Literal["shift", "swap", "drop", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A reference such as `$trained.taps`; `name` is without the dollar sign."""

    name: str
    position: Position

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Plain data with its position; lists and maps may hold Ref objects until they are resolved."""

    data: object
    position: Position
    places: Mapping[tuple[str | int, ...], Position] = field(default_factory=dict, compare=False, repr=False)

    def at(self, *path: str | int) -> Position:
        """Return the position of the part at `path`, or of its nearest parent whose position is known."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places[path] if path else self.position

    def child(self, key: str | int) -> Value:
        """Return the part at a map's key or a list's index; raises KeyError, IndexError or TypeError if absent."""
        if not isinstance(self.data, (dict, list)):
            raise TypeError(f"{self.position}: {self.data!r} has no parts")
        places = {path[1:]: place for path, place in self.places.items() if path[0] == key and len(path) > 1}
        return Value(data=self.data[key], position=self.at(key), places=places)  # type: ignore[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One promise: the kind names the check, the value is what it is given."""

    kind: str
    value: Value
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A deliberate fault.

    Edits: shift `(("with.layer_ids", 1),)`, swap `(("swap", ("a", "b")),)`, drop `(("drop", "a"),)`,
    set `(("with.layer_ids", [-1, 2, 30]),)`; data of a set may hold Ref objects.
    """

    verb: Verb
    edits: tuple[tuple[str, object], ...]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A negative control: the break, where it runs (None: wherever the contract does), and what must be diagnosed."""

    break_: Break
    in_: tuple[str, ...] | None
    diagnosis: str
    position: Position
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownViolation:
    """A violation expected of an engine until it is mended: diagnosis, engine and versions, and where to read."""

    diagnosis: str
    engine: Requirement
    link: str
    position: Position

    def concerns(self, environment: Environment, version: str) -> bool:
        """Tell whether an environment's engine, in the version that ran, is one of which this is known."""
        engine = environment.engine
        return engine is not None and engine.name == self.engine.name and self.engine.contains(version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One contract file; `name` is the file's stem, `in_` holds names of roles or environments."""

    name: str
    document: Document
    why: str
    between: tuple[str, str]
    run: str
    run_position: Position
    in_: tuple[str, ...]
    in_position: Position
    with_: Mapping[str, Value]
    expect: tuple[Expectation, ...]
    must_catch: tuple[Control, ...]
    marks: tuple[str, ...]
    known_violation: KnownViolation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a role's code runs; what `like` inherits is already filled in, `like` itself only names the parent."""

    name: str
    roles: tuple[str, ...]
    position: Position
    engine: Requirement | None = None
    overlay: Value | None = None
    set: Mapping[str, Value] = field(default_factory=dict)
    python: str | None = None
    command: tuple[str, ...] | None = None
    lock: str | None = None
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One pipeline file; `folder` is where it stands, `trained` holds `taps` and perhaps `final`."""

    document: Document
    folder: Path
    target_config: Path
    target_part: str | None
    draft_config: Path | None
    trained: Mapping[str, Value]
    environments: Mapping[str, Environment]
    draft_document: Document | None = field(default=None, compare=False, repr=False)

    def environments_of(self, name: str) -> tuple[Environment, ...]:
        """Return the environment of that name, or every environment with that role, in the file's order."""
        if name in self.environments:
            return (self.environments[name],)
        return tuple(environment for environment in self.environments.values() if name in environment.roles)
