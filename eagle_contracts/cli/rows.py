"""Is a tensor the embedding of these tokens, or normed by the final norm? Answered from rows alone; needs torch.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor

from eagle_contracts.cli.checkpoint import Checkpoint
from eagle_contracts.identify import tolerance_for

Answer = Literal[
    "embedding",
    "partly_embedding",
    "scaled_embedding",
    "next_token_embedding",
    "previous_token_embedding",
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
ROUNDED: Final = 2e-2
"""How far rows may be that were computed in bf16 or fp16, whatever they are stored as."""
SHOWN_ROWS: Final = 5
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


def tell(
    x: Tensor,
    embedded: Tensor,
    gain: Tensor | None,
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    beside: Beside,
    places: Sequence[int],
) -> Told:
    """Return what x [rows, hidden] is; `embedded` are the tokens' rows, `gain` is the final norm's weight.

    All are float32; `dtype` is what x was stored as, `places` are the rows' numbers in the file, and `beside` gives the
    embedding of the token so many places further on, for the rows that have one.
    """
    allowed = tolerance_for(dtype)
    if not bool(x.any()):
        return _told("zero", "every value that was read is zero", (), "", _error(x, embedded))
    plain, loose = _error(x, embedded), max(allowed, ROUNDED)
    right = _row_errors(x, embedded) <= loose
    if bool(right.all()):
        return _told("embedding", "the embedding of these tokens", _exactly(x, embedded, allowed), "", plain)
    scale = _scale_of(x, embedded)
    scaled = _error(x, embedded * scale)
    if scaled <= allowed and not bool(right.any()):
        return _scaled(x, embedded * scale, scale, scaled, checkpoint, allowed)
    if (told := _of_other_tokens(x, beside, checkpoint, loose)) is not None:
        return told
    if bool(right.any()):
        return _partly(x, right, gain, checkpoint, plain, places)
    return _normed_or_not(x, gain, checkpoint, min(plain, scaled))


Beside: TypeAlias = "Callable[[int], tuple[list[int], Tensor]]"
_SHIFTED: Final[tuple[tuple[int, Answer, str], ...]] = (
    (1, "next_token_embedding", "the embedding of the next token: row r is the embedding of token r + 1"),
    (-1, "previous_token_embedding", "the embedding of the previous token: row r is the embedding of token r - 1"),
)


def _exactly(x: Tensor, embedded: Tensor, allowed: float) -> tuple[str, ...]:
    error = _error(x, embedded)
    if torch.equal(x, embedded):
        how = "to the bit"
    elif error <= allowed:
        how = f"median row error {error:.1e}, allowed {allowed:.0e}"
    else:
        how = f"median row error {error:.1e}: as exact as what was computed in bf16 or fp16"
    return (f"{len(x)} of {len(x)} rows agree", how)


def _partly(
    x: Tensor, right: Tensor, gain: Tensor | None, checkpoint: Checkpoint, error: float, places: Sequence[int]
) -> Told:
    """Say how many rows are the embedding, and what the others are."""
    count, wrong = int(right.sum()), [places[n] for n in (~right).nonzero().flatten().tolist()]
    listed = ", ".join(map(str, wrong[:SHOWN_ROWS])) + (", ..." if len(wrong) > SHOWN_ROWS else "")
    rest = _normed_or_not(x[~right], gain, checkpoint, error)
    evidence = (f"not in rows {listed}", f"these rows: {rest.sentence}")
    sentence = f"the embedding of these tokens in {count} of {len(x)} rows, and something else in {len(wrong)}"
    left = "are these the tokens of this file? Rows of another request, or rows that were overwritten, look like this"
    return _told("partly_embedding", sentence, evidence, left, error)


def _of_other_tokens(x: Tensor, beside: Beside, checkpoint: Checkpoint, allowed: float) -> Told | None:
    """Return the answer where rows are the embedding of the tokens beside theirs.

    Where a token follows itself, a row is that of its own token too: that alone makes no partial embedding.
    """
    for offset, answer, sentence in _SHIFTED:
        rows, others = beside(offset)
        if not rows:
            continue
        scale = _scale_of(x[rows], others)
        for factor, words in ((1.0, ""), (scale, f", times {_factor(scale, checkpoint)}")):
            if (error := _error(x[rows], others * factor)) <= allowed:
                evidence = (_counted(x[rows], others * factor, allowed),)
                return _told(answer, sentence + words, evidence, "", error)
    return None


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
    sentence = f"the embedding of these tokens times {_factor(scale, checkpoint)}"
    evidence = (_counted(x, embedded, allowed), f"median row error {error:.1e}, allowed {allowed:.0e}")
    return _told("scaled_embedding", sentence, evidence, "", error)


def _factor(scale: float, checkpoint: Checkpoint) -> str:
    known = checkpoint.scale != 1 and abs(scale / checkpoint.scale - 1) <= 0.01
    return checkpoint.scale_name if known else f"{scale:.4g}, which config.json does not account for"


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
    return factor if factor != 0 else 1.0


def _which_layer() -> str:
    return "which layer's, the last's before the norm too, or a sub-layer's: run the contract"
