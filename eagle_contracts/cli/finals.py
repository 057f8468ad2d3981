"""Does a state predict the tokens that follow, and is one slot the normed form of another? Needs torch.

A final state, normed and multiplied with lm_head, ranks the next token high: any trained model was trained for that.
Only the rows of lm_head that are compared are read. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from eagle_contracts.cli.checkpoint import Checkpoint
from eagle_contracts.cli.rows import Told
from eagle_contracts.cli.tensors import Stored

RIVALS: Final = 256
"""How many rows of lm_head, evenly spread over the vocabulary, a next token is ranked among."""
FEWEST: Final = 8
"""A median over fewer next tokens says nothing."""
GOOD: Final = 0.1
SAME: Final = 2e-2
"""The median row error up to which one slot is another, normed: states computed in bf16 may be stored in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How the next tokens rank among `rivals` vocabulary rows: `rank` is the median share of rivals ahead of them.

    0 is best, 0.5 is chance.
    """

    rank: float
    tokens: int
    rivals: int

    @property
    def good(self) -> bool:
        """Is this far better than chance?"""
        return self.rank <= GOOD

    @property
    def words(self) -> str:
        """Say it."""
        return f"the next token has {self.rank:.0%} of {self.rivals} sampled tokens ahead of it (median)"


class Head:
    """The rows of lm_head that are needed for some tokens: those of the next tokens, and rivals."""

    def __init__(self, weight: Stored, ids: Sequence[int], rows: Sequence[int]) -> None:
        """`ids` are all tokens, `rows` the positions of the states that will be asked about."""
        vocabulary = weight.shape[0]
        self._followed = [place for place, row in enumerate(rows) if row + 1 < len(ids)]
        following = [ids[rows[place] + 1] for place in self._followed]
        count = min(RIVALS, vocabulary)
        spread = [place * vocabulary // count for place in range(count)]
        read = sorted({*spread, *following})
        places = {token: place for place, token in enumerate(read)}
        self._weight = weight.rows(read)
        self._following = torch.tensor([places[token] for token in following], dtype=torch.long)
        self._rivals = torch.tensor([places[token] for token in spread], dtype=torch.long)

    def prediction(self, normed: Tensor) -> Prediction | None:
        """Return how normed states [rows, hidden] predict what follows them; None for too few."""
        if len(self._followed) < FEWEST:
            return None
        logits = normed[self._followed] @ self._weight.T
        if not bool(torch.isfinite(logits).all()):
            return None
        right = logits.gather(1, self._following[:, None])
        is_rival = self._rivals[None, :] != self._following[:, None]
        rivals = logits[:, self._rivals]
        # A rival that ties counts half: states of which all logits are equal predict nothing.
        before = ((rivals > right) & is_rival).sum(1) + ((rivals == right) & is_rival).sum(1) / 2
        ahead = before / is_rival.sum(1).clamp_min(1)
        return Prediction(rank=float(ahead.median()), tokens=len(self._followed), rivals=len(self._rivals))


def rms_normed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Return x [rows, hidden] after an RMS norm."""
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + eps) * gain


class Finals:
    """What can be added to an answer from the other slots and from the tokens that follow."""

    def __init__(self, *, gain: Tensor, checkpoint: Checkpoint, ids: Sequence[int], rows: Sequence[int]) -> None:
        self._gain = 1 + gain if checkpoint.adds_one else gain
        self._of = checkpoint
        self._head = Head(checkpoint.head, ids, rows) if checkpoint.head is not None else None

    def __call__(self, slot: int, states: Mapping[int, Tensor], told: Told) -> Told:
        """Return the answer with what is known of its norm and its layer."""
        if told.answer == "after_final_norm":
            return self._after(slot, states, told)
        return self._before(slot, states, told) if told.answer == "other" else told

    def _after(self, slot: int, states: Mapping[int, Tensor], told: Told) -> Told:
        for k, x in states.items():
            if k != slot and self._differs(x, states[slot]) <= SAME:
                told = replace(told, evidence=(*told.evidence, f"it is slot {k}, normed"))
        return self._with_prediction(told, states[slot])

    def _before(self, slot: int, states: Mapping[int, Tensor], told: Told) -> Told:
        for k, x in states.items():
            if k != slot and self._differs(states[slot], x) <= SAME:
                told = replace(
                    told,
                    answer="before_final_norm",
                    sentence=f"the state before the final norm: slot {k} is this one, normed",
                    evidence=told.evidence[:1],
                    open="",
                )
        return self._with_prediction(told, rms_normed(states[slot], self._gain, self._of.eps))

    def _differs(self, state: Tensor, normed: Tensor) -> float:
        error = (rms_normed(state, self._gain, self._of.eps) - normed).norm(dim=1) / normed.norm(dim=1).clamp_min(1e-30)
        return float(error.median())

    def _with_prediction(self, told: Told, normed: Tensor) -> Told:
        if self._head is None:
            return replace(told, evidence=(*told.evidence, f"lm_head was not asked: {self._of.no_head}"))
        found = self._head.prediction(normed)
        if found is None:
            return told
        evidence = (*told.evidence, f"through lm_head {found.words}; chance is 50%")
        # A tied head predicts the embedding of the next token as well as any last state does.
        if not found.good or self._of.head is self._of.embedding:
            return replace(told, evidence=evidence)
        if told.answer == "other":
            sentence = "before the final norm: the last state, or one of the last"
            left = "how many layers from the last needs the model: run the contract"
            return replace(told, answer="before_final_norm", sentence=sentence, evidence=evidence, open=left)
        return replace(told, evidence=evidence)
