"""What a promise about a draft may be, as far as that shows without an observation."""

from __future__ import annotations

from collections.abc import Mapping

from eagle_contracts.spec.errors import fail, suggest
from eagle_contracts.spec.flow import found
from eagle_contracts.spec.model import Value

FC = ("once", "never")
FACTORS = ("slots", "target")
_WORDS = {"pairing": "next_token", "config": "as_written"}
_KEYS = {
    "first_step": (("reads", "fc"), ("slots",)),
    "later_steps": (("reads", "fc"), ()),
    "reference": (("within",), ()),
}


def read_promise(kind: str, promise: Value) -> None:
    """Raise `SpecError` where a resolved promise of this kind says nothing that a draft can be held against."""
    if kind in _WORDS and promise.data != _WORDS[kind]:
        raise fail(promise.position, f"{kind} takes {_WORDS[kind]}, not {found(promise.data)}")
    if kind == "fc_in":
        _check_width(promise)
    if kind in _KEYS:
        _check_keys(promise, *_KEYS[kind])
    if kind in ("first_step", "later_steps"):
        _check_step(promise)
    if kind == "reference":
        _check_within(promise)


def _check_step(promise: Value) -> None:
    assert isinstance(promise.data, Mapping)
    if promise.data["fc"] not in FC:
        raise fail(promise.at("fc"), f"fc takes once or never, not {found(promise.data['fc'])}")
    if promise.data["reads"] != "draft":
        _check_width(promise.child("reads"), ", or draft")


def _check_within(promise: Value) -> None:
    assert isinstance(promise.data, Mapping)
    within = promise.data["within"]
    if isinstance(within, bool) or not isinstance(within, (int, float)) or not 0 < within < 1:
        raise fail(promise.at("within"), f"within is a relative error such as 1.0e-4, not {found(within)}")


def _check_width(width: Value, more: str = "") -> None:
    words = str(width.data).split(" x ")
    if all(word.isdecimal() for word in words):
        message = f"{found(width.data)} is a number of the real model, and the twin has numbers of its own"
        hint = "write slots x target: a run holds it against the twin, and against the real config and checkpoint"
        raise fail(width.position, message, f"{hint}{'; a later step reads draft' if more else ''}")
    if not all(word in FACTORS or word.isdecimal() for word in words):
        message = f"a width is a product such as slots x target{more}, not {found(width.data)}"
        raise fail(width.position, message)


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
