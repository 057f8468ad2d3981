"""`unchanged_by`: the same request gives the same result, however requests are ordered, batched or repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from eagle_contracts.checks.context import Context
from eagle_contracts.observation import Observation
from eagle_contracts.spec.errors import fail, suggest
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

VARIANTS = ("permuted_requests", "larger_batch", "second_call")
Held: TypeAlias = list[tuple[str | None, int | None]]
"""An output's parts: the upstream tensor's name and its request, or None for what is no upstream tensor."""


def check_unchanged_by(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch for the first variant in which a request's result is made of other tensors."""
    names = promise.data if isinstance(promise.data, list) else [promise.data]
    if not names:
        raise fail(promise.position, "unchanged_by promises nothing", f"variants: {', '.join(VARIANTS)}")
    for index, name in enumerate(names):
        if name not in VARIANTS:
            raise fail(promise.at(index), f"there is no variant {show(name)}", suggest(str(name), VARIANTS, "variants"))
        runs = observation.data["variants"].get(name)
        if runs is None:
            raise fail(promise.at(index), f"{name} needs an input that was made in that way, such as a dump")
        yield from _differences(str(name), observation.data["outputs"], runs)


def _differences(variant: str, base: list[Mapping[str, Any]], runs: list[Mapping[str, Any]]) -> Iterator[Mismatch]:
    for number, (first, again) in enumerate(zip(base, runs, strict=True)):
        for key, output in first.items():
            other = again.get(key, {})
            before, after = _held(output), _held(other)
            if before == after and _form(output, variant) == _form(other, variant):
                continue
            foreign = [part for part in after if part[1] not in (None, number)]
            diagnosis = "wrong_request" if foreign else "unstable"
            yield Mismatch(
                diagnosis=diagnosis,
                sentence=f"with {variant}, {key} of request {number} {_change(before, after, output, other)}",
            )
            return


def _form(output: Mapping[str, Any], variant: str) -> tuple[object, list[str]]:
    """Return an output's shape and how exact its parts are; another batch may move an engine's last bits."""
    hows = [part["how"] for part in output.get("parts", [])]
    return output.get("shape"), hows if variant == "second_call" else ["exact" if h == "near" else h for h in hows]


def _change(before: Held, after: Held, output: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if not other:
        return "is not there"
    if before != after:
        return f"is {_shown(after)}, and was {_shown(before)}"
    if output.get("shape") != other.get("shape"):
        return f"is {other.get('shape')}, and was {output.get('shape')}"
    return f"is made of the same tensors with other values: {_shown(after)}"


def _held(output: Mapping[str, Any]) -> Held:
    return [
        (part["name"], part["request"]) if part["how"] != "unknown" else (None, None)
        for part in output.get("parts", [])
    ]


def _shown(parts: Held) -> str:
    return "[" + ", ".join(f"{name} of request {request}" if name else "?" for name, request in parts) + "]"
