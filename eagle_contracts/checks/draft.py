"""What a draft reads at its first step and later, against what is promised; no I/O, no engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eagle_contracts.checks.context import Context
from eagle_contracts.checks.outputs import product
from eagle_contracts.checks.slots import check_slots, refused
from eagle_contracts.observation import Observation
from eagle_contracts.spec.errors import fail, suggest
from eagle_contracts.spec.flow import found
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

FC = ("once", "never")
OWN_STATES = 1e-4
"""How far the target's own states may be from the recorded ones before they are called others."""


def check_first_step(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if step 1 reads another width or other states than promised, or calls `fc` otherwise.

    The promise is `{reads: slots x target, fc: once, slots: TAPS}`, of which `slots` may be left out.
    """
    _check_keys(promise, ("reads", "fc"), ("slots",))
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    wanted, real = _reads(promise, observation, context)
    first = observation.data["steps"][0]
    width, calls = first["read"][1], len(first["fc"])
    if not calls and _calls(promise) and width == observation.data["draft_width"]:
        yield _skipped(observation, context)
        return
    if width != wanted:
        fewer = width < wanted and width % context.width == 0
        yield Mismatch(
            diagnosis="missing_slot" if fewer else "wrong_width",
            sentence=f"step 1 reads {width} values a token where {_text(promise)} is {wanted} on the twin{real}",
        )
        return
    if calls != _calls(promise):
        yield Mismatch(
            diagnosis="wrong_width", sentence=f"step 1 calls fc {_times(calls)}, and {_fc(promise)} is promised"
        )
        return
    if "slots" in _map(promise):
        yield from check_slots(promise.child("slots"), observation, context)


def check_later_steps(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a step after the first reads anything but what the step before handed on, or calls `fc`.

    The promise is `{reads: draft, fc: never}`.
    """
    _check_keys(promise, ("reads", "fc"), ())
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    wanted, _ = _reads(promise, observation, context)
    own, real = observation.data["draft_width"], _real(context)
    later = observation.data["steps"][1:]
    if not later:
        yield Mismatch(
            diagnosis="missing_tokens", sentence="the engine drafted one step only, so no later step was seen"
        )
    for number, step in enumerate(later, start=2):
        width, calls = step["read"][1], len(step["fc"])
        if width == own and width != wanted:
            yield Mismatch(
                diagnosis="wrong_width",
                sentence=f"step {number} reads {width} values a token where {_text(promise)} is {wanted}. "
                f"{width}{real} is right: from step 2 on the draft reads its own state and skips fc; only step 1 reads "
                f"slots x target. Write reads: draft, fc: never",
            )
            return
        if width != wanted or calls != _calls(promise):
            yield Mismatch(
                diagnosis="wrong_width",
                sentence=f"step {number} reads {width} values a token and calls fc {_times(calls)}, where "
                f"{_text(promise)} is {wanted} and fc is to be called {_fc(promise)}",
            )
            return
    yield from _not_fed_back(observation)


def _not_fed_back(observation: Observation) -> Iterator[Mismatch]:
    for number, error in enumerate(observation.data["fed_back"], start=2):
        if error is None or error > 0:
            far = "another shape" if error is None else f"off by up to {error:.1e}"
            yield Mismatch(
                diagnosis="other_state",
                sentence=f"step {number} does not read the state that step {number - 1} handed on ({far})",
            )
            return


def check_fc_in(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if `fc`'s input is not as wide as promised: as built, by the real config, in a checkpoint."""
    wanted, real = product(promise, context)
    for one in context.real_fc:
        if one.width != context.slots * (context.real_width or 0):
            yield Mismatch(
                diagnosis="missing_slot" if one.width < context.slots * (context.real_width or 0) else "wrong_width",
                sentence=f"fc reads {one.width} values a token by {one.where}, and {promise.data} is "
                f"{context.slots * (context.real_width or 0)} on the real model",
            )
            return
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    built = observation.data["fc_in"]
    if built != wanted:
        yield Mismatch(
            diagnosis="wrong_width",
            sentence=f"the engine built fc for {built} values a token where {promise.data} is {wanted} on the "
            f"twin{real}",
        )


def check_pairing(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if step 1 does not pair the state of position p with the token at p + 1, at position p."""
    if promise.data != "next_token":
        raise fail(promise.position, f"pairing takes next_token, not {found(promise.data)}")
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    for number, pair in enumerate(observation.data["pairs"]):
        problem = _mispaired(pair)
        if problem is not None:
            yield Mismatch(diagnosis="mispaired", sentence=f"request {number}: {problem}")
            return


def _mispaired(pair: Mapping[str, Any]) -> str | None:
    tokens, wanted, positions = pair["tokens"], pair["wanted"], pair["positions"]
    if tokens != wanted:
        p = next(
            (p for p, (x, y) in enumerate(zip(tokens, wanted, strict=False)) if x != y), min(len(tokens), len(wanted))
        )
        seen = tokens[p] if p < len(tokens) else "nothing"
        return (
            f"the state of position {p} is paired with token {seen}, and the token at {p + 1} is "
            f"{wanted[p] if p < len(wanted) else 'none'}"
        )
    if positions != list(range(len(wanted))):
        return f"the pairs stand at positions {positions}, not 0 to {len(wanted) - 1}"
    if pair["error"] > 0:
        return f"the states are not the rows that were handed over, in their order (off by up to {pair['error']:.1e})"
    return None


def check_config(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a reader of the draft's config took another value than the one written in it."""
    if promise.data != "as_written":
        raise fail(promise.position, f"config takes as_written, not {found(promise.data)}")
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    written, readers = observation.data["written"], observation.data["readers"]
    ignored = [line for key, value in written.items() for line in _ignored(key, value, readers, written)]
    if ignored:
        error = observation.data["own_error"]
        moved = error is not None and error > OWN_STATES
        more = f"; the target hands over other states than recorded (error {error:.1e})" if moved else ""
        yield Mismatch(diagnosis="config_ignored", sentence=ignored[0] + more, details=tuple(ignored[1:]))


_READERS = {"fc": "the draft class sized fc", "buffer": "the draft's graph buffer is sized"}


def _ignored(key: str, value: Any, readers: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each reader that does not go by a key; without aux states the ids have no reader."""
    if key == "use_aux_hidden_state" or not written["use_aux_hidden_state"]:
        return
    listed = isinstance(value, list)
    if listed and readers["ids"] != value:
        read = "no ids and falls back to its default" if readers["ids"] is None else f"{readers['ids']}"
        yield f"{key} is {value} in the draft's config, and the target side reads {read}"
    count = len(value) if listed else value
    for name, words in _READERS.items():
        if readers[name] != count:
            yield f"{key} says {count} states, and {words} for {readers[name]:g}"


def check_reference(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if the draft's logits or states are further from a plain torch step's than promised."""
    _check_keys(promise, ("within",), ())
    within = _map(promise)["within"]
    if isinstance(within, bool) or not isinstance(within, (int, float)) or within <= 0:
        raise fail(promise.at("within"), f"within is a relative error such as 1.0e-4, not {found(within)}")
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    errors = observation.data["reference"]
    if errors is None:
        yield _skipped(observation, context)
        return
    for number, step in enumerate(errors, start=1):
        what = max(step, key=lambda name: step[name])
        if not step[what] <= within:
            yield Mismatch(
                diagnosis="altered",
                sentence=f"step {number}'s {_WHAT[what]} differ from a plain torch step's by {step[what]:.1e} "
                f"(relative; allowed: {within:.0e})",
                details=tuple(
                    f"step {n}: logits {s['logits']:.1e}, state {s['hidden']:.1e}" for n, s in enumerate(errors, 1)
                ),
            )
            return


_WHAT = {"logits": "logits", "hidden": "handed-on states"}


def _stopped(observation: Observation, context: Context) -> Mismatch | None:
    """Return why the engine stopped: a width that does not fit, if it was given one, or its refusal as it is."""
    if observation.refusal is None:
        return None
    refusal = observation.refusal
    fed = observation.data.get("fed_width")
    wanted = context.slots * context.width
    if fed is None or fed == wanted or "first step" not in refusal.stage:
        return refused(refusal)
    fewer = fed < wanted and fed % context.width == 0
    return Mismatch(
        diagnosis="missing_slot" if fewer else "wrong_width",
        sentence=f"the draft is given {fed} values a token where slots x target is {wanted} on the twin"
        f"{_real(context, context.slots)}, and the engine raised {refusal.type}: {refusal.message}",
        details=(f"{refusal.where}: {refusal.line}",),
    )


def _skipped(observation: Observation, context: Context) -> Mismatch:
    width = observation.data["steps"][0]["read"][1]
    wanted = context.slots * context.width
    return Mismatch(
        diagnosis="fc_skipped",
        sentence=f"step 1 reads {width} values a token, as wide as the draft itself, so the engine skips fc without a "
        f"word; slots x target is {wanted} on the twin{_real(context, context.slots)}. From step 2 on that width is "
        f"right, at step 1 it is not",
    )


def _real(context: Context, slots: int = 1) -> str:
    return f" ({slots * context.real_width} on the real model)" if context.real_width else ""


def _map(promise: Value) -> Mapping[str, Any]:
    assert isinstance(promise.data, Mapping)
    return promise.data


def _text(promise: Value) -> str:
    return str(_map(promise)["reads"])


def _reads(promise: Value, observation: Observation, context: Context) -> tuple[int, str]:
    if _text(promise) == "draft":
        return int(observation.data["draft_width"]), _real(context)
    return product(promise.child("reads"), context)


def _fc(promise: Value) -> str:
    word = str(_map(promise)["fc"])
    if word not in FC:
        raise fail(promise.at("fc"), f"fc takes once or never, not '{word}'")
    return word


def _calls(promise: Value) -> int:
    return 1 if _fc(promise) == "once" else 0


def _times(calls: int) -> str:
    return {0: "never", 1: "once"}.get(calls, f"{calls} times")


def _check_keys(promise: Value, needed: tuple[str, ...], optional: tuple[str, ...]) -> None:
    known = [*needed, *optional]
    if not isinstance(promise.data, Mapping):
        raise fail(promise.position, f"expected a map of {', '.join(known)}")
    for key in promise.data:
        if key not in known:
            raise fail(promise.at(key), f"nothing here is called '{key}'", suggest(str(key), known, "keys"))
    for key in needed:
        if key not in promise.data:
            raise fail(promise.position, f"{key} is missing")
