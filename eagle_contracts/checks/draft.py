"""What a draft reads at its first step and later, against what is promised; no I/O, no engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eagle_contracts.checks.context import Context
from eagle_contracts.checks.draft_promises import read_promise
from eagle_contracts.checks.outputs import product
from eagle_contracts.checks.slots import check_slots, refused
from eagle_contracts.observation import Observation, observation_from_json
from eagle_contracts.real_draft import RealWidth
from eagle_contracts.spec.draft_config import IDS, unread
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

FC_WIDE = "is how wide the checkpoint's fc is"
NOT_A_NUMBER = 1e30
"""What an error is given as where a value was no number: JSON has none for it."""
OWN_STATES = 1e-4
"""How far the target's own states may be from the recorded ones before they are called others."""


def check_first_step(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if step 1 reads another width or other states than promised, or calls `fc` otherwise.

    The promise is `{reads: slots x target, fc: once, slots: TAPS}`, of which `slots` may be left out.
    """
    read_promise("first_step", promise)
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    if (wrong := _first_width(promise, observation, context)) is not None:
        yield wrong
        return
    handed = [*_not_handed_over(observation), *_not_recorded(promise, observation, context)]
    named = "slots" in _map(promise) and not _is_few(observation.data["strange"])
    slots = list(check_slots(promise.child("slots"), observation, context)) if named else []
    yield from slots or handed[:1]


def _first_width(promise: Value, observation: Observation, context: Context) -> Mismatch | None:
    """Return what is wrong with how wide step 1 reads, or with how often it calls `fc`."""
    wanted, real = _reads(promise, observation, context)
    first = observation.data["steps"][0]
    width, calls = first["read"][1], len(first["fc"])
    if not calls and _calls(promise):
        return _skipped(observation, context)
    if width != wanted:
        fewer = width < wanted and width % context.width == 0
        return Mismatch(
            diagnosis="missing_slot" if fewer else "wrong_width",
            sentence=f"step 1 reads {width} values a token where {_text(promise)} is {wanted} on the twin{real}",
        )
    if calls != _calls(promise):
        return Mismatch(
            diagnosis="fc_repeated",
            sentence=f"step 1 calls fc {_times(calls)}, and fc: {_map(promise)['fc']!s} is promised",
        )
    return None


def _is_few(strange: Mapping[str, Any] | None) -> bool:
    """Tell whether only some rows are wrong: then they are named, and not what the slots hold on the whole."""
    return strange is not None and 2 * int(strange["rows"]) <= int(strange["of"])


def _not_handed_over(observation: Observation) -> Iterator[Mismatch]:
    """Yield that a row of what `fc` reads is not the row that the draft was handed, after the draft's own norms."""
    strange = observation.data["strange"]
    if strange is None:
        return
    diagnosis, held = _strange(strange)
    far = "" if strange["error"] is None else f" (relative error {strange['error']:.1e})"
    where = f"position {strange['position']} of request {strange['request']}"
    yield Mismatch(
        diagnosis=diagnosis,
        sentence=f"in {strange['rows']} of {strange['of']} rows fc does not read the states that the draft was handed, "
        f"nor these after the draft's own norms; the first is {where}, which holds {held}{far}",
        details=(f"requests with such rows: {', '.join(map(str, strange['requests']))}",),
    )


def _strange(strange: Mapping[str, Any]) -> tuple[str, str]:
    """Return the diagnosis of a row that is another one than was handed over, and what it holds."""
    holds = strange["holds"]
    if strange["error"] is None:
        return "unknown_state", "values that are not numbers"
    if holds is None:
        return "other_state", "none of the rows that were handed over"
    if "order" in holds:
        return "permuted", f"its slots in the order {show(holds['order'])}"
    if "nothing" in holds:
        return "other_state", "zeros"
    row = f"the states of position {holds['position']} of request {holds['request']}"
    return ("other_state" if holds["request"] == strange["request"] else "wrong_request"), row


def _not_recorded(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield that this config makes the target capture other states than the contract read by `from` recorded."""
    if not _is_moved(observation, context):
        return
    if keys := _unread(observation, context):
        yield Mismatch(diagnosis="config_ignored", sentence=keys[0] + _moved(observation, context))
        return
    own = observation_from_json({**observation.data, **observation.data["own"]})
    found = list(check_slots(promise.child("slots"), own, context)) if "slots" in _map(promise) else []
    told = "by the draft's config the target hands over other states than the contract read by from recorded"
    for one in found[:1]:
        yield replace(one, sentence=f"{told}: {one.sentence}")
    if not found:
        yield Mismatch(diagnosis="other_state", sentence=f"{told} (error {observation.data['own_error']:.1e})")


def _is_moved(observation: Observation, context: Context) -> bool:
    error = observation.data["own_error"]
    return error is not None and not error <= max(OWN_STATES, context.noise)


def _moved(observation: Observation, context: Context) -> str:
    if not _is_moved(observation, context):
        return ""
    return f"; the target hands over other states than recorded (error {observation.data['own_error']:.1e})"


def check_later_steps(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a step after the first reads anything but what the step before handed on, or calls `fc`.

    The promise is `{reads: draft, fc: never}`.
    """
    read_promise("later_steps", promise)
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    wanted, _ = _reads(promise, observation, context)
    own, real = observation.data["draft_width"], _real_draft(context)
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
            again = width == wanted and calls > _calls(promise)
            yield Mismatch(
                diagnosis="fc_repeated" if again else "wrong_width",
                sentence=f"step {number} reads {width} values a token and calls fc {_times(calls)}, where "
                f"{_text(promise)} is {wanted} and fc: {_map(promise)['fc']!s} is promised",
            )
            return
    yield from _not_fed_back(observation)


def _not_fed_back(observation: Observation) -> Iterator[Mismatch]:
    for number, error in enumerate(observation.data["fed_back"], start=2):
        if error is None or error > 0:
            far = "another shape" if error is None else _far(error)
            yield Mismatch(
                diagnosis="other_state",
                sentence=f"step {number} does not read the state that step {number - 1} handed on ({far})",
            )
            return


def _far(error: float) -> str:
    return "values that are not numbers" if error >= NOT_A_NUMBER else f"off by up to {error:.1e}"


def check_fc_in(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if `fc`'s input is not as wide as promised: as built, by the real config, in a checkpoint."""
    wanted, real = product(promise, context)
    unlike = unlike_real(promise, context.slots, context.real_width, context.real_fc)
    if unlike is not None:
        yield Mismatch(diagnosis=unlike[0], sentence=unlike[1])
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


def unlike_real(
    promise: Value, slots: int, real_width: int | None, real_fc: Sequence[RealWidth]
) -> tuple[str, str] | None:
    """Return what the first of the real draft's files says that does not give `fc` the width promised; no engine."""
    read_promise("fc_in", promise)
    known = {"slots": slots, "target": real_width or 0}
    wanted = math.prod(known[word] if word in known else int(word) for word in str(promise.data).split(" x "))
    for real in real_fc:
        if real.width is None:
            return "missing_slot", f"{real.where}: an engine runs with whatever its fc holds then, some without a word"
        if real.width != wanted:
            fewer = real.width < wanted and real.width % (real_width or real.width) == 0
            told = f"fc reads {real.width} values a token by {real.where}, and {promise.data} is {wanted}"
            return "missing_slot" if fewer else "wrong_width", f"{told} on the real model"
    return None


def check_pairing(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if step 1 does not pair the state of position p with the token at p + 1, at position p."""
    read_promise("pairing", promise)
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    for number, pair in enumerate(observation.data["pairs"]):
        problem = _mispaired(pair)
        if problem is not None:
            yield Mismatch(diagnosis="mispaired", sentence=f"request {number}: {problem}")
            return
    yield from itertools.islice(_later_pairs(observation), 1)


def _later_pairs(observation: Observation) -> Iterator[Mismatch]:
    """Yield what a later step pairs otherwise: it reads the token that the step before chose, one position on."""
    for number, requests in enumerate(observation.data["later"], start=2):
        for request, pair in enumerate(requests):
            problem = ""
            if pair["token"] != pair["wanted"]:
                problem = f"reads token {pair['token']}, and step {number - 1} chose token {pair['wanted']}"
            elif pair["position"] != pair["wanted_position"]:
                problem = f"stands at position {pair['position']}, not at {pair['wanted_position']}"
            if problem:
                yield Mismatch(diagnosis="mispaired", sentence=f"request {request}: step {number} {problem}")


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
    if pair["error"] is None:
        return "the states are of another shape than those that were handed over"
    if pair["error"] > 0:
        return f"the states are not the rows that were handed over, in their order ({_far(pair['error'])})"
    return None


def check_config(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a reader of the draft's config took another value than the one written in it."""
    read_promise("config", promise)
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    if ignored := _unread(observation, context):
        more = _moved(observation, context)
        yield Mismatch(diagnosis="config_ignored", sentence=ignored[0] + more, details=tuple(ignored[1:]))


def _unread(observation: Observation, context: Context) -> list[str]:
    """Return a sentence for each key that no reader goes by: as measured, then as it stands in the file."""
    written, readers = observation.data["written"], observation.data["readers"]
    measured = [line for key, value in written.items() for line in _ignored(key, value, readers, written)]
    measured += _switched(observation.data)
    named = observation.data.get("by_default") or any(key.endswith(IDS) for key in written)
    if readers["ids"] is None and written["use_aux_hidden_state"] and not named:
        measured.append(f"no {IDS} stands in the draft's config, and the target side falls back to its default")
    keys = [*context.unread, *unread(observation.data.get("config") or {})]
    told = {one.path: one.sentence for one in keys if not any(one.path[-1] in line for line in measured)}
    return [*measured, *(f"in the draft's config {sentence}" for sentence in told.values())]


_READERS = {"fc": "the draft class sized fc", "buffer": "the draft's graph buffer is sized"}


def _ignored(key: str, value: Any, readers: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each reader that does not go by a key; without aux states the ids have no reader."""
    if key == "use_aux_hidden_state" or not written["use_aux_hidden_state"]:
        return
    listed = isinstance(value, list)
    if listed and readers["ids"] != value:
        read = "no ids and falls back to its default" if readers["ids"] is None else show(readers["ids"])
        yield f"{key} is {show(value)} in the draft's config, and the target side reads {read}"
    count = len(value) if listed else value
    for name, words in _READERS.items():
        if readers[name] != count:
            yield f"{key} says {count} states, and {words} for {readers[name]:g}"


def _switched(seen: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each switch that is written in the config, and with which the draft does not run."""
    behaves = seen["behaves"] or {}
    return [
        f"{name} is {show(value)} in the draft's config, and the draft's numbers are those of {name}: "
        f"{show(behaves[name])}: this engine does not go by the key"
        for name, value in seen["switches"].items()
        if behaves.get(name, value) != value
    ]


def check_reference(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if the draft's logits or states are further from a plain torch step's than promised."""
    read_promise("reference", promise)
    within = float(_map(promise)["within"])
    if (stopped := _stopped(observation, context)) is not None:
        yield stopped
        return
    within, errors = max(within, context.noise), observation.data["reference"]
    if errors is None:
        yield _incomparable(observation, context)
        return
    for number, step in enumerate(errors, start=1):
        what = max(step, key=lambda name: step[name])
        if not step[what] <= within:
            yield Mismatch(
                diagnosis="altered",
                sentence=f"step {number}'s {_WHAT[what]} differ from a plain torch step's by {step[what]:.1e} "
                f"(relative; allowed: {within:.0e}){_explained(observation.data)}",
                details=tuple(
                    f"step {n}: logits {s['logits']:.1e}, state {s['hidden']:.1e}" for n, s in enumerate(errors, 1)
                ),
            )
            return


def _unfitting(message: str, context: Context) -> Iterator[str]:
    """Yield what a refusal to load means, where one of its sizes is that of a `fc` as trained."""
    width = context.slots * context.width
    if f", {width}]" in message:
        real = _real(context, context.slots)
        yield (
            f"{width} {FC_WIDE}: slots x target on the twin{real}. By its config the engine "
            f"builds fc for another number or width of states"
        )


def _incomparable(observation: Observation, context: Context) -> Mismatch:
    """Return why there is no plain step to compare with: `fc` did not run, or not on what its weight reads."""
    first = observation.data["steps"][0]
    if not first["fc"]:
        return _skipped(observation, context)
    return Mismatch(diagnosis="wrong_width", sentence=f"fc reads {first['fc'][0][1]} values a token, not its weight's")


def _explained(seen: Mapping[str, Any]) -> str:
    """Say with which switches a plain step would give the engine's numbers."""
    if not seen["behaves"]:
        return ""
    return f"; they are those of a step with {', '.join(f'{k}: {show(v)}' for k, v in seen['behaves'].items())}"


_WHAT = {"logits": "logits", "hidden": "handed-on states"}


def _stopped(observation: Observation, context: Context) -> Mismatch | None:
    """Return why the engine stopped: a width that does not fit, if it was given one, or its refusal as it is."""
    if observation.refusal is None:
        return None
    refusal = observation.refusal
    fed = observation.data.get("fed_width")
    wanted = context.slots * context.width
    if fed is None or fed == wanted or "first step" not in refusal.stage:
        return replace(refused(refusal), details=(*refused(refusal).details, *_unfitting(refusal.message, context)))
    fewer = fed < wanted and fed % context.width == 0
    return Mismatch(
        diagnosis="missing_slot" if fewer else "wrong_width",
        sentence=f"the draft is given {fed} values a token where slots x target is {wanted} on the twin"
        f"{_real(context, context.slots)}, and the engine raised {refusal.type}: {refusal.message}",
        details=(f"{refusal.where}: {refusal.line}",),
    )


def _skipped(observation: Observation, context: Context) -> Mismatch:
    width, own = observation.data["steps"][0]["read"][1], observation.data["draft_width"]
    wanted = context.slots * context.width
    alike = ", as wide as the draft itself," if width == own else ""
    later = ". From step 2 on that width is right, at step 1 it is not" if width != wanted else ""
    return Mismatch(
        diagnosis="fc_skipped",
        sentence=f"step 1 reads {width} values a token{alike} {'so' if alike else 'and'} the engine skips fc without a "
        f"word; slots x target is {wanted} on the twin{_real(context, context.slots)}{later}",
    )


def _real(context: Context, slots: int = 1) -> str:
    return f" ({slots * context.real_width} on the real model)" if context.real_width else ""


def _real_draft(context: Context) -> str:
    return f" ({context.real_draft} on the real model)" if context.real_draft else ""


def _map(promise: Value) -> Mapping[str, Any]:
    assert isinstance(promise.data, Mapping)
    return promise.data


def _text(promise: Value) -> str:
    return str(_map(promise)["reads"])


def _reads(promise: Value, observation: Observation, context: Context) -> tuple[int, str]:
    if _text(promise) == "draft":
        return int(observation.data["draft_width"]), _real_draft(context)
    return product(promise.child("reads"), context)


def _word(promise: Value) -> str:
    return str(_map(promise)["fc"])


def _calls(promise: Value) -> int:
    return 1 if _word(promise) == "once" else 0


def _times(calls: int) -> str:
    return {0: "never", 1: "once"}.get(calls, f"{calls} times")
