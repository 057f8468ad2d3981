"""Naming the stream states that a pipeline reads, and converting between conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Value
from eagle_contracts.spec.position import Position

NAMES: Final = ("embed", "final", "final_normed")
CONVENTIONS: Final = ("hidden_states", "layer_outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """A stream state h[k], or the normed final where k is None.

    `name` is `h[3]`, `embed` (k = 0), `final` (k = number of layers, before the norm) or `final_normed`.
    """

    k: int | None
    name: str
    position: Position | None = field(default=None, compare=False, repr=False)

    def label(self) -> str:
        """Return `h[3]`, `embedding h[0]`, `h[61] (final)` or `final_normed`."""
        if self.name == "embed":
            return "embedding h[0]"
        return f"h[{self.k}] (final)" if self.name == "final" else self.name

    def index(self, layers: int) -> int:
        """Return the place among the candidates h[0], ..., h[layers], final_normed."""
        return layers + 1 if self.k is None else self.k


def make_tap(k: int | None, layers: int, position: Position | None = None) -> Tap:
    """Return the tap of stream state k (None: the normed final), named as the vocabulary names it."""
    named = {None: "final_normed", 0: "embed", layers: "final"}
    return Tap(k=k, name=named.get(k, f"h[{k}]"), position=position)


def parse_taps(value: Value, layers: int) -> tuple[Tap, ...]:
    """Read `{hidden_states: [3, 31, 59]}` or `{layer_outputs: [2, 30, 58]}` for a target of `layers` layers.

    Raises SpecError for a bare list, an unknown convention, and every entry that names no state or two.
    """
    convention, body = _convention(value, layers, "a list of taps")
    if not isinstance(body.data, list) or not body.data:
        raise fail(body.position, f"{convention} takes a list of states, not {show(body.data)}")
    taps: list[Tap] = []
    issues: list[SpecIssue] = []
    for index in range(len(body.data)):
        try:
            taps.append(_entry(convention, body.child(index), layers))
        except SpecError as error:
            issues += error.issues
    if issues:
        raise SpecError(issues)
    return tuple(taps)


def parse_tap(value: Value, layers: int) -> Tap:
    """Read one tap: `embed`, `final`, `final_normed`, `{hidden_states: 3}` or `{layer_outputs: 2}`.

    Raises SpecError for a bare number and for everything that names no state or two.
    """
    if isinstance(value.data, str):
        return _named(value, layers)
    convention, body = _convention(value, layers, "a tap")
    if isinstance(body.data, list):
        raise fail(body.position, f"one state is wanted here, not the list {show(body.data)}")
    return _entry(convention, body, layers)


def as_hidden_states(taps: Sequence[Tap], layers: int) -> str:
    """Return `hidden_states: [1, 30, 58]`, which parse_taps reads back as the same taps."""
    plain = [str(tap.k) if tap.k is not None and tap.k < layers else tap.name for tap in taps]
    return f"hidden_states: [{', '.join(plain)}]"


def describe(k: int, n: int) -> str:
    """Return stream state k of n layers in words, such as `h[3] (output of layer 2)`."""
    if k == 0:
        return "h[0] (the embedding)"
    return f"h[{k}] (output of layer {k - 1}{', before the final norm' if k == n else ''})"


def _convention(value: Value, layers: int, what: str) -> tuple[str, Value]:
    data = value.data
    if isinstance(data, list) or _is_number(data):
        raise fail(
            value.position,
            f"{what} must say how it counts",
            _both_readings(data if what == "a tap" else _as_list(data), layers),
        )
    if not isinstance(data, dict) or len(data) != 1:
        message = f"{what} is written {{hidden_states: ...}} or {{layer_outputs: ...}}, not {show(data)}"
        raise fail(value.position, message)
    key = next(iter(data))
    if key not in CONVENTIONS:
        raise fail(value.position, f"unknown convention '{key}'", suggest(key, CONVENTIONS, "conventions"))
    return key, value.child(key)


def _both_readings(data: object, layers: int) -> str:
    entries = data if isinstance(data, list) else [data]
    states = ", ".join(_reading(entry, 0, layers) for entry in entries)
    outputs = ", ".join(_reading(entry, 1, layers) for entry in entries)
    listed = show(data)
    return f"write {{hidden_states: {listed}}} for {states}, or {{layer_outputs: {listed}}} for {outputs}"


def _as_list(data: object) -> object:
    return data if isinstance(data, list) else [data]


def _reading(entry: object, offset: int, layers: int) -> str:
    if not isinstance(entry, int) or isinstance(entry, bool):
        return show(entry)
    k = entry + offset
    return f"h[{k}]" if 0 <= k <= layers else "no state"


def _entry(convention: str, value: Value, layers: int) -> Tap:
    data = value.data
    if isinstance(data, str):
        return _named(value, layers)
    if not isinstance(data, int) or isinstance(data, bool):
        raise fail(value.position, f"{show(data)} is not a state", f"write a number or one of: {', '.join(NAMES)}")
    if data < 0:
        raise fail(value.position, f"{data} names no state: counting from the end is not done", _negative_hint())
    if convention == "hidden_states" and data == layers:
        message = f"hidden_states: [{layers}] means two states of a target with {layers} layers"
        hint = f"write final (h[{layers}], before the final norm) or final_normed (what HF puts at {layers})"
        raise fail(value.position, message, hint)
    if data >= layers:
        raise fail(value.position, f"{convention} of a target with {layers} layers are 0 to {layers - 1}, not {data}")
    return make_tap(data + (convention == "layer_outputs"), layers, value.position)


def _named(value: Value, layers: int) -> Tap:
    name = value.data
    known: dict[object, int | None] = {"embed": 0, "final": layers, "final_normed": None}
    if name not in known:
        raise fail(value.position, f"'{name}' names no state", suggest(str(name), NAMES, "names"))
    return make_tap(known[name], layers, value.position)


def _negative_hint() -> str:
    return "for the embedding, write embed; for the last layer's output, write final"


def _is_number(data: object) -> bool:
    return isinstance(data, (int, float)) and not isinstance(data, bool)
