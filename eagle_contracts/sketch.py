"""Reading a few values of every candidate before any is compared: which rows, which values.

How this keeps identification fast without letting a wrong candidate win. Of some rows, a few coordinates are drawn
at random, from a fixed seed and independently of the data, and first only those are read. For a row with distance d the
sampled squared distance, scaled up, has expectation d^2 *whatever the values are*, so by Markov it exceeds SAFETY^2 d^2
with probability at most 1/SAFETY^2 = 1/9. At least half of all rows lie at or below the median error e. For all but a
sixteenth of the sampled rows to claim more than SAFETY * e, nearly all of the sampled ones of that half would have to
exceed it together, though they were drawn independently: a chance below 6e-9 for 34 of up to 64 rows, and for 48 of any
number (the hypergeometric sum over how many of that half are drawn; `_chance` in the tests). The denominator needs no
read either, as |h| <= |x| + d. So one candidate is compared exactly (the declared one, or the nearest in the sample),
and another is passed over *only* if this bound puts it beyond MARGIN times the best exact error; whatever else is left
is compared exactly, and everything is, if that gives no clear answer. A sink channel that hides a difference from the
sample makes the bound small, never large: it costs time, not the answer. A runner-up that was passed over has an
estimated error (`Match.exact` is false), which is far from deciding anything.

What is left of the time is memory traffic and, at some 60 tokens as much, the fixed cost of operations. So all slots go
through an operation together. Runs inside workers, as `identify` does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

SAFETY: Final = 3.0
SKETCH_WIDTH: Final = 8
SKETCH_ROWS: Final = ((64, 34), (math.inf, 48))  # up to so many rows: so many of them
SEED: Final = 20250


class Sample(NamedTuple):
    """Which rows are sampled, and which runs of values: indices into all runs of `block` values."""

    rows: list[int]
    runs: Tensor
    block: int


def sampled(tensors: Sequence[Tensor]) -> Tensor:
    """The sampled values [C, R, s] of C tensors [T, H], as float32."""
    first = tensors[0]
    _, runs, block = sample(first.shape[0], first.shape[1], first.device)
    if any(tensor.dtype != first.dtype or tensor.device != first.device for tensor in tensors):
        tensors = [tensor.to(device=first.device, dtype=torch.float32) for tensor in tensors]
    lines = torch.empty(len(tensors), len(runs), block, dtype=tensors[0].dtype, device=first.device)
    for tensor, line in zip(tensors, lines, strict=True):
        torch.index_select(tensor.reshape(-1, block), 0, runs, out=line)
    return lines.view(len(tensors), -1, SKETCH_WIDTH).float()


@functools.lru_cache(maxsize=8)
def sample(rows: int, width: int, device: torch.device) -> Sample:
    """What to read: rows, and runs of values independently for each row; bad luck in one says nothing of the next."""
    block = math.gcd(width, SKETCH_WIDTH)
    generator = torch.Generator().manual_seed(SEED)
    count = next(enough for most, enough in SKETCH_ROWS if rows <= most)
    chosen = torch.randperm(rows, generator=generator)[:count].sort().values
    drawn = torch.randint(width // block, (len(chosen), SKETCH_WIDTH // block), generator=generator)
    runs = (drawn + chosen[:, None] * (width // block)).flatten()
    return Sample(chosen.tolist(), runs.to(device), block)
