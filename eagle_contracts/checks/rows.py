"""`rows`: every request's tensors have one row a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eagle_contracts.checks.context import Context
from eagle_contracts.checks.slots import refused
from eagle_contracts.observation import Observation
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch


def check_rows(promise: Value, observation: Observation, context: Context) -> Iterator[Mismatch]:
    """Yield a mismatch if requests are missing, or if a tensor's rows are not its request's tokens."""
    if promise.data != "one_per_token":
        raise fail(promise.position, f"rows takes one_per_token, not {promise.data!r}")
    if observation.refusal is not None:
        yield refused(observation.refusal)
        return
    found: list[Mapping[str, int]] = observation.data.get("rows", [])
    tokens = context.requests
    if len(found) != len(tokens):
        yield Mismatch(
            diagnosis="missing_tokens",
            sentence=f"{len(tokens)} requests were served and {len(found)} have files",
        )
        return
    wrong = [
        (number, name, rows)
        for number, named in enumerate(found)
        for name, rows in named.items()
        if rows != tokens[number]
    ]
    if not wrong:
        return
    counts = sorted(max(named.values(), default=0) for named in found)
    diagnosis = "wrong_request" if counts == sorted(tokens) else "missing_tokens"
    details = tuple(
        f"request {number}: {name} has {rows} rows for {tokens[number]} tokens" for number, name, rows in wrong[:6]
    )
    first = f"request {wrong[0][0]}'s {wrong[0][1]} has {wrong[0][2]} rows for {tokens[wrong[0][0]]} tokens"
    more = f", and {len(wrong) - 1} more are wrong" if len(wrong) > 1 else ""
    yield Mismatch(diagnosis=diagnosis, sentence=first + more, details=details[1:])
