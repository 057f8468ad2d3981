"""What one case found out, as plain data: enough to conclude from, and to carry from one process to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from eagle_contracts.comments import beside
from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case
from eagle_contracts.spec.document import Document
from eagle_contracts.spec.draft_config import BY_DEFAULT, IDS, NESTED, unread
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.located import pick
from eagle_contracts.spec.model import Ref, Value
from eagle_contracts.taps import Tap, as_hidden_states, describe

State: TypeAlias = int | str | None
"""A stream state's k, the name of another state (`final_normed`, a sub-layer), or None for what is not identified."""

SERVE, DUMP, ORDER, CONCAT, PARITY, DRAFT = "serve", "dump", "order", "concat", "parity", "draft"
_KINDS = {"sglang.capture": SERVE, "sglang.dump": DUMP, "compare": PARITY, "sglang.draft": DRAFT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One side of a hand-off as it was seen.

    `states` are the states in its slots, `names` a dump's files for them or the upstream tensors that a stage's result
    is made of, `where` the place to change, `file` the code that was run. `claim` is what the pipeline declares, with
    its text and place, for a target of `layers` layers. `fault` is the first promise of its own contract that it does
    not keep, as `diagnosis: sentence`, or nothing; `promised` are the names by which a stage's result is read on.
    `write` is what its failing item says to write, with the place; `notes` are sentences that a reader is to know
    whatever the outcome.
    """

    pipeline: str
    kind: str
    contract: str
    environment: str
    claim: tuple[State, ...]
    claim_text: str
    claim_where: str
    states: tuple[State, ...] | None = None
    names: tuple[str | None, ...] | None = None
    where: str = ""
    file: str = ""
    key: str = ""
    said: tuple[str, ...] = ()
    rank: int = 0
    layers: int = 0
    fault: str = ""
    promised: tuple[str, ...] = ()
    write: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fact as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fact:
        """Read what `to_json` wrote, also after a trip through a JSON text."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a pipeline claims, with its place and the target's depth."""

    taps: tuple[Tap, ...]
    position: str
    layers: int


def facts_of(
    case: Case,
    observation: Observation,
    claimed: Claimed,
    given: Mapping[str, Value],
    dumped: Observation | None,
    fault: str = "",
) -> Iterator[Fact]:
    """Yield what an unbroken case found out; `dumped` is the dump that its stage read, if it read one."""
    kind = _kind(case)
    if kind is None:
        return
    common: dict[str, Any] = {
        "pipeline": case.pipeline.document.shown,
        "contract": case.contract.document.shown,
        "claim": tuple("final_normed" if tap.k is None else tap.k for tap in claimed.taps),
        "claim_text": as_hidden_states(claimed.taps, claimed.layers),
        "claim_where": claimed.position,
    }
    place: dict[str, Any] = _place(case, kind, given)
    yield Fact(
        kind=kind,
        environment=case.environment.name,
        rank=list(case.pipeline.environments).index(case.environment.name),
        states=_states(case, kind, observation),
        names=_names(case, kind, observation),
        layers=claimed.layers,
        fault=fault,
        promised=_read_on(case, kind),
        said=_said(case, kind, observation, dumped, claimed.layers, given),
        notes=tuple(_notes(case, kind, given)),
        **place,
        **common,
    )


def _notes(case: Case, kind: str, given: Mapping[str, Value]) -> Iterator[str]:
    """Yield that the draft's file has other ids than were run: a server that is given the file reads those."""
    document, ids = case.pipeline.draft_document, given.get("layer_ids")
    if kind not in (SERVE, DRAFT) or document is None or ids is None or ids.position.origin:
        return
    there = [path for path in ((NESTED, IDS), (IDS,)) if pick(document.data, path) is not None]
    file = pick(document.data, there[0]) if there else None
    if file != (None if ids.data == BY_DEFAULT else ids.data):
        where = f"{document.at(*there[0])} has {show(file)}" if there else f"{document.shown} has none{_near(document)}"
        yield (
            f"{case.environment.name} was run with the ids {show(ids.data)} of {ids.position}, and {where}: a server "
            f"that is given that file reads the file"
        )


def _near(document: Document) -> str:
    """Return the key that was meant for the ids, if there is one."""
    data = document.data if isinstance(document.data, dict) else {}
    meant = [one for one in unread(data) if IDS in one.write and one.path[-1] != NESTED]
    return f" ({meant[0].sentence})" if meant else ""


def _said(
    case: Case,
    kind: str,
    observation: Observation,
    dumped: Observation | None,
    layers: int,
    given: Mapping[str, Value],
) -> tuple[str, ...]:
    """Return what comments of the patch or of the stage say, beside what was measured."""
    source = observation if kind == DUMP else dumped
    if source is None or source.refusal is not None or kind not in (DUMP, ORDER):
        return ()
    held = {name: _shown(_state(report), layers) for name, report in source.data["named"].items()}
    if kind == ORDER:
        names = _names(case, kind, observation) or ()
        held |= {place: held[name] for n, name in enumerate(names) if name in held for place in _spelled(n)}
    file = _place(case, kind, given)["file"]
    path = case.pipeline.folder / file.rpartition(case.contract.document.shown.rpartition("/")[0] + "/")[2]
    try:
        return tuple(beside(path.read_text(encoding="utf-8"), file, held))
    except (OSError, UnicodeDecodeError):
        return ()


def _spelled(n: int) -> tuple[str, str]:
    """Return how comments call the n-th tensor of a stage's result."""
    return f"hs[{n}]", f"slot {n}"


def _shown(state: State, layers: int) -> str:
    if state is None:
        return "a state that was not identified"
    return describe(state, layers) if isinstance(state, int) else state


def _kind(case: Case) -> str | None:
    promised = {expectation.kind for expectation in case.contract.expect}
    if case.subject.name == "python":
        return ORDER if "order" in promised else CONCAT if "concat" in promised else None
    return _KINDS.get(case.subject.name)


def _states(case: Case, kind: str, observation: Observation) -> tuple[State, ...] | None:
    if observation.refusal is not None:
        return ("refused",)
    if kind in (SERVE, DRAFT):
        return tuple(_state(slot.report) for slot in observation.slots)
    if kind == DUMP:
        named = observation.data["named"]
        return tuple(_state(named[name]) for name in _files(case, observation))
    if kind == PARITY:
        return tuple(_state(report) for report in observation.data["sides"]["train"])
    return None


def _files(case: Case, observation: Observation) -> list[str]:
    """Return a dump's files for slots, in order: those of the group that the contract holds against a list of taps."""
    groups = [e.value.data for e in case.contract.expect if e.kind == "slots" and isinstance(e.value.data, Mapping)]
    many = [str(key) for group in groups for key, value in group.items() if _is_list(value)]
    found = [name for name in observation.data["named"] if name.rpartition("_")[0] in (many or ["aux"])]
    return sorted(found, key=_number)


def _is_list(promised: object) -> bool:
    if isinstance(promised, Ref):
        return promised.name == "trained.taps"
    return isinstance(promised, Mapping) and any(isinstance(part, list) for part in promised.values())


def _number(name: str) -> int:
    digits = "".join(c for c in name if c.isdecimal())
    return int(digits) if digits else 0


def _state(report: Mapping[str, Any]) -> State:
    best = report.get("best") or {}
    if report.get("outcome") != "identified":
        return None
    return best["k"] if best["kind"] == "state" else str(best["label"])


def _names(case: Case, kind: str, observation: Observation) -> tuple[str | None, ...] | None:
    """Return a dump's files for slots, or the upstream tensors in the order in which a stage puts them.

    A stage's are those of the first request in which they are not as its contract promises, else of the first.
    """
    if observation.refusal is not None:
        return None
    if kind == DUMP:
        return tuple(_files(case, observation))
    if kind not in (ORDER, CONCAT):
        return None
    key, promised = _promised(case, kind)
    every = [
        tuple(_part(part, number) for part in outputs.get(key, {}).get("parts", []))
        for number, outputs in enumerate(observation.data["outputs"])
    ]
    return next((names for names in every if list(names) != promised), every[0])


def _promised(case: Case, kind: str) -> tuple[str, object]:
    """Return the output that a stage's contract speaks of first, and the names promised for it."""
    data = next(e.value.data for e in case.contract.expect if e.kind == kind)
    pairs = list(data.items()) if isinstance(data, Mapping) else []
    return (str(pairs[0][0]), pairs[0][1]) if pairs else ("hidden_states", None)


def _read_on(case: Case, kind: str) -> tuple[str, ...]:
    names = _promised(case, kind)[1] if kind == ORDER else None
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _part(part: Mapping[str, Any], number: int) -> str | None:
    if part["how"] == "unknown" or part["name"] is None:
        return None
    name = f"a part of {part['name']}" if part["how"] == "partial" else str(part["name"])
    return name if part["request"] in (None, number) else f"{name} of another request"


def _place(case: Case, kind: str, given: Mapping[str, Value]) -> dict[str, str]:
    """Return the place that decides what was seen, and the code that was run."""
    folder = case.contract.document.shown.rpartition("/")[0]
    if kind in (SERVE, DRAFT):
        return {"where": str(given["layer_ids"].position), "key": "draft.layer_ids"}
    if kind == DUMP:
        overlay = case.contract.with_["overlay"]
        named = overlay.data.get("script") if isinstance(overlay.data, Mapping) else overlay.data
        return {"where": str(overlay.position), "file": f"{folder}/{named}"}
    if kind in (ORDER, CONCAT):
        call = str(given["call"].data)
        file = f"{folder}/{call.partition('::')[0]}" if "::" in call else call
        return {"where": str(given["call"].position), "file": file}
    return {}
