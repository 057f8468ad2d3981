"""Which upstream tensor is this? By value: the same bits first, then the nearest. Runs inside a worker."""

from __future__ import annotations

from typing import Any

NEAR = 1e-4
ROUNDED = 2e-2


def whose(part: Any, upstream: list[dict[str, Any]], own: int = 0) -> dict[str, Any]:
    """Return the name and request of the tensor that a part holds, and how exactly.

    `how` is `exact` (same values and type), `rounded` (the same values in another type), `near` (within 1e-4),
    `partial` (its first or last rows, or repeated along the token axis), or `unknown`, with the nearest name and error.
    Among equals the request `own` comes first. `also` names the other tensors of that request that hold the same bits:
    nobody can tell them apart.
    """
    shape = {"shape": list(part.shape), "dtype": str(part.dtype).removeprefix("torch.")}
    if not part.is_floating_point() or part.dim() != 2:
        return {**shape, "name": None, "request": None, "how": "unknown", "error": None}
    best: dict[str, Any] = {"name": None, "request": None, "how": "unknown", "error": None}
    for request, named in sorted(enumerate(upstream), key=lambda one: one[0] != own):
        for name, tensor in named.items():
            found = _compared(part, tensor)
            if found is not None and _better(found, best):
                best = {"name": name, "request": request, **found}
    also = [
        name
        for name, tensor in (upstream[best["request"]] if best["how"] == "exact" else {}).items()
        if name != best["name"] and (_compared(part, tensor) or {}).get("how") == "exact"
    ]
    return {**shape, **best, "also": also}


_ORDER = ("exact", "rounded", "near", "partial", "unknown")


def _better(found: dict[str, Any], best: dict[str, Any]) -> bool:
    if best["error"] is None:
        return True
    return (_ORDER.index(found["how"]), found["error"]) < (_ORDER.index(best["how"]), best["error"])


def _compared(part: Any, tensor: Any) -> dict[str, Any] | None:
    import torch

    from eagle_contracts.subjects.twin_weights import row_error

    if not tensor.is_floating_point() or tensor.dim() != 2 or part.shape[1] != tensor.shape[1]:
        return None
    if part.shape != tensor.shape:
        return _partial(part, tensor)
    if part.dtype == tensor.dtype and torch.equal(part, tensor):
        return {"how": "exact", "error": 0.0}
    error = row_error(part.float(), tensor.float())
    if part.dtype != tensor.dtype and error <= ROUNDED:
        return {"how": "rounded", "error": error}
    return {"how": "near" if error <= NEAR else "unknown", "error": error if error == error else 1e30}


def _partial(part: Any, tensor: Any) -> dict[str, Any] | None:
    from eagle_contracts.subjects.twin_weights import row_error

    rows = min(part.shape[0], tensor.shape[0])
    if not rows:
        return None
    ends = [(part[:rows], tensor[:rows]), (part[-rows:], tensor[-rows:])]
    error = min(row_error(x.float(), h.float()) for x, h in ends)
    return {"how": "partial", "error": error} if error <= NEAR else None
