"""What a check knows besides the promise and the observation."""

from __future__ import annotations

from dataclasses import dataclass

from eagle_contracts.real_draft import RealWidth
from eagle_contracts.spec.draft_config import Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The twin's numbers and the pipeline's claim.

    `layers` and `width` are the twin's depth and hidden size, `real_width` and `real_draft` the hidden sizes that the
    target's and the draft's configs have, `slots` how many taps are claimed, `requests` the token counts of the
    requests, `concatenated` the outputs that the contract promises to be a concatenation, `real_fc` how wide the real
    draft's `fc` is by its own files, `unread` the keys of the draft's config.json that say something to nobody, `dtype`
    the type that the engine computes in.
    """

    layers: int
    width: int
    real_width: int | None
    slots: int
    requests: tuple[int, ...]
    concatenated: tuple[str, ...] = ()
    real_draft: int | None = None
    real_fc: tuple[RealWidth, ...] = ()
    unread: tuple[Unread, ...] = ()
    dtype: str = "float32"

    @property
    def noise(self) -> float:
        """How far apart two right computations may be, relative, for the type alone; nothing in float32."""
        return 0.0 if self.dtype == "float32" else 2e-2
