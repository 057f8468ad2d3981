"""Is a tensor the embedding of these tokens, or normed by the final norm? Answered from rows alone; needs torch.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from eagle_contracts.cli.checkpoint import Checkpoint
from eagle_contracts.identify import tolerance_for

Answer = Literal[
    "embedding",
    "scaled_embedding",
    "next_token_embedding",
    "before_final_norm",
    "after_final_norm",
    "normed",
    "zero",
    "other",
]

RMS_TOLERANCE: Final = 0.01
"""How far from 1 the RMS of a normed row, divided by the norm's gain, may be: bf16 rounds by up to 0.4%."""
MOST_ROWS_RIGHT: Final = 0.9
FEW_ROWS: Final = 8
_FLAT: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer, the evidence as sentences, and as numbers: `errors` are medians over rows, `rms` the least and most.

    `certain` is false where rows alone leave something open: `open` says what.
    """

    answer: Answer
    sentence: str
    evidence: tuple[str, ...]
    open: str
    embedding_error: float
    rms: tuple[float, float] | None


def tell(x: Tensor, embedded: Tensor, gain: Tensor | None, checkpoint: Checkpoint, dtype: torch.dtype) -> Told:
    """Return what x [rows, hidden] is; `embedded` are the tokens' rows, `gain` is the final norm's weight.

    All are float32; `dtype` is what x was stored as.
    """
    allowed = tolerance_for(dtype)
    scale = _scale_of(x, embedded)
    plain, scaled, following = _error(x, embedded), _error(x, embedded * scale), _error(x[:-1], embedded[1:])
    if not bool(x.any()):
        return _told("zero", "every value that was read is zero", (), "", plain)
    if plain <= allowed:
        how = "to the bit" if torch.equal(x, embedded) else f"median row error {plain:.1e}, allowed {allowed:.0e}"
        return _told("embedding", "the embedding of these tokens", (_counted(x, embedded, allowed), how), "", plain)
    if scaled <= allowed:
        return _scaled(x, embedded * scale, scale, scaled, checkpoint, allowed)
    if x.shape[0] > 1 and following <= allowed:
        counted = _counted(x[:-1], embedded[1:], allowed)
        sentence = "the embedding of the next token: row r is the embedding of token r + 1"
        return _told("next_token_embedding", sentence, (counted,), "", following)
    return _normed_or_not(x, gain, checkpoint, min(plain, scaled))


def _normed_or_not(x: Tensor, gain: Tensor | None, checkpoint: Checkpoint, error: float) -> Told:
    not_embedding = f"not the embedding of these tokens: median row error {error:.2g}"
    if gain is None or checkpoint.norm is None:
        sentence = f"not the embedding; whether it is normed cannot be told: {checkpoint.no_norm}"
        return _told("other", sentence, (not_embedding,), _which_layer(), error)
    name = checkpoint.norm.name.removesuffix(".weight")
    tried = ((gain, f"{name}'s gain"), (1 + gain, f"1 + {name}'s weight"))
    (found, rms, flat), by = min(
        ((_normed(x, weight), by) for weight, by in tried), key=lambda one: abs(math.log(max(one[0][1][2], 1e-30)))
    )
    spread = f"{rms[0]:.3g} to {rms[1]:.3g}"
    evidence: tuple[str, ...] = (not_embedding, f"rows divided by {by} have RMS {spread}; normed rows have 1")
    numbers = (rms[0], rms[1])
    if found:
        few = f"; {x.shape[0]} rows are few to tell by" if x.shape[0] < FEW_ROWS else ""
        evidence += (f"{name}'s gain is nearly flat, so another norm could look the same",) if flat else ()
        left = f"which layer's state was normed needs the model: run the contract{few}"
        return _told("after_final_norm", f"after the final norm ({name})", evidence, left, error, numbers)
    bare = _normed(x, torch.ones_like(gain))
    if bare[0]:
        evidence += ("every row has RMS 1 as it is",)
        sentence = f"not the embedding; normed, but not with {name}'s gain"
        return _told("normed", sentence, evidence, "which norm needs the model", error, numbers)
    sentence = f"not the embedding; not normed by {name}: a stream state"
    return _told("other", sentence, evidence, _which_layer(), error, numbers)


def _normed(x: Tensor, gain: Tensor) -> tuple[bool, tuple[float, float, float], bool]:
    """Tell whether rows divided by a gain have RMS 1: (so, (least, most, median), gain is flat)."""
    usable = gain.abs() > 1e-3 * gain.abs().max()
    rms = (x[:, usable] / gain[usable]).square().mean(1).sqrt()
    near = (rms - 1).abs() <= RMS_TOLERANCE
    so = bool(near.float().mean() >= MOST_ROWS_RIGHT) and bool((rms.median() - 1).abs() <= RMS_TOLERANCE)
    flat = bool(gain.std(unbiased=False) <= _FLAT * gain.mean().abs())
    return so, (float(rms.min()), float(rms.max()), float(rms.median())), flat


def _scaled(
    x: Tensor,
    embedded: Tensor,
    scale: float,
    error: float,
    checkpoint: Checkpoint,
    allowed: float,
) -> Told:
    known = checkpoint.scale != 1 and abs(scale / checkpoint.scale - 1) <= 0.01
    by = checkpoint.scale_name if known else f"{scale:.4g}, which config.json does not account for"
    sentence = f"the embedding of these tokens times {by}"
    evidence = (_counted(x, embedded, allowed), f"median row error {error:.1e}, allowed {allowed:.0e}")
    return _told("scaled_embedding", sentence, evidence, "", error)


def _told(
    answer: Answer,
    sentence: str,
    evidence: tuple[str, ...],
    left: str,
    error: float,
    rms: tuple[float, float] | None = None,
) -> Told:
    return Told(answer=answer, sentence=sentence, evidence=evidence, open=left, embedding_error=error, rms=rms)


def _counted(x: Tensor, embedded: Tensor, allowed: float) -> str:
    right = int((_row_errors(x, embedded) <= allowed).sum())
    return f"{right} of {x.shape[0]} rows agree"


def _row_errors(x: Tensor, embedded: Tensor) -> Tensor:
    errors: Tensor = (x - embedded).norm(dim=1) / embedded.norm(dim=1).clamp_min(1e-30)
    return errors


def _error(x: Tensor, embedded: Tensor) -> float:
    return float(_row_errors(x, embedded).median()) if len(x) else math.inf


def _scale_of(x: Tensor, embedded: Tensor) -> float:
    """Return the one factor that brings most embedding rows nearest to x's; 1 where there is none."""
    factors = (x * embedded).sum(1) / embedded.square().sum(1).clamp_min(1e-30)
    factor = float(factors.median())
    return factor if factor > 0 else 1.0


def _which_layer() -> str:
    return "which layer's, the last's before the norm too, or a sub-layer's: run the contract"
