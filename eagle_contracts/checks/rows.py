"""`rows`: every request's tensors have one row a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eagle_contracts.checks.context import Context
from eagle_contracts.checks.slots import refused, unreadable
from eagle_contracts.observation import Observation
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch


def check_rows(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if requests are missing, or if a tensor's rows are not its request's tokens."""
    if promise.data != "one_per_token":
        raise fail(promise.position, f"rows takes one_per_token, not {show(promise.data)}")
    if observation.refusal is not None:
        yield refused(observation.refusal)
        return
    if bad := observation.data.get("unreadable"):
        yield unreadable(bad)
        return
    found: list[Mapping[str, int]] = observation.data.get("rows", [])
    tokens = context.requests
    if len(found) != len(tokens):
        yield Mismatch(
            diagnosis="missing_tokens",
            sentence=f"{len(tokens)} requests were served and {len(found)} have files",
        )
        return
    for diagnosis, foreign in _foreign(observation).items():
        yield Mismatch(
            diagnosis=diagnosis,
            sentence=foreign[0] + (f", and {len(foreign) - 1} more are wrong" if len(foreign) > 1 else ""),
            details=tuple(foreign[1:6]),
        )
    if _foreign(observation):
        return
    wrong = list(_wrong(found, tokens))
    if not wrong:
        return
    whole = [set(named.values()) for named in found]
    complete = len({frozenset(named) for named in found}) == 1 and all(len(rows) == 1 for rows in whole)
    moved = complete and sorted(rows.pop() for rows in whole) == sorted(tokens)
    more = f", and {len(wrong) - 1} more are wrong" if len(wrong) > 1 else ""
    yield Mismatch(
        diagnosis="wrong_request" if moved else "missing_tokens",
        sentence=wrong[0] + more,
        details=tuple(wrong[1:6]),
    )


def _wrong(found: Sequence[Mapping[str, int]], tokens: Sequence[int]) -> Iterator[str]:
    """Yield what is wrong, file by file; a file that other requests have is missed where it is not there."""
    names = list(dict.fromkeys(name for named in found for name in named))
    for number, named in enumerate(found):
        for name in names:
            if name not in named:
                yield f"request {number} has no {name}"
            elif named[name] != tokens[number]:
                yield f"request {number}'s {name} has {named[name]} rows for {tokens[number]} tokens"


def _foreign(observation: Observation) -> dict[str, list[str]]:
    """Return, by diagnosis, which files hold by value the rows of another request, or of none."""
    out: dict[str, list[str]] = {}
    for name, seen in observation.data.get("named", {}).items():
        for number, request in seen.get("of", {}).items():
            if request is None:
                sentence = f"request {number}'s {name} holds no state of any request, and other requests' files do"
                out.setdefault("unknown_state", []).append(sentence)
            elif request != int(number):
                sentence = f"request {number}'s {name} holds rows of request {request}"
                out.setdefault("wrong_request", []).append(sentence)
    return out
