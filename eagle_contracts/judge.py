"""One case -> its verdict: observe, hold against the promises, find what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eagle_contracts.claim import Claim, doubt, in_layer_order, other_reading
from eagle_contracts.devices import CPU
from eagle_contracts.draft_advice import advised as draft_advised
from eagle_contracts.engines import Unrunnable, shown_variables
from eagle_contracts.facts import Claimed, Fact, facts_of
from eagle_contracts.handoffs import advised as handoffs_advised
from eagle_contracts.handoffs import fault_of
from eagle_contracts.inspection import DRAFT
from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case, environments_of, parameters
from eagle_contracts.remedy import Try, search
from eagle_contracts.session import Seen, Session
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import SETTABLE, Ref, Value
from eagle_contracts.taps import parse_taps
from eagle_contracts.verdict import Mismatch, Remedy, Status, Verdict


def judge(case: Case, session: Session) -> Verdict:
    """Return a case's verdict; nothing a user or an engine does wrong raises."""
    try:
        issues = session.issues(case)
        if issues:
            raise SpecError(issues)
        seen = session.observe(case)
        mismatches = session.mismatches(case, seen)
        context = _context(case, session, seen)
    except SpecError as error:
        return _mistake(case, session, error)
    except Unrunnable as stopped:
        return Verdict(
            status=stopped.status,
            reason=stopped.reason,
            sentence=stopped.message,
            details=stopped.details,
            log=stopped.log,
        )
    verdict = _of_control(case, mismatches) if case.control else _of_promise(mismatches)
    if case.control and verdict.status != "passed":
        verdict = _about_the_break(case, session, verdict)
    facts = () if case.control else tuple(fact.to_json() for fact in _facts(case, session, seen))
    verdict = replace(
        verdict,
        context=context,
        facts=facts,
        engine_version=_version(case, seen),
        properties=_properties(case, seen, verdict),
    )
    if verdict.status != "violated" or case.control:
        return verdict
    if verdict.diagnosis == "config_ignored":
        return draft_advised(case, session, seen, verdict)
    verdict = _with_advice_in_facts(case, _advised(case, session, seen, verdict))
    if case.subject.name == DRAFT and verdict.remedy is None:
        verdict = draft_advised(case, session, seen, verdict)
    return _once(case, session, verdict)


def _mistake(case: Case, session: Session, error: SpecError) -> Verdict:
    """Tell what is wrong with the values of a contract whole once, and in one line in its other items."""
    text = error.render()
    first = session.refusals.setdefault((case.contract.document.shown, "", text), case.name)
    if first != case.name:
        text = f"{error.issues[0].position.full}: {error.issues[0].message}, as told whole at {first}"
    return Verdict(status="error", reason="spec", sentence=text)


def _once(case: Case, session: Session, verdict: Verdict) -> Verdict:
    """Tell a refusal whole in the first item that meets it, and in one line in the contract's others."""
    if verdict.diagnosis != "engine_refused":
        return verdict
    key = (case.contract.document.shown, case.environment.name, verdict.sentence)
    first = session.refusals.setdefault(key, case.name)
    if first == case.name:
        return verdict
    sentence = f"{verdict.sentence.partition(':')[0]}, as told whole at {first}"
    return replace(verdict, sentence=sentence, mismatches=(), context=(), remedy=None, next_command="")


def _with_advice_in_facts(case: Case, verdict: Verdict) -> Verdict:
    """Let the run's conclusion repeat what this item says to write."""
    remedy = verdict.remedy
    if remedy is None or not remedy.lists:
        return verdict
    write = f"{remedy.key}: {list(remedy.lists[0])} at {remedy.where.partition(', ')[0]}"
    own = (case.contract.document.shown, case.environment.name)
    facts = tuple(
        {**fact, "write": write} if (fact["contract"], fact["environment"]) == own else fact for fact in verdict.facts
    )
    return replace(verdict, facts=facts)


def _facts(case: Case, session: Session, seen: Seen) -> Iterator[Fact]:
    """Yield what this case found out, and what the observations that it read show."""
    claim = session.claim(case.pipeline)
    if claim is None:
        return
    claimed = Claimed(taps=session.taps(case.pipeline), position=str(claim.position), layers=seen.twin.layers)
    for one in (*case.upstream, case):
        observed = seen if one is case else session.observe(one)
        dumps = [
            session.observe(producer).observation for producer in one.upstream if producer.subject.name == "sglang.dump"
        ]
        given = parameters(one, session.overrides)
        fault = fault_of(one, session, observed)
        yield from facts_of(one, observed.observation, claimed, given, dumps[0] if dumps else None, fault)


def _of_promise(mismatches: Sequence[Mismatch]) -> Verdict:
    if not mismatches:
        return Verdict(status="passed")
    first = mismatches[0]
    status: Status = "inconclusive" if first.diagnosis is None else "violated"
    return Verdict(status=status, diagnosis=first.diagnosis, sentence=first.sentence, mismatches=tuple(mismatches))


def _of_control(case: Case, mismatches: Sequence[Mismatch]) -> Verdict:
    """A break is caught if at least one promise gives its diagnosis and none gives another."""
    assert case.control is not None
    wanted, given = case.control.diagnosis, [m.diagnosis or "inconclusive" for m in mismatches]
    if given and set(given) == {wanted}:
        return Verdict(status="passed", diagnosis=wanted)
    broken = f"the break at {case.control.position} ({case.control.text})"
    if not given:
        sentence = f"{broken} was not caught: with it, every promise of this contract still holds"
        return Verdict(status="violated", diagnosis="not_caught", sentence=sentence)
    found = ", ".join(dict.fromkeys(given))
    sentence = f"{broken} was to be caught as {wanted}, and was diagnosed as {found}"
    return Verdict(status="violated", diagnosis="caught_as_another", sentence=sentence, mismatches=tuple(mismatches))


def _about_the_break(case: Case, session: Session, verdict: Verdict) -> Verdict:
    """Say why a break may not show: it writes what stands there, or the contract is broken without it too.

    In the second case what was seen with the break says nothing yet, and is left out.
    """
    assert case.control is not None
    whole = replace(case, control=None)
    given, broken = (parameters(one, session.overrides) for one in (whole, case))
    edits = [path.removeprefix("with.") for path, _ in case.control.break_.edits]
    same = [key for key in edits if key in given and given[key].data == broken[key].data]
    if same and len(same) == len(edits):
        told = [f"{key} is {show(given[key].data)} without it too ({given[key].position})" for key in same]
        return replace(verdict, details=tuple(f"the break changes nothing: {one}" for one in told))
    try:
        fault = fault_of(whole, session, session.observe(whole))
    except (SpecError, Unrunnable):
        return verdict
    if not fault:
        return verdict
    named = fault.partition(":")[0]
    detail = f"without the break the contract is broken too ({named}): mend that first, then this can be told"
    return replace(verdict, details=(detail,), mismatches=())


def _context(case: Case, session: Session, seen: Seen) -> tuple[tuple[str, str, str], ...]:
    """Return what was run on what, each with where it was written."""
    rows = [(kind, _show(value), str(value.position)) for kind, value in session.promised(case)]
    rows += [(key, _show(value), str(value.position)) for key, value in parameters(case, session.overrides).items()]
    rows += [(name, f"{one.contract.name} in {one.environment.name}", "") for name, one in case.producers.items()]
    rows += [
        ("patched", f"{overlay['shown']} (diff {overlay['diff_digest']})", "")
        for overlay in seen.engine.get("overlays", [])
    ]
    rows += [
        (name, value, "this process's environment") for name, value in shown_variables(case.subject.engine).items()
    ]
    device = session.device.kind if case.subject.on_device else CPU.kind
    rows.append(("engine", f"{_engine(case, seen)}, {_twin(seen)}, {device}", ""))
    return tuple(rows)


def _version(case: Case, seen: Seen) -> str:
    """Return the engine's version alone."""
    return str(seen.engine.get("package", "")).rpartition(" ")[2] or str(seen.engine.get(case.subject.engine, ""))


def _engine(case: Case, seen: Seen) -> str:
    """Name what ran, with its version."""
    return str(
        seen.engine.get("package") or f"{case.subject.engine} {seen.engine.get(case.subject.engine, '')}".strip()
    )


def _twin(seen: Seen) -> str:
    tokens = sum(map(len, seen.twin.prompts))
    return f"{seen.twin.architecture} twin of {seen.twin.layers} layers, {tokens} tokens"


def _show(value: Value) -> str:
    return show(value.data)


def _properties(case: Case, seen: Seen, verdict: Verdict) -> dict[str, str]:
    """Return what JUnit and other machines read."""
    states = seen.observation.states
    return {
        "contract": case.contract.name,
        "environment": case.environment.name,
        "engine": _engine(case, seen),
        "diagnosis": verdict.diagnosis or "",
        "observed": ", ".join(states) if states else "refused" if seen.observation.refusal else "",
    }


def _advised(case: Case, session: Session, seen: Seen, verdict: Verdict) -> Verdict:
    """Add what to write instead, and what to run then."""
    if case.subject.remedy is None:
        return handoffs_advised(case, session, seen, verdict)
    parameter, key = case.subject.remedy
    written = case.contract.with_[parameter]
    if not isinstance(written.data, Ref):
        key = f"with.{parameter}"
    taps = parse_taps(session.declared(case)[0], seen.twin.layers) if session.declared(case) else ()
    given = parameters(case, session.overrides)
    claim = doubt(case, session, taps) if taps else None
    before = (*_cause(case, session, given, parameter, seen), *(claim.sentences if claim else ()))
    run = _runner(case, session, given, parameter)
    ids, tried = search(taps, run, skip=[given[parameter].data])
    if taps and claim is None:
        before += other_reading(session.declared(case)[0], taps, seen.observation)
    if taps and ids is None and verdict.diagnosis == "permuted":
        before += in_layer_order(session.declared(case)[0], taps, seen.twin.layers)
    remedy = Remedy(
        key=key,
        lists=(tuple(ids),) if ids else (),
        where=_where(case, session, given, parameter, ids),
        before=before,
        sentence=_sentence(case, ids, tried, claim),
        tried=tried,
    )
    return replace(verdict, remedy=remedy, next_command=_next(case, session, key, ids, claim))


def _runner(case: Case, session: Session, given: dict[str, Value], parameter: str) -> Try:
    def run(ids: list[int]) -> Observation | None:
        try:
            changed = {**given, parameter: Value(data=ids, position=given[parameter].position)}
            return session.observe(case, changed).observation
        except (SpecError, Unrunnable):
            return None

    return run


def _is_layer(entry: object, layers: int) -> bool:
    return isinstance(entry, int) and 0 <= entry < layers


def _cause(case: Case, session: Session, given: dict[str, Value], parameter: str, seen: Seen) -> tuple[str, ...]:
    """Say why an engine refused, where leaving out the ids that name no layer makes it accept the rest."""
    ids = given[parameter].data
    if seen.observation.refusal is None or not isinstance(ids, list):
        return ()
    layers = seen.twin.layers
    strange = [i for n, i in enumerate(ids) if not _is_layer(i, layers) or i in ids[:n]]
    if not strange or len(strange) == len(ids):
        return ()
    rest = [i for n, i in enumerate(ids) if i not in strange or (_is_layer(i, layers) and ids.index(i) == n)]
    without = _runner(case, session, given, parameter)(rest)
    named = ", ".join(dict.fromkeys(str(i) for i in strange))
    if without is not None and without.refusal is None and all(_is_layer(i, layers) for i in ids):
        return (f"likely cause: {named} stands twice. An engine captures a layer once: it accepts {rest}.",)
    if without is None or without.refusal is not None:
        return (f"{named} names no layer of a target with {layers} layers (0 to {layers - 1}).",)
    why = (
        "this engine cannot capture what it asks for, the embedding for instance" if -1 in strange else "it is no layer"
    )
    return (f"likely cause: {named}. Without it the engine accepts {rest}: {why}.",)


def _sentence(case: Case, ids: list[int] | None, tried: int, claim: Claim | None) -> str:
    if ids is None:
        return (
            f"no list that was tried expresses these states ({tried} were run)"
            if tried
            else "no list can name these states"
        )
    sure = "verified by running the engine"
    return f"only if the claim is right ({sure})" if claim else sure


def _where(case: Case, session: Session, given: dict[str, Value], parameter: str, ids: list[int] | None) -> str:
    """Name the place to change: where the value is written, unless other environments read that very place.

    Then the environment's own `set` is named: one list for two engines can be right for one of them alone.
    """
    own = _written(case, session, given, parameter)
    others = [
        environment.name
        for environment in environments_of(case.contract.in_, case.pipeline)
        if environment.name != case.environment.name
        and _written(replace(case, environment=environment), session, given, parameter).position == own.position
    ]
    key = case.subject.remedy[1] if case.subject.remedy else parameter
    referred = isinstance(case.contract.with_[parameter].data, Ref)
    if others and referred and ids is not None and own.data != ids and not _is_own(case, key):
        place = f"{case.environment.position}, as set: {{{key}: {ids}}} of environment {case.environment.name}"
        return f"{place} alone ({own.position} is read by {', '.join(others)} too)"
    place = str(own.position)
    if key in case.environment.set:
        place = f"{own.position}, environment {case.environment.name}"
    if key in session.overrides and ids is not None and own.data == ids:
        return f"{place}, where it stands already: drop the flag"
    return place


def _is_own(case: Case, key: str) -> bool:
    """Tell whether an environment's value stands in its own entry, not in one that it is like."""
    environment = case.environment
    parent = case.pipeline.environments.get(environment.like or "")
    inherited = parent.set.get(key) if parent is not None else None
    own = environment.set.get(key)
    return own is not None and (inherited is None or inherited.position != own.position)


def _written(case: Case, session: Session, given: dict[str, Value], parameter: str) -> Value:
    """Return the value that is run where nothing is overridden, with its place."""
    key = case.subject.remedy[1] if case.subject.remedy else parameter
    try:
        return parameters(case, {k: v for k, v in session.overrides.items() if k != key})[parameter]
    except SpecError:
        return given[parameter]


def _next(case: Case, session: Session, key: str, ids: list[int] | None, claim: Claim | None) -> str:
    device = f" --contracts-device={session.device.kind}" if session.device.is_gpu else ""
    file = case.contract.document.shown
    if claim is not None:
        folder = file.rpartition("/")[0] or "."
        return f"pytest --contracts {folder} --contracts-set 'trained.taps={{{claim.taps}}}'{device}"
    if ids is None:
        return ""
    listed = ",".join(map(str, ids))
    override = f" --contracts-set '{key}=[{listed}]'" if key in SETTABLE else ""
    return f"pytest --contracts '{file}::{case.name}'{override}{device}"
