"""After all verdicts, one sentence a pipeline: which side is wrong, from which sides agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eagle_contracts.facts import CONCAT, DUMP, ORDER, PARITY, SERVE, Fact, State


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
    text: str
    where: str
    serve: tuple[Fact, ...]
    dump: Fact | None
    order: Fact | None
    concat: Fact | None
    trained: tuple[State, ...] | None


def conclude(facts: Iterable[Fact]) -> list[Conclusion]:
    """Return a conclusion for every pipeline that facts are about, in the order in which they came."""
    by_pipeline: dict[str, list[Fact]] = {}
    for fact in facts:
        by_pipeline.setdefault(fact.pipeline, []).append(fact)
    return [_conclusion(pipeline, _sides(found)) for pipeline, found in by_pipeline.items()]


def _sides(facts: Sequence[Fact]) -> _Sides:
    def last(kind: str) -> Fact | None:
        return next((fact for fact in reversed(facts) if fact.kind == kind), None)

    serve = {fact.environment: fact for fact in facts if fact.kind == SERVE}
    dump, order, concat, parity = last(DUMP), last(ORDER), last(CONCAT), last(PARITY)
    return _Sides(
        claim=facts[0].claim,
        text=facts[0].claim_text,
        where=facts[0].claim_where,
        serve=tuple(sorted(serve.values(), key=lambda fact: fact.rank)),
        dump=dump,
        order=order,
        concat=concat,
        trained=parity.states if parity else _trained(dump, order, concat),
    )


def _trained(dump: Fact | None, order: Fact | None, concat: Fact | None) -> tuple[State, ...] | None:
    """Follow the names through the stages: what the draft read in training, as far as stages were seen."""
    if dump is None or dump.states is None:
        return None
    names: Sequence[str | None] = [f"aux_{n}" for n in range(len(dump.states))]
    if concat is not None and concat.names is not None:
        names = concat.names
    elif order is not None and order.names is not None:
        names = [name for name in order.names if name != "final"]
    held = {f"aux_{n}": state for n, state in enumerate(dump.states)}
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
    if served == {sides.trained}:
        return _both_alike(sides)
    if served == {sides.claim}:
        return _training(sides)
    return "undecided", (
        f"undecided: training gave {_listed(sides.trained)}, serving gives {_by_environment(sides.serve)}, and "
        f"{sides.where} declares {_listed(sides.claim)}: no two of the three agree everywhere. Bring serving's "
        f"environments to one list first, then run again"
    )


def _serving(sides: _Sides, wrong: Sequence[Fact]) -> tuple[str, str]:
    if not wrong:
        names = ", ".join(fact.environment for fact in sides.serve)
        return (
            "agreed",
            f"training and serving ({names}) both give the draft {_listed(sides.claim)}, as {sides.where} says",
        )
    places = "; ".join(f"{fact.environment} gives {_listed(fact.states)} ({fact.where})" for fact in wrong)
    return "serving", (
        f"serving is wrong: {places}, and training gave {_listed(sides.claim)}, as {sides.where} says. Write the "
        f"{wrong[0].key or 'draft.layer_ids'} that the failing item names; do not change training"
    )


def _both_alike(sides: _Sides) -> tuple[str, str]:
    """Training and serving agree, and not with the claim: a wrong label, unless the dump holds the claim."""
    both = _listed(sides.trained)
    plain = all(isinstance(state, int) for state in sides.trained or ())
    entered = sides.dump is not None and sides.dump.states == sides.claim
    if plain and not entered:
        text = f"hidden_states: [{', '.join(map(str, sides.trained or ()))}]"
        return "claim", (
            f"the declaration at {sides.where} is wrong: training and serving both give the draft {both}, not "
            f"{_listed(sides.claim)}. Write trained.taps: {{{text}}} there, and change neither side"
        )
    where = _stage(sides)
    return "both", (
        f"both sides are wrong in the same way: training and serving give the draft {both} where {sides.where} "
        f"declares {_listed(sides.claim)}. In training it enters at {where}"
    )


def _training(sides: _Sides) -> tuple[str, str]:
    head = f"serving gives {_listed(sides.claim)}, as {sides.where} says"
    if sides.dump is not None and sides.dump.states != sides.claim:
        return "dump", (
            f"the dump is wrong: {sides.dump.file} ({sides.dump.where}) writes {_listed(sides.dump.states)}, and "
            f"{head}. What was trained on these files was trained on other states than served"
        )
    if sides.order is not None and _slots(sides.order) != _straight(sides):
        return "extraction", (
            f"the extraction order is wrong: {sides.order.file} ({sides.order.where}) puts "
            f"{_names(sides.order.names)}, the dump holds the declared states, and {head}"
        )
    if sides.concat is not None:
        return "concat", (
            f"the concatenation is wrong: {sides.concat.file} ({sides.concat.where}) joins "
            f"{_names(sides.concat.names)}, the stages before it are right, and {head}"
        )
    return "training", (
        f"training is wrong: it gave {_listed(sides.trained)}, and {head}. Run the contracts of the dump and of the "
        f"stages after it to see where it enters"
    )


def _stage(sides: _Sides) -> str:
    if sides.dump is not None and sides.dump.states != sides.claim:
        return f"{sides.dump.file} ({sides.dump.where})"
    if sides.order is not None and _slots(sides.order) != _straight(sides):
        return f"{sides.order.file} ({sides.order.where})"
    if sides.concat is not None:
        return f"{sides.concat.file} ({sides.concat.where})"
    return "a stage that this run has not seen"


def _slots(order: Fact) -> tuple[str | None, ...]:
    return tuple(name for name in order.names or () if name != "final")


def _straight(sides: _Sides) -> tuple[str, ...]:
    return tuple(f"aux_{n}" for n in range(len(sides.claim)))


def _without_training(sides: _Sides) -> tuple[str, str]:
    wrong = [fact for fact in sides.serve if fact.states != sides.claim]
    if not sides.serve:
        return "undecided", "undecided: neither training nor serving was observed; run the whole pipeline's contracts"
    if not wrong:
        names = ", ".join(fact.environment for fact in sides.serve)
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
        return "undecided", (
            f"training gave {_listed(sides.claim)}, as {sides.where} says; serving was not observed here, so the two "
            f"sides are not compared"
        )
    return "undecided", (
        f"undecided: training gave {_listed(sides.trained)} where {sides.where} declares {_listed(sides.claim)}; "
        f"whether the claim or training is wrong shows when serving is observed too: run its capture contract"
    )


def _by_environment(facts: Sequence[Fact]) -> str:
    return ", ".join(f"{_listed(fact.states)} in {fact.environment}" for fact in facts)


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
