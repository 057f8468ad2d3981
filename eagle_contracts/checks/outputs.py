"""`order`, `concat`, `equals`, `width`: what a stage made of the tensors before it, by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eagle_contracts.checks.context import Context
from eagle_contracts.observation import Observation
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.flow import found, show
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

Part = Mapping[str, Any]


def check_order(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a list of tensors is not the upstream tensors named, in that order, of its own request."""
    for key, names in _named(promise, observation):
        yield from _first_wrong(key, names, observation, context)


def check_concat(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a tensor is not the concatenation of the upstream tensors named, along the last axis."""
    for key, names in _named(promise, observation):
        yield from _first_wrong(key, names, observation, context)


def check_equals(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if an output is not the one upstream tensor named."""
    for key, names in _named(promise, observation):
        yield from _first_wrong(key, names, observation, context)


def check_width(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if a tensor's width is not the product of symbols promised, such as `slots x target`."""
    for key, symbols in _widths(promise, context):
        wanted, real = product(symbols, context)
        expected = f"where {symbols.data} is {wanted} on the twin{real}"
        for number, outputs in enumerate(observation.data["outputs"]):
            output = outputs.get(key)
            found = _last(output)
            if found == wanted:
                continue
            fewer = output is None or (found is not None and found < wanted and found % context.width == 0)
            fewer = fewer and not (output and output["shape"][0] > context.requests[number])
            is_ = f"is {found} wide" if found is not None else "is no tensor" if output else "is not there"
            yield Mismatch(diagnosis="missing_slot" if fewer else "wrong_width", sentence=f"{key} {is_} {expected}")
            break


def _widths(promise: Value, context: Context) -> Iterator[tuple[str, Value]]:
    """Yield each output's key and the product promised for it; a product alone is of what `concat` names."""
    if isinstance(promise.data, Mapping):
        yield from ((str(key), promise.child(key)) for key in promise.data)
        return
    if not context.concatenated:
        hint = f"write width: {{OUTPUT: {promise.data}}}"
        raise fail(promise.position, "a width alone is of what concat promises, and nothing here does", hint)
    yield from ((key, promise) for key in context.concatenated)


def _last(output: Mapping[str, Any] | None) -> int | None:
    shape = output.get("shape") if output and output["kind"] == "tensor" else None
    return int(shape[-1]) if shape else None


def product(promise: Value, context: Context) -> tuple[int, str]:
    """Return what a width such as `slots x target` is on the twin, and in words on the real model."""
    known = {"slots": context.slots, "target": context.width}
    real = {"slots": context.slots, "target": context.real_width or 0}
    words = str(promise.data).split(" x ")
    if not all(word in known or word.isdecimal() for word in words):
        raise fail(promise.position, f"a width is a product such as slots x target, not {found(promise.data)}")
    twin = real_size = 1
    for word in words:
        twin *= known.get(word, int(word) if word.isdecimal() else 1)
        real_size *= real.get(word, int(word) if word.isdecimal() else 1)
    return twin, f" ({real_size} on the real model)" if context.real_width else ""


def _named(promise: Value, observation: Observation) -> Iterator[tuple[str, list[str]]]:
    """Yield each output's key and the upstream names promised for it."""
    if not isinstance(promise.data, Mapping) or not promise.data:
        raise fail(promise.position, "expected a map from an output's name to upstream names")
    for key, names in promise.data.items():
        listed = names if isinstance(names, list) else [names]
        if not all(isinstance(name, str) for name in listed):
            raise fail(promise.at(key), f"expected names such as aux_0, not {show(names)}")
        yield str(key), listed


def _first_wrong(key: str, names: Sequence[str], observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield the worst mismatch over all requests: one fault shows in each of them."""
    for number, outputs in enumerate(observation.data["outputs"]):
        wrong = _wrong(key, names, outputs, number, context)
        if wrong is not None:
            diagnosis, sentence = wrong
            yield Mismatch(
                diagnosis=diagnosis,
                sentence=f"{key} of request {number}: {sentence}",
                details=tuple(_lines(names, outputs.get(key, {}))),
            )
            return


def _wrong(
    key: str, names: Sequence[str], outputs: Mapping[str, Any], number: int, context: Context
) -> tuple[str, str] | None:
    if key not in outputs:
        there = ", ".join(outputs)
        return "missing_slot", f"there is no such output (outputs: {there})"
    output = outputs[key]
    parts: list[Part] = output.get("parts", [])
    rows = context.requests[number]
    if len(names) > 1 and output.get("shape", [])[:1] == [rows * len(names)]:
        shape, whole = output["shape"], [rows, len(names) * context.width]
        return "wrong_width", f"it is {shape} where {whole} is wanted: joined along the token axis"
    if not parts:
        return (
            "wrong_width",
            f"it holds no tensor {context.width} wide a slot ({output.get('shape') or output['kind']})",
        )
    found = [_name(part, names[n] if n < len(names) else "") for n, part in enumerate(parts)]
    return _wrong_request(parts, number) or _wrong_names(found, names, outputs) or _inexact(parts, rows)


def _name(part: Part, wanted: str) -> str:
    """Return the upstream tensor that a part is: the wanted one, where several hold the same values."""
    if part["how"] == "unknown":
        return ""
    return wanted if wanted in part.get("also", ()) else str(part["name"])


def _wrong_request(parts: Sequence[Part], number: int) -> tuple[str, str] | None:
    other = [
        (n, part) for n, part in enumerate(parts) if part["request"] not in (None, number) and part["how"] != "unknown"
    ]
    if not other:
        return None
    listed = ", ".join(f"part {n} is {part['name']} of request {part['request']}" for n, part in other)
    return "wrong_request", listed


def _wrong_names(found: list[str], names: Sequence[str], outputs: Mapping[str, Any]) -> tuple[str, str] | None:
    if found == list(names):
        return None
    shown, wanted = f"[{', '.join(name or '?' for name in found)}]", f"[{', '.join(names)}]"
    head = f"it holds {shown} where {wanted} is declared"
    if "" in found:
        return "unknown_state", f"{head}; ? is no upstream tensor"
    if sorted(found) == sorted(names):
        return "permuted", f"{head}: the same tensors in another order"
    missing = [name for name in names if name not in found]
    if missing and len(names) == 1 and missing[0] in _everything(outputs):
        return "other_state", head
    if len(found) > len(names) and not missing:
        return "wrong_width", f"{head}: {len(found)} slots, and {len(names)} are declared"
    if len(found) == len(set(found)) and len(found) == len(names) and len(names) > 1:
        return "other_state", head
    twice = [name for name in dict.fromkeys(found) if found.count(name) > 1]
    lost = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} nowhere in it"
    if twice and len(found) == len(names):
        return "duplicated", f"{head}: {', '.join(twice)} more than once, and {lost}"
    return "missing_slot", f"{head}: {lost}"


def _everything(outputs: Mapping[str, Any]) -> set[str]:
    return {part["name"] for output in outputs.values() for part in output.get("parts", []) if part["how"] != "unknown"}


def _inexact(parts: Sequence[Part], rows: int) -> tuple[str, str] | None:
    for n, part in enumerate(parts):
        if part["how"] == "partial":
            return "missing_tokens", f"part {n} is {part['name']} with {part['shape'][0]} rows for {rows} tokens"
        if part["how"] == "rounded":
            return "wrong_dtype", f"part {n} is {part['name']} in {part['dtype']} (error {part['error']:.1e})"
        if part["how"] == "near":
            return "altered", f"part {n} is {part['name']}, and not to the bit (error {part['error']:.1e})"
    return None


def _lines(names: Sequence[str], output: Mapping[str, Any]) -> Iterator[str]:
    for n, part in enumerate(output.get("parts", [])):
        declared = names[n] if n < len(names) else "nothing"
        held = part["name"] if part["how"] != "unknown" else "no upstream tensor"
        of = f" of request {part['request']}" if part["request"] is not None and part["how"] != "unknown" else ""
        error = f", error {part['error']:.1e}" if part["error"] is not None else ""
        yield f"part {n}: declared {declared}, holds {held}{of} ({part['how']}{error}; {part['shape']} {part['dtype']})"
