"""What a median over all tokens does not show: the rows of one request, one row alone.

Runs inside a worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

MOST_SLOTS = 6
"""Up to how many slots all orders are tried for a row: 720 of them."""


def first_strange(read: Any, wanted: Any, lengths: Sequence[int], hidden: int, near: float) -> dict[str, Any] | None:
    """Return the first row that is not the wanted one, and what it holds instead; None where all rows are right.

    Both are [tokens of all requests, slots x hidden], and a row is right within `near`, relative L2. `holds` is a row
    (`request`, `position`), an `order` of the wanted row's slots, `nothing` for zeros, or None for what was not found.
    """
    errors = row_errors(read, wanted)
    wrong = [n for n, error in enumerate(errors) if not error <= near]
    if not wrong:
        return None
    request, position = place_of(wrong[0], lengths)
    return {
        "rows": len(wrong),
        "of": len(errors),
        "requests": sorted({place_of(n, lengths)[0] for n in wrong}),
        "error": errors[wrong[0]] if errors[wrong[0]] == errors[wrong[0]] else None,
        "request": request,
        "position": position,
        "holds": _holds(read[wrong[0]], wanted, wrong[0], lengths, hidden, near),
    }


def row_errors(read: Any, wanted: Any) -> list[float]:
    """Return each row's relative L2 error; a row of zeros is as far from a wanted one as that is long."""
    import torch

    tiny = torch.finfo(torch.float32).tiny
    far: Any = torch.linalg.vector_norm(read - wanted, dim=1) / torch.linalg.vector_norm(wanted, dim=1).clamp_min(tiny)
    return [float(one) for one in far]


def by_request(slot: Any, state: Any, lengths: Sequence[int]) -> list[float]:
    """Return the median over each request's rows of a slot's error against a state; no request drowns among others."""
    from eagle_contracts.subjects.twin_weights import row_error

    pairs = zip(slot.float().split(list(lengths)), state.float().split(list(lengths)), strict=True)
    errors = [row_error(x, h) for x, h in pairs]
    return [error if error == error else 1e30 for error in errors]


def place_of(row: int, lengths: Sequence[int]) -> tuple[int, int]:
    """Return the request of a row of the batch, and its position there."""
    for request, length in enumerate(lengths):
        if row < length:
            return request, row
        row -= length
    raise IndexError("the row lies behind the last request")


def _holds(
    row: Any, wanted: Any, number: int, lengths: Sequence[int], hidden: int, near: float
) -> dict[str, Any] | None:
    if not bool(row.any()):
        return {"nothing": True}
    same = [n for n, error in enumerate(row_errors(row.expand_as(wanted), wanted)) if error <= near]
    if same:
        request, position = place_of(same[0], lengths)
        return {"request": request, "position": position}
    parts, right = row.split(hidden), wanted[number].split(hidden)
    if 1 < len(parts) == len(right) <= MOST_SLOTS:
        for order in itertools.permutations(range(len(parts))):
            if all(_near(part, right[n], near) for part, n in zip(parts, order, strict=True)):
                return {"order": list(order)}
    return None


def _near(part: Any, right: Any, near: float) -> bool:
    return bool((part - right).norm() <= near * right.norm())
