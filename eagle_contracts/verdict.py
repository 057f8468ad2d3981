"""What a run concludes of one case: a status, a diagnosis from a closed list, and what a reader needs to act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagle_contracts.observation import SlotSeen

Status = Literal["passed", "violated", "inconclusive", "error", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEvidence:
    """One slot as declared and as seen; `declared` is None for a slot beyond the declared ones.

    `sides` are the words for both where they are not a declaration and an observation but two sides of a hand-off.
    """

    name: str
    declared: str | None
    position: str
    seen: SlotSeen | None
    sides: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A promise that an observation does not keep: the diagnosis, one whole sentence, and the slots it is about."""

    diagnosis: str | None
    sentence: str
    slots: tuple[SlotEvidence, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to write instead, each list seen to work by running the engine, and what to read before writing it."""

    key: str
    lists: tuple[tuple[int, ...], ...]
    where: str
    before: tuple[str, ...] = ()
    sentence: str = ""
    tried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one case, ready to be rendered."""

    status: Status
    diagnosis: str | None = None
    sentence: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    context: tuple[tuple[str, str, str], ...] = ()
    remedy: Remedy | None = None
    next_command: str = ""
    reason: str = ""
    details: tuple[str, ...] = ()
    log: str = ""
    engine_version: str = ""
    facts: tuple[Mapping[str, Any], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
