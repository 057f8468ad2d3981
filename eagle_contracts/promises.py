"""What an expectation promises as far as that can be read without an observation. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eagle_contracts.checks.draft_promises import read_promise
from eagle_contracts.checks.stability import VARIANTS
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
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


def promise_issues(kind: str, value: Value, layers: int) -> Iterator[SpecIssue]:
    """Yield what a check would refuse in a resolved promise, whatever was observed."""
    data = value.data
    if kind == "rows" and data != ROWS:
        yield SpecIssue(position=value.position, message=f"rows takes {ROWS}, not {data!r}")
    elif kind == "same" and not (isinstance(data, Mapping) and set(data) == {"slots"}):
        yield SpecIssue(position=value.position, message="same takes {slots: TAPS}")
    elif kind == "unchanged_by":
        yield from _variants(value)
    elif kind == "width" and not all(word in FACTORS or word.isdigit() for word in str(data).split(" x ")):
        message = f"a width is a product such as slots x target, not {data!r}"
        yield SpecIssue(position=value.position, message=message)
    elif kind in ("order", "concat", "equals") and not (isinstance(data, Mapping) and data):
        message = "expected a map from an output's name to upstream names"
        yield SpecIssue(position=value.position, message=message)
    try:
        read_promise(kind, value)
        taps_promised(kind, value, layers)
    except SpecError as error:
        yield from error.issues


def _group(value: Value, layers: int) -> tuple[Tap, ...]:
    return parse_taps(value, layers) if _is_list(value) else (parse_tap(value, layers),)


def _is_list(value: Value) -> bool:
    return isinstance(value.data, Mapping) and any(isinstance(part, list) for part in value.data.values())


def _variants(value: Value) -> Iterator[SpecIssue]:
    names = value.data if isinstance(value.data, list) else [value.data]
    for index, name in enumerate(names):
        if name not in VARIANTS:
            hint = suggest(str(name), VARIANTS, "variants")
            yield SpecIssue(position=value.at(index), message=f"nothing is called {name!r}", hint=hint)
