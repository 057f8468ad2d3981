"""What to do about a violated hand-off of training, or of both sides: whose fault it is, and what to write there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eagle_contracts.engines import Unrunnable
from eagle_contracts.observation import Observation
from eagle_contracts.overlay_files import overlay_params, params_line
from eagle_contracts.plan import Case, written
from eagle_contracts.promises import states_promised
from eagle_contracts.remedy import search
from eagle_contracts.session import Seen, Session
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Break, Control, Value
from eagle_contracts.taps import Tap, as_hidden_states, make_tap
from eagle_contracts.verdict import Mismatch, Remedy, Verdict

State = int | str | None
READERS = ("python", "sglang.draft")
"""Subjects that pass on what they read: a fault before them shows in them too."""


def advised(case: Case, session: Session, seen: Seen, verdict: Verdict) -> Verdict:
    """Add what to do: at the stage before where that breaks its own promise, else at this hand-off."""
    first = _broken_before(case, session)
    if first is not None:
        return first_there(verdict, *first, session)
    if case.subject.name == "sglang.dump":
        return _dump(case, session, seen, verdict)
    if case.subject.name == "compare":
        return _parity(case, session, seen, verdict)
    return _stage(case, session, verdict) if case.subject.name == "python" else verdict


def fault_of(case: Case, session: Session, seen: Seen) -> str:
    """Return the first promise of a case's whole contract that its observation does not keep."""
    try:
        broken = session.mismatches(replace(case, expectations=case.contract.expect), seen)
    except SpecError:
        return ""
    return _said(broken[0]) if broken else ""


def first_there(verdict: Verdict, broken: Case, fault: str, session: Session) -> Verdict:
    """Point to a contract that this one reads from, and that is broken itself."""
    where = f"{broken.contract.name} in {broken.environment.name}"
    sentence = f"{where} is broken itself ({fault}). Mend that first: this item reads what it gives."
    return replace(verdict, remedy=_told(sentence), next_command=_run([broken], session))


def _said(mismatch: Mismatch) -> str:
    return f"{mismatch.diagnosis or 'inconclusive'}: {mismatch.sentence}"


def _broken_before(case: Case, session: Session) -> tuple[Case, str] | None:
    """Return the first contract that a stage reads from and that breaks a promise of its own."""
    for one in case.upstream if case.subject.name in READERS else ():
        try:
            fault = fault_of(one, session, session.observe(one))
        except (SpecError, Unrunnable):
            continue
        if fault:
            return one, fault
    return None


def _dump(case: Case, session: Session, seen: Seen, verdict: Verdict) -> Verdict:
    promised = [states_promised(kind, value, seen.twin.layers) for kind, value in session.promised(case)]
    wanted = next((files for files in promised if isinstance(files, dict)), {})
    named: Mapping[str, Any] = seen.observation.data.get("named", {})
    group = [name for name in wanted if name.rpartition("_")[2].isdecimal()]
    held = [_state(named.get(name)) for name in group]
    if not group or held == [wanted[name] for name in group]:
        return verdict
    found = _remedy(case, session, wanted, group)
    if found is not None:
        key, ids = found
        place = f"{_overlay(case)}:{params_line(_own(case), case.pipeline.folder)}, in PARAMS"
        remedy = Remedy(
            key=key,
            lists=(tuple(ids),),
            where=place,
            before=_claim(session, case, held),
            sentence="verified by running the engine; then dump again, and train on that",
        )
        return replace(verdict, remedy=remedy, next_command=_again(case, session))
    before = _claim(session, case, held)
    return replace(verdict, remedy=_told(*before)) if before else verdict


def _claim(session: Session, case: Case, held: Sequence[State]) -> tuple[str, ...]:
    """Say what the claim would have to be, where all files hold plain states."""
    claim = session.claim(case.pipeline)
    if claim is None or not all(isinstance(state, int) for state in held):
        return ()
    layers = session.twin(case.pipeline).layers
    taps = [make_tap(state, layers) for state in held if isinstance(state, int)]
    text = as_hidden_states(taps, layers)
    write = (
        f"give {claim.position}={{{text}}}, or drop that flag"
        if claim.position.origin
        else f"write trained.taps: {{{text}}} at {claim.position}"
    )
    return (
        f"A draft trained on these files was trained on {', '.join(tap.label() for tap in taps)}. If it was, the patch "
        f"is right and the claim is not: {write}.",
    )


def _remedy(
    case: Case, session: Session, wanted: Mapping[str, int | str], group: Sequence[str]
) -> tuple[str, list[int]] | None:
    """Return the overlay's parameter and a list for it with which the engine dumps the wanted states."""
    params = overlay_params(_own(case), case.pipeline.folder) if case.overlay is not None else {}
    keys = [key for key, value in params.items() if _is_list_of(len(group), value)]
    ks = [wanted[name] for name in group]
    if len(keys) != 1 or not all(isinstance(k, int) for k in ks):
        return None

    def run(ids: list[int]) -> Observation | None:
        try:
            return session.observe(_with(case, keys[0], ids)).observation
        except (SpecError, Unrunnable):
            return None

    def gives(observation: Observation | None, states: Sequence[int | None]) -> bool:
        there = observation.data.get("named", {}) if observation is not None and observation.refusal is None else {}
        return [_state(there.get(name)) for name in group] == list(states)

    layers = session.twin(case.pipeline).layers
    taps: list[Tap] = [make_tap(k, layers) for k in ks if isinstance(k, int)]
    ids, _ = search(taps, run, skip=[params[keys[0]]], gives=gives)
    return (keys[0], ids) if ids is not None else None


def _with(case: Case, key: str, ids: list[int]) -> Case:
    """Return the case with one parameter of its overlay set."""
    position = _own(case).position
    edit = Break(verb="set", edits=((f"overlay.{key}", ids),), position=position)
    control = Control(break_=edit, in_=None, diagnosis="", position=position, text="")
    return replace(case, control=control)


def _parity(case: Case, session: Session, seen: Seen, verdict: Verdict) -> Verdict:
    claim = session.claim(case.pipeline)
    if claim is None or any(m.diagnosis == "altered" for m in verdict.mismatches):
        return verdict
    wanted = [("final_normed" if tap.k is None else tap.k) for tap in session.taps(case.pipeline)]
    right = {
        name: [_state(report) for report in seen.observation.data["sides"][name]] == wanted
        for name in ("train", "serve")
    }
    nouns = {"train": "training", "serve": "serving"}
    wrong = [name for name in nouns if not right[name]]
    if len(wrong) == 1:
        good = nouns["serve" if wrong[0] == "train" else "train"]
        sentence = f"{good.capitalize()} holds what {claim.position} claims: {nouns[wrong[0]]} is the side to change."
    elif wrong:
        sentence = f"Neither side holds what {claim.position} claims. Begin with training."
    else:
        return verdict
    chain = case.producers.get(wrong[0])
    if chain is None:
        return verdict
    return replace(verdict, remedy=_told(sentence), next_command=_run([*chain.upstream, chain], session))


def _stage(case: Case, session: Session, verdict: Verdict) -> Verdict:
    """Say what to write where the right tensors stand in the wrong order."""
    call = written(case).get("call")
    permuted = next((m for m in verdict.mismatches if m.diagnosis == "permuted"), None)
    if permuted is None or call is None:
        return verdict
    promise = next((value for kind, value in session.promised(case) if kind in ("order", "concat")), None)
    if promise is None or not isinstance(promise.data, Mapping):
        return verdict
    listed = "; ".join(f"{key} in the order {', '.join(map(str, names))}" for key, names in promise.data.items())
    sentence = f"Let {call.data} put {listed} ({promise.position}), or declare the order that was trained on."
    return replace(verdict, remedy=_told(sentence), next_command=_again(case, session))


def _told(*sentences: str) -> Remedy:
    return Remedy(key="", lists=(), where="", before=sentences)


def _run(cases: Sequence[Case], session: Session) -> str:
    """Return the command for whole contracts, with the flags of this run."""
    files = dict.fromkeys(_file(case) for case in cases)
    return " ".join(["pytest --contracts", *files, *_flags(session)])


def _again(case: Case, session: Session) -> str:
    return " ".join([f"pytest --contracts '{_file(case)}::{case.name}'", *_flags(session)])


def _flags(session: Session) -> list[str]:
    return [f"--contracts-set '{key}={show(value.data)}'" for key, value in session.overrides.items()]


def _file(case: Case) -> str:
    return case.contract.document.shown


def _own(case: Case) -> Value:
    assert case.overlay is not None
    return case.overlay


def _overlay(case: Case) -> str:
    folder = _file(case).rpartition("/")[0]
    return f"{folder}/{_own(case).data}" if folder else str(_own(case).data)


def _is_list_of(length: int, value: object) -> bool:
    return isinstance(value, list) and len(value) == length and all(type(entry) is int for entry in value)


def _state(report: Mapping[str, Any] | None) -> State:
    """Return the state that a slot was identified as; None for any other outcome."""
    best = report.get("best") if report is not None and report.get("outcome") == "identified" else None
    if best is None:
        return None
    return best["k"] if best["kind"] == "state" else str(best["kind"])
