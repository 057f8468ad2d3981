"""After all verdicts, one sentence a pipeline: which side is wrong, from which sides agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eagle_contracts.facts import CONCAT, DRAFT, DUMP, ORDER, PARITY, SERVE, Fact, State
from eagle_contracts.taps import as_hidden_states, make_tap

PRECISION = ("wrong_dtype", "altered")
"""Faults that leave every state what it is, so that they explain no other state further on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a run says of one pipeline: a word for machines and a sentence for people."""

    pipeline: str
    outcome: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """A pipeline's facts by side, and what the draft was trained on as far as the run has seen it."""

    claim: tuple[State, ...]
    where: str
    layers: int
    serve: tuple[Fact, ...]
    dump: Fact | None
    order: Fact | None
    concat: Fact | None
    trained: tuple[State, ...] | None
    draft: Fact | None


def conclude(facts: Iterable[Fact]) -> list[Conclusion]:
    """Return a conclusion for every pipeline that facts are about, in the order in which they came."""
    by_pipeline: dict[str, list[Fact]] = {}
    for fact in facts:
        by_pipeline.setdefault(fact.pipeline, []).append(fact)
    return [_conclusion(pipeline, _sides(found)) for pipeline, found in by_pipeline.items()]


def _sides(facts: Sequence[Fact]) -> _Sides:
    def of(kind: str) -> Fact | None:
        """Return the last fact of a kind, before all others the last one that breaks its contract."""
        found = [fact for fact in reversed(facts) if fact.kind == kind]
        return next((fact for fact in found if fact.fault), found[0] if found else None)

    serve: dict[str, Fact] = {}
    for fact in (fact for fact in facts if fact.kind == SERVE):
        if fact.write or not serve.get(fact.environment, fact).write:  # one that another item only read says nothing
            serve[fact.environment] = fact
    dump, order, concat, parity = of(DUMP), of(ORDER), of(CONCAT), of(PARITY)
    return _Sides(
        claim=facts[0].claim,
        where=facts[0].claim_where,
        layers=facts[0].layers,
        serve=tuple(sorted(serve.values(), key=lambda fact: fact.rank)),
        dump=dump,
        order=order,
        concat=concat,
        trained=parity.states if parity else _trained(dump, order, concat),
        draft=of(DRAFT),
    )


def _trained(dump: Fact | None, order: Fact | None, concat: Fact | None) -> tuple[State, ...] | None:
    """Follow the names through the stages: what the draft read in training, as far as stages were seen."""
    if dump is None or dump.states is None:
        return None
    files = dump.names or tuple(f"aux_{n}" for n in range(len(dump.states)))
    names: Sequence[str | None] = files
    if concat is not None and concat.names is not None:
        names = concat.names
    elif order is not None and order.names is not None:
        names = order.names[: len(files)]
    held = dict(zip(files, dump.states, strict=False))
    if concat is not None and order is not None and order.names is not None:
        put = dict(zip(order.promised, order.names, strict=False))
        names = [put.get(name, name) if name is not None else None for name in names]
    return tuple(held.get(name) if name is not None else None for name in names)


def _conclusion(pipeline: str, sides: _Sides) -> Conclusion:
    outcome, sentence = _judged(sides)
    return Conclusion(pipeline=pipeline, outcome=outcome, sentence=sentence)


def _judged(sides: _Sides) -> tuple[str, str]:
    if sides.trained is None:
        return _without_training(sides)
    if not sides.serve:
        return _without_serving(sides)
    served = {fact.states for fact in sides.serve}
    if sides.trained == sides.claim:
        return _serving(sides, [fact for fact in sides.serve if fact.states != sides.claim])
    if served == {sides.trained} and None not in sides.trained:
        return _both_alike(sides)
    if served == {sides.claim}:
        return _training(sides)
    advice = (
        "Bring serving's environments to one list first, then run again"
        if len(served) > 1
        else "Correct the side whose item fails first in the pipeline's order, then run again"
    )
    return "undecided", (
        f"undecided: training gave {_listed(sides.trained)}, serving gives {_by_environment(sides.serve)}, and "
        f"{sides.where} declares {_listed(sides.claim)}: no two of the three agree everywhere. {advice}"
    )


def _serving(sides: _Sides, wrong: Sequence[Fact]) -> tuple[str, str]:
    if not wrong:
        names = ", ".join(fact.environment for fact in sides.serve)
        if (broken := _first_broken(sides)) is not None:
            return _breaks(broken, f"the states in training and in serving ({names}) are those that {sides.where} says")
        if sides.draft is not None and sides.draft.fault:
            return _draft(sides.draft, f"the states in training and in serving ({names}) are right")
        return (
            "agreed",
            f"training and serving ({names}) both give the draft {_listed(sides.claim)}, as {sides.where} says",
        )
    places = "; ".join(f"{fact.environment} gives {_listed(fact.states)} ({fact.where})" for fact in wrong)
    return "serving", (
        f"serving is wrong: {places}, and training gave {_listed(sides.claim)}, as {sides.where} says. "
        f"{_write(wrong)}; do not change training"
    )


def _write(wrong: Sequence[Fact]) -> str:
    """Say what to write for each environment, as its failing item says; else that the item says it."""
    told = [fact for fact in wrong if fact.write]
    if len(told) < len(wrong):
        return f"Write the {wrong[0].key or 'draft.layer_ids'} that the failing item names"
    return "Write " + "; ".join(f"{fact.write} ({fact.environment})" for fact in told)


def _draft(draft: Fact, head: str) -> tuple[str, str]:
    """Say that the draft makes something else of the right states."""
    return "draft", (
        f"the draft's side is wrong: {draft.contract} in {draft.environment} is broken ({draft.fault}), and {head}"
    )


def _both_alike(sides: _Sides) -> tuple[str, str]:
    """Training and serving agree, and not with the claim: a wrong label, unless the dump holds the claim."""
    both = _listed(sides.trained)
    trained = sides.trained or ()
    plain = [state for state in trained if isinstance(state, int) or state == "final_normed"]
    entered = sides.dump is not None and sides.dump.states == sides.claim
    if len(plain) == len(trained) and not entered:
        taps = [make_tap(state if isinstance(state, int) else None, sides.layers) for state in plain]
        text = as_hidden_states(taps, sides.layers)
        return "claim", (
            f"the declaration at {sides.where} is wrong: training and serving both give the draft {both}, not "
            f"{_listed(sides.claim)}. {_write_claim(sides.where, text)}, and change neither side"
        )
    where = _stage(sides)
    return "both", (
        f"both sides are wrong in the same way: training and serving give the draft {both} where {sides.where} "
        f"declares {_listed(sides.claim)}. In training it enters at {where}"
    )


def _write_claim(where: str, text: str) -> str:
    """Say what to write for the claim: in its file, or in the flag that stands over it."""
    if where.startswith("--"):
        return f"Give {where}={{{text}}} or drop that flag"
    return f"Write trained.taps: {{{text}}} there"


def _training(sides: _Sides) -> tuple[str, str]:
    head = f"serving gives {_listed(sides.claim)}, as {sides.where} says"
    wrong = _first_wrong(sides)
    if wrong is None:
        return "training", (
            f"training is wrong: it gave {_listed(sides.trained)}, and {head}. Run the contracts of the dump and of "
            f"the stages after it to see where it enters"
        )
    if not _misplaced(sides, wrong):
        return _breaks(wrong, head)
    place = f"{wrong.file} ({wrong.where})"
    if wrong.kind == DUMP:
        return "dump", (
            f"the dump is wrong: {place} writes {_listed(wrong.states)}, and {head}. What was trained on these files "
            f"was trained on other states than served"
        )
    if wrong.kind == ORDER:
        return "extraction", (
            f"the extraction order is wrong: {place} puts {_names(wrong.names)}, the dump holds the declared states, "
            f"and {head}"
        )
    return "concat", (
        f"the concatenation is wrong: {place} joins {_names(wrong.names)}, the stages before it are right, and {head}"
    )


def _breaks(stage: Fact, head: str) -> tuple[str, str]:
    """Say that a stage puts the right things in the right order, and still breaks a promise of its contract."""
    outcome, noun = {DUMP: ("dump", "dump"), ORDER: ("extraction", "extraction"), CONCAT: ("concat", "concatenation")}[
        stage.kind
    ]
    return outcome, f"the {noun} is wrong: {stage.file} ({stage.where}) breaks its contract ({stage.fault}), and {head}"


def _stage(sides: _Sides) -> str:
    wrong = _first_wrong(sides)
    return "a stage that this run has not seen" if wrong is None else f"{wrong.file} ({wrong.where})"


def _first_wrong(sides: _Sides) -> Fact | None:
    """Return the first stage with other states, another order or a broken promise, precision coming last."""
    moves = (fact for fact in _stages(sides) if _misplaced(sides, fact) or _is_grave(fact))
    return next(moves, _first_broken(sides))


def _is_grave(fact: Fact) -> bool:
    return bool(fact.fault) and fact.fault.partition(":")[0] not in PRECISION


def _first_broken(sides: _Sides) -> Fact | None:
    return next((fact for fact in _stages(sides) if fact.fault), None)


def _stages(sides: _Sides) -> list[Fact]:
    return [fact for fact in (sides.dump, sides.order, sides.concat) if fact is not None]


def _misplaced(sides: _Sides, stage: Fact) -> bool:
    """Tell whether a dump holds other states than claimed, or a stage begins with other tensors than the dump's."""
    if stage.kind == DUMP:
        return stage.states != sides.claim
    files = (sides.dump.names if sides.dump else None) or tuple(f"aux_{n}" for n in range(len(sides.claim)))
    names = stage.names or ()
    return names != files if stage.kind == CONCAT else names[: len(files)] != files


def _without_training(sides: _Sides) -> tuple[str, str]:
    wrong = [fact for fact in sides.serve if fact.states != sides.claim]
    if not sides.serve:
        return "undecided", "undecided: neither training nor serving was observed; run the whole pipeline's contracts"
    if not wrong:
        names = ", ".join(fact.environment for fact in sides.serve)
        if sides.draft is not None and sides.draft.fault:
            return _draft(sides.draft, f"the states that serving ({names}) captures are those that {sides.where} says")
        return "undecided", (
            f"serving ({names}) gives {_listed(sides.claim)}, as {sides.where} says; what training gave was not "
            f"observed here, so the two sides are not compared"
        )
    return "undecided", (
        f"undecided: serving gives {_by_environment(wrong)} where {sides.where} declares {_listed(sides.claim)}; "
        f"whether the claim or serving is wrong shows when training is observed too: run the contracts of its dump"
    )


def _without_serving(sides: _Sides) -> tuple[str, str]:
    if sides.trained == sides.claim:
        if (broken := _first_broken(sides)) is not None:
            return _breaks(broken, "serving was not observed here")
        return "undecided", (
            f"training gave {_listed(sides.claim)}, as {sides.where} says; serving was not observed here, so the two "
            f"sides are not compared"
        )
    return "undecided", (
        f"undecided: training gave {_listed(sides.trained)} where {sides.where} declares {_listed(sides.claim)}; "
        f"whether the claim or training is wrong shows when serving is observed too: run its capture contract"
    )


def _by_environment(facts: Sequence[Fact]) -> str:
    return "; ".join(f"{_listed(fact.states)} in {fact.environment}" for fact in facts)


def _listed(states: Sequence[State] | None) -> str:
    if states is None:
        return "nothing that was identified"
    if tuple(states) == ("refused",):
        return "nothing (the engine refuses)"
    return ", ".join(_named(state) for state in states) or "nothing"


def _named(state: State) -> str:
    if state is None:
        return "an unknown state"
    return f"h[{state}]" if isinstance(state, int) else state


def _names(names: Sequence[str | None] | None) -> str:
    return f"[{', '.join(name or '?' for name in names or ())}]"
