"""Observations made by hand, as workers would send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_contracts.checks import CHECKS, Context
from eagle_contracts.observation import Observation, observation_from_json
from eagle_contracts.spec.model import Value
from eagle_contracts.spec.position import Position
from eagle_contracts.verdict import Mismatch

TOKENS = (11, 7, 14)
WIDTH = 64
REFUSED = {
    "stage": "the forward pass",
    "type": "TypeError",
    "message": "no residual",
    "where": "deepseek_v2.py:2728",
    "line": "hidden_states + residual",
}


def value(data: object) -> Value:
    """A promise as a contract would hold it after its references are resolved."""
    return Value(data=data, position=Position(path=str(Path("contracts/a.yaml")), line=9, column=5))


def context(**changes: Any) -> Context:
    given: dict[str, Any] = {"layers": 61, "width": WIDTH, "real_width": 7168, "slots": 3, "requests": TOKENS}
    return Context(**{**given, **changes})


def observation(**data: Any) -> Observation:
    return observation_from_json({"refused": None, **data})


def check(kind: str, promise: object, seen: Observation, **changes: Any) -> list[Mismatch]:
    return list(CHECKS[kind](value(promise), seen, context(**changes)))


def said(kind: str, promise: object, seen: Observation, **changes: Any) -> list[tuple[str | None, str]]:
    return [(one.diagnosis, one.sentence) for one in check(kind, promise, seen, **changes)]


def match(kind: str, k: int | None, label: str, error: float = 1e-6) -> dict[str, Any]:
    return {"kind": kind, "k": k, "label": label, "error": error}


def identified(held: int | str | None) -> dict[str, Any]:
    """An identification of a stream state, of `final_normed`, of another label, or of nothing."""
    best = match("state", held, f"h[{held}]") if isinstance(held, int) else match("sublayer", 2, str(held))
    if held == "final_normed":
        best = match("final_normed", None, "final_normed")
    return {
        "outcome": "unknown" if held is None else "identified",
        "tolerance": 1e-4,
        "shape": [32, WIDTH],
        "expected_shape": [32, WIDTH],
        "best": match("state", 7, "h[7]", 0.5) if held is None else best,
        "second": match("state", 8, "h[8]", 0.6),
        "declared": None,
        "worst_row": None,
        "sink_rows": [],
        "slot_side": None,
        "declared_side": None,
        "smallest_tolerance": None,
        "tolerance_would_help": False,
        "non_finite": None,
    }


def part(name: str | None, request: int | None = 0, how: str = "exact", **changes: Any) -> dict[str, Any]:
    """One slot of a stage's result, as it was found among the upstream tensors."""
    error = {"exact": 0.0, "rounded": 2e-3, "near": 3e-5, "partial": 0.0}.get(how)
    given = {"name": name, "request": request, "how": how, "error": error}
    return {**given, "shape": [11, WIDTH], "dtype": "float32", **changes}


def tensor(*parts: dict[str, Any], rows: int = 11, width: int | None = None) -> dict[str, Any]:
    shape = [rows, len(parts) * WIDTH if width is None else width]
    return {"kind": "tensor", "shape": shape, "dtype": "float32", "parts": list(parts)}


def listed(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "list", "parts": list(parts)}
