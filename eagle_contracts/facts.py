"""What one case found out, as plain data: enough to conclude from, and to carry from one process to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from eagle_contracts.comments import beside
from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import Tap, as_hidden_states, describe

State: TypeAlias = int | str | None
"""A stream state's k, the name of another state (`final_normed`, a sub-layer), or None for what is not identified."""

SERVE, DUMP, ORDER, CONCAT, PARITY = "serve", "dump", "order", "concat", "parity"
_KINDS = {"sglang.capture": SERVE, "sglang.dump": DUMP, "compare": PARITY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One side of a hand-off as it was seen.

    `states` are the states in its slots, `names` the upstream tensors it is made of, `where` the place to change,
    `file` the code that was run. `claim` is what the pipeline declares, with its text and place.
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
    case: Case, observation: Observation, claimed: Claimed, given: Mapping[str, Value], dumped: Observation | None
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
        states=_states(kind, observation),
        names=_names(kind, observation),
        said=_said(case, kind, observation, dumped, claimed.layers, given),
        **place,
        **common,
    )


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
        names = _names(kind, observation) or ()
        held = {f"hs[{n}]": held[name] for n, name in enumerate(names) if name in held}
    file = _place(case, kind, given)["file"]
    path = case.pipeline.folder / file.rpartition(case.contract.document.shown.rpartition("/")[0] + "/")[2]
    try:
        return tuple(beside(path.read_text(encoding="utf-8"), file, held))
    except OSError:
        return ()


def _shown(state: State, layers: int) -> str:
    if state is None:
        return "a state that was not identified"
    return describe(state, layers) if isinstance(state, int) else state


def _kind(case: Case) -> str | None:
    promised = {expectation.kind for expectation in case.contract.expect}
    if case.subject.name == "python":
        return ORDER if "order" in promised else CONCAT if "concat" in promised else None
    return _KINDS.get(case.subject.name)


def _states(kind: str, observation: Observation) -> tuple[State, ...] | None:
    if observation.refusal is not None:
        return ("refused",)
    if kind == SERVE:
        return tuple(_state(slot.report) for slot in observation.slots)
    if kind == DUMP:
        named = observation.data["named"]
        return tuple(_state(named[name]) for name in sorted(named, key=_number) if name.startswith("aux_"))
    if kind == PARITY:
        return tuple(_state(report) for report in observation.data["sides"]["train"])
    return None


def _number(name: str) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) if digits else 0


def _state(report: Mapping[str, Any]) -> State:
    best = report.get("best") or {}
    if report.get("outcome") != "identified":
        return None
    return best["k"] if best["kind"] == "state" else str(best["label"])


def _names(kind: str, observation: Observation) -> tuple[str | None, ...] | None:
    """Return the upstream tensors in the order in which a stage puts them, as its first request shows."""
    if kind not in (ORDER, CONCAT):
        return None
    output = observation.data["outputs"][0].get("hidden_states", {})
    return tuple(
        part["name"] if part["how"] in ("exact", "near", "rounded") else None for part in output.get("parts", [])
    )


def _place(case: Case, kind: str, given: Mapping[str, Value]) -> dict[str, str]:
    """Return the place that decides what was seen, and the code that was run."""
    folder = case.contract.document.shown.rpartition("/")[0]
    if kind == SERVE:
        return {"where": str(given["layer_ids"].position), "key": "draft.layer_ids"}
    if kind == DUMP:
        overlay = case.contract.with_["overlay"]
        return {"where": str(overlay.position), "file": f"{folder}/{overlay.data}"}
    if kind in (ORDER, CONCAT):
        call = str(given["call"].data)
        file = f"{folder}/{call.partition('::')[0]}" if "::" in call else call
        return {"where": str(given["call"].position), "file": file}
    return {}
