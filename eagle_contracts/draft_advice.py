"""What to do about a draft's config.json that engines refuse, or read otherwise than it looks. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eagle_contracts.checks.draft import FC_WIDE
from eagle_contracts.plan import Case, parameters, written
from eagle_contracts.session import Seen, Session
from eagle_contracts.spec.draft_config import IDS, NESTED, USE, Unread, unread
from eagle_contracts.spec.draft_sizes import wrong_sizes
from eagle_contracts.spec.located import pick
from eagle_contracts.spec.model import Value
from eagle_contracts.spec.position import Position
from eagle_contracts.targets import place_named_in
from eagle_contracts.verdict import Remedy, Verdict

_ABSENT = re.compile(r"has no attribute '(\w+)'|KeyError: '(\w+)'|^'(\w+)'$")


def advised(case: Case, session: Session, seen: Seen, verdict: Verdict) -> Verdict:
    """Say at which line of the draft's config what is wrong stands, and what to write there."""
    data = seen.observation.data
    ids = _recorded_with(case, session)
    if seen.observation.refusal is not None:
        lines = list(_refused(case, seen, verdict))
    elif verdict.diagnosis == "config_ignored":
        lines = list(_ignored(case, data, ids))
    elif data.get("own") is not None and ids is not None:
        return _other_ids(case, session, verdict, ids)
    else:
        return verdict
    if not lines:
        return verdict
    remedy = Remedy(key="", lists=(), where="", before=tuple(dict.fromkeys(lines)))
    return replace(verdict, remedy=remedy, next_command=_again(case))


def _again(case: Case) -> str:
    return f"pytest --contracts '{case.contract.document.shown}::{case.name}'"


def _recorded_with(case: Case, session: Session) -> Value | None:
    """Return the ids with which the contract that a draft reads from recorded its states."""
    producer = case.producers.get("states")
    ids = parameters(producer, session.overrides).get("layer_ids") if producer is not None else None
    return ids if ids is not None and isinstance(ids.data, list) else None


def _other_ids(case: Case, session: Session, verdict: Verdict, ids: Value) -> Verdict:
    """Name the ids of the recorded states, and the place where this contract's own ids stand."""
    producer, given = case.producers["states"], parameters(case, session.overrides)
    remedy = Remedy(
        key="draft.layer_ids",
        lists=(tuple(ids.data),) if isinstance(ids.data, list) else (),
        where=str(given["layer_ids"].position),
        sentence=f"{producer.contract.name} recorded these states with them ({ids.position}); or change them there, "
        f"if the draft was trained on the others",
    )
    return replace(verdict, remedy=remedy, next_command=_again(case))


def _ignored(case: Case, data: Mapping[str, Any], ids: Value | None) -> Iterator[str]:
    document = case.pipeline.draft_document
    file = document.data if document is not None and isinstance(document.data, dict) else {}
    config = data.get("config") or file
    for one in (*unread(file), *unread(config)):
        yield _line(one, case)
    nested = config.get(NESTED)
    if isinstance(nested, Mapping) and USE in nested and not nested[USE]:
        yield f"{NESTED}.{USE} at {_place((NESTED, USE), case)}: write true, or no inner state is handed over"
    there = IDS in config or (isinstance(nested, Mapping) and IDS in nested)
    if not there and not data.get("by_default"):
        what = ids.data if ids is not None else "[...]"
        inside = "inside it" if isinstance(nested, Mapping) else f"inside {NESTED}, a map at the top"
        yield f"at {_place((NESTED,), case)}: write {IDS}: {what} {inside}, where engines look for it"
    behaves: Mapping[str, Any] = data.get("behaves") or {}
    for name, value in data.get("switches", {}).items():
        if behaves.get(name, value) != value:
            yield (
                f"{name} at {_place((name,), case)}: a draft trained with {name} cannot be served by this class "
                f"of this engine; take the key out only if it was trained without"
            )


def _refused(case: Case, seen: Seen, verdict: Verdict) -> Iterator[str]:
    """Yield what an engine's refusal speaks of in the draft's config: a key that is not there, one that is, a value."""
    document, refusal = case.pipeline.draft_document, seen.observation.refusal
    if document is None or refusal is None or not isinstance(document.data, dict):
        return
    config = document.data
    impossible = [*wrong_sizes(config, {}), *(one for one in unread(config) if one.path == (NESTED,))]
    if impossible:
        yield from (f"{one.sentence}. {_line(one, case)}" for one in impossible)
        return
    absent = next((name for found in _ABSENT.findall(refusal.message) for name in found if name), "")
    if absent and absent not in config and not hasattr(str, absent) and not hasattr(dict, absent):
        yield f"{document.shown} has no {absent} at its top: write it there, as the draft was trained"
        return
    place = place_named_in(f"{refusal.message} {refusal.line}", document)
    if place is not None:
        yield f"the draft's config has that at {place.full}: {place.text[place.column - 1 :].strip()[:60]}"
    elif any(FC_WIDE in line for one in verdict.mismatches for line in one.details):
        path = next((p for p in (("num_aux_hidden_states",), (NESTED, IDS), (IDS,)) if pick(config, p)), (NESTED,))
        yield f"{'.'.join(path)} at {_place(path, case)} says how many states fc reads: write it as trained"


def _line(one: Unread, case: Case) -> str:
    return f"{'.'.join(one.path)} at {_place(one.path, case)}: {one.write}"


def _place(path: tuple[str, ...], case: Case) -> Position:
    """Return where a key stands: in a contract's `with.config`, else in the draft's own file."""
    given = written(case).get("config")
    if given is not None and pick(given.data, path) is not None:
        return given.at(*path)
    document = case.pipeline.draft_document
    return document.key_at(*path) if document is not None else case.contract.document.key_at("with")
