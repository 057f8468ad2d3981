"""What to do about a draft's config.json that engines read otherwise than it looks. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case, written
from eagle_contracts.spec.draft_config import IDS, NESTED, USE, Unread, unread
from eagle_contracts.spec.located import pick
from eagle_contracts.spec.position import Position
from eagle_contracts.verdict import Remedy, Verdict


def advised(case: Case, observation: Observation, verdict: Verdict) -> Verdict:
    """Say at which line a key stands that the engine does not go by, and what to write there."""
    lines = tuple(dict.fromkeys(_lines(case, observation)))
    again = f"pytest --contracts '{case.contract.document.shown}::{case.name}'"
    return replace(verdict, remedy=Remedy(key="", lists=(), where="", before=lines), next_command=again)


def _lines(case: Case, observation: Observation) -> Iterator[str]:
    document = case.pipeline.draft_document
    data = document.data if document is not None else None
    config = observation.data.get("config") or (data if isinstance(data, dict) else {})
    for one in (*(unread(data) if isinstance(data, dict) else ()), *unread(config)):
        yield _line(one, case)
    nested = config.get(NESTED)
    if isinstance(nested, Mapping) and USE in nested and not nested[USE]:
        yield f"at {_place((NESTED, USE), case)}: write true, or the draft gets no states of inner layers"
    if isinstance(nested, Mapping) and IDS not in nested and IDS not in config:
        yield f"at {_place((NESTED,), case)}: write {IDS}: [...] inside it"
    behaves: Mapping[str, Any] = observation.data.get("behaves") or {}
    for name, value in observation.data.get("switches", {}).items():
        if behaves.get(name, value) != value:
            yield (
                f"at {_place((name,), case)}: a draft trained with {name} cannot be served by this class of this "
                f"engine; take the key out only if it was trained without"
            )


def _line(one: Unread, case: Case) -> str:
    return f"at {_place(one.path, case)}: {one.write}"


def _place(path: tuple[str, ...], case: Case) -> Position:
    """Return where a key stands: in a contract's `with.config`, else in the draft's own file."""
    given = written(case).get("config")
    if given is not None and pick(given.data, path) is not None:
        return given.at(*path)
    document = case.pipeline.draft_document
    return document.key_at(*path) if document is not None else case.contract.document.key_at("with")
