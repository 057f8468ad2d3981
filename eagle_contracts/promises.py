"""What an expectation promises as far as that can be read without an observation. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from eagle_contracts.checks.draft import FC
from eagle_contracts.checks.stability import VARIANTS
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
from eagle_contracts.spec.flow import clip, found, show
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import CONVENTIONS, Tap, as_hidden_states, parse_tap, parse_taps

ROWS = "one_per_token"
FACTORS = ("slots", "target")


def taps_promised(kind: str, value: Value, layers: int) -> tuple[tuple[str, tuple[Tap, ...]], ...]:
    """Return the taps of a resolved promise, each list with the name of its group (`` for the only one).

    Empty for a promise about something else than taps; raises `SpecError` for taps that name no state or two.
    """
    if kind in ("same", "first_step") and isinstance(value.data, Mapping) and "slots" in value.data:
        return (("", parse_taps(value.child("slots"), layers)),)
    if kind != "slots":
        return ()
    if not isinstance(value.data, Mapping) or any(key in CONVENTIONS for key in value.data):
        return (("", parse_taps(value, layers)),)
    return tuple((str(group), _group(value.child(group), layers)) for group in value.data)


def both_readings(taps: Sequence[Tap], layers: int) -> str:
    """Return the same states in both conventions, such as `hidden_states: [3] = layer_outputs: [2]`."""
    outputs = [str(tap.k - 1) if tap.k else tap.name for tap in taps]
    return f"{as_hidden_states(taps, layers)} = layer_outputs: [{', '.join(outputs)}]"


def promise_issues(kind: str, value: Value, layers: int, *, concatenates: bool = True) -> Iterator[SpecIssue]:
    """Yield what a check would refuse in a resolved promise, whatever was observed.

    `concatenates` tells whether the same contract has a `concat`, which a width alone is about.
    """
    yield from _FORMS.get(kind, _nothing)(value)
    if kind == "width" and not isinstance(value.data, Mapping) and not concatenates:
        hint = f"write width: {{OUTPUT: {show(value.data)}}}"
        message = "a width alone is of what concat promises, and nothing here does"
        yield SpecIssue(position=value.position, message=message, hint=hint)
    try:
        taps_promised(kind, value, layers)
    except SpecError as error:
        yield from error.issues


def _nothing(value: Value) -> Iterator[SpecIssue]:
    yield from ()


def _word(kind: str, word: str) -> Callable[[Value], Iterator[SpecIssue]]:
    """Return the form of a promise that takes one word only."""

    def form(value: Value) -> Iterator[SpecIssue]:
        if value.data != word:
            message = f"{kind} takes {word}, not {found(value.data)}"
            yield SpecIssue(position=value.position, message=message, hint=f"write {kind}: {word}")

    return form


def _slots(value: Value) -> Iterator[SpecIssue]:
    if value.data == {}:
        message = "slots promises nothing: name taps, such as $trained.taps"
        yield SpecIssue(position=value.position, message=message)


def _same(value: Value) -> Iterator[SpecIssue]:
    if not (isinstance(value.data, Mapping) and set(value.data) == {"slots"}):
        message = f"same takes {{slots: TAPS}}, not {show(value.data)}"
        yield SpecIssue(position=value.position, message=clip(message, 90), hint="write same: {slots: $trained.taps}")


def _names(value: Value) -> Iterator[SpecIssue]:
    """Yield what is no map from an output to upstream names."""
    if not isinstance(value.data, Mapping) or not value.data:
        message = f"expected a map from an output's name to upstream names, not {found(value.data)}"
        yield SpecIssue(position=value.position, message=message, hint="write {OUTPUT: [NAME, ...]}")
        return
    for key, names in value.data.items():
        listed = names if isinstance(names, list) else [names]
        if not listed or not all(isinstance(name, str) for name in listed):
            message = f"expected names such as aux_0, not {show(names)}"
            yield SpecIssue(position=value.at(key), message=clip(message, 90))


def _width(value: Value) -> Iterator[SpecIssue]:
    """Yield products that are none: a width is one of them, or a map from outputs to them."""
    parts = [value.child(key) for key in value.data] if isinstance(value.data, Mapping) else [value]
    if not parts:
        yield SpecIssue(position=value.position, message="width promises nothing", hint="write width: slots x target")
    for part in parts:
        yield from _product(part)


def _product(value: Value, *more: str) -> Iterator[SpecIssue]:
    words = "" if isinstance(value.data, (list, bool)) else str(value.data)
    if words not in more and not all(word in FACTORS or word.isdecimal() for word in words.split(" x ")):
        message = f"a width is a product such as slots x target, not {found(value.data)}"
        hint = suggest(words, (" x ".join(FACTORS), *FACTORS, *more), "products")
        yield SpecIssue(position=value.position, message=message, hint=hint)


def _variants(value: Value) -> Iterator[SpecIssue]:
    names = value.data if isinstance(value.data, list) else [value.data]
    if not names:
        hint = f"variants: {', '.join(VARIANTS)}"
        yield SpecIssue(position=value.position, message="unchanged_by promises nothing", hint=hint)
    for index, name in enumerate(names):
        if name not in VARIANTS:
            near = suggest(str(name), VARIANTS, "variants")
            message = f"there is no variant {show(name)}"
            yield SpecIssue(position=value.at(index), message=clip(message, 90), hint=near)


def _keys(value: Value, needed: Sequence[str], optional: Sequence[str] = ()) -> Iterator[SpecIssue]:
    known = [*needed, *optional]
    data = value.data if isinstance(value.data, Mapping) else None
    if data is None:
        message = f"expected a map of {', '.join(known)}, not {found(value.data)}"
        yield SpecIssue(position=value.position, message=message)
        return
    for key in data:
        if key not in known:
            hint = suggest(str(key), known, "keys")
            yield SpecIssue(position=value.at(key), message=f"unknown key '{clip(str(key))}'", hint=hint)
    for key in needed:
        if key not in data:
            yield SpecIssue(position=value.position, message=f"'{key}' is missing")


def _step(value: Value) -> Iterator[SpecIssue]:
    yield from _keys(value, ("reads", "fc"), ("slots",))
    data = value.data if isinstance(value.data, Mapping) else {}
    if "reads" in data:
        yield from _product(value.child("reads"), "draft")
    if "fc" in data and data["fc"] not in FC:
        message = f"fc takes {' or '.join(FC)}, not {found(data['fc'])}"
        yield SpecIssue(position=value.at("fc"), message=message, hint=suggest(str(data["fc"]), FC, "words"))


def _later(value: Value) -> Iterator[SpecIssue]:
    yield from _step(value)
    if isinstance(value.data, Mapping) and "slots" in value.data:
        yield SpecIssue(position=value.at("slots"), message="later_steps says nothing of slots: they are of first_step")


def _reference(value: Value) -> Iterator[SpecIssue]:
    yield from _keys(value, ("within",))
    within = value.data.get("within", 1.0) if isinstance(value.data, Mapping) else 1.0
    if isinstance(within, bool) or not isinstance(within, (int, float)) or not within > 0:
        message = f"within is a relative error such as 1.0e-4, not {found(within)}"
        yield SpecIssue(position=value.at("within"), message=message)


_FORMS: Mapping[str, Callable[[Value], Iterator[SpecIssue]]] = {
    "slots": _slots,
    "rows": _word("rows", ROWS),
    "order": _names,
    "concat": _names,
    "equals": _names,
    "width": _width,
    "unchanged_by": _variants,
    "same": _same,
    "first_step": _step,
    "later_steps": _later,
    "fc_in": _product,
    "pairing": _word("pairing", "next_token"),
    "config": _word("config", "as_written"),
    "reference": _reference,
}


def _group(value: Value, layers: int) -> tuple[Tap, ...]:
    many = isinstance(value.data, Mapping) and any(isinstance(part, list) for part in value.data.values())
    return parse_taps(value, layers) if many else (parse_tap(value, layers),)
