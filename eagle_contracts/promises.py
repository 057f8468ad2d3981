"""What an expectation promises as far as that can be read without an observation. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from eagle_contracts.checks.draft_promises import FACTORS, read_promise
from eagle_contracts.checks.stability import VARIANTS
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
from eagle_contracts.spec.flow import clip, found, show
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import CONVENTIONS, Tap, as_hidden_states, parse_tap, parse_taps

ROWS = "one_per_token"


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


def states_promised(kind: str, value: Value, layers: int) -> list[int | str] | dict[str, int | str] | None:
    """Return the states of a resolved promise as plain data: a list for slots, a map for a dump's files.

    None for a promise that is about no states; raises `SpecError` for taps that name no state or two.
    """
    if kind == "first_step":
        value, kind = (value.child("slots"), "slots") if _has(value, "slots") else (value, "")
    groups = taps_promised(kind, value, layers)
    if not groups:
        return None
    if groups[0][0] == "":
        return [_plain(tap) for tap in groups[0][1]]
    files: dict[str, int | str] = {}
    for group, taps in groups:
        names = [f"{group}_{n}" for n in range(len(taps))] if _is_list(value.child(group)) else [group]
        files |= {name: _plain(tap) for name, tap in zip(names, taps, strict=True)}
    return files


def _has(value: Value, key: str) -> bool:
    return isinstance(value.data, Mapping) and key in value.data


def _plain(tap: Tap) -> int | str:
    return "final_normed" if tap.k is None else tap.k


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
        read_promise(kind, value)
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


def _product(value: Value) -> Iterator[SpecIssue]:
    words = "" if isinstance(value.data, (list, bool)) else str(value.data)
    if not all(word in FACTORS or word.isdecimal() for word in words.split(" x ")):
        message = f"a width is a product such as slots x target, not {found(value.data)}"
        hint = suggest(words, (" x ".join(FACTORS), *FACTORS), "products")
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


_FORMS: Mapping[str, Callable[[Value], Iterator[SpecIssue]]] = {
    "slots": _slots,
    "rows": _word("rows", ROWS),
    "order": _names,
    "concat": _names,
    "equals": _names,
    "width": _width,
    "unchanged_by": _variants,
    "same": _same,
}


def _group(value: Value, layers: int) -> tuple[Tap, ...]:
    return parse_taps(value, layers) if _is_list(value) else (parse_tap(value, layers),)


def _is_list(value: Value) -> bool:
    return isinstance(value.data, Mapping) and any(isinstance(part, list) for part in value.data.values())
