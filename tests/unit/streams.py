"""Synthetic residual streams: what identification has to tell apart, without a model."""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_contracts.identify import Candidate


def stream(states: int, rows: int, width: int, *, growth: float = 1.09, seed: int = 0) -> list[Tensor]:
    """States whose row norms grow by `growth` a layer, each layer adding a part that is orthogonal on average."""
    generator = torch.Generator().manual_seed(seed)
    out = [torch.randn(rows, width, generator=generator)]
    step = (growth**2 - 1) ** 0.5
    for k in range(1, states):
        out.append(out[-1] + step * growth ** (k - 1) * torch.randn(rows, width, generator=generator))
    return out


def named(states: list[Tensor]) -> list[tuple[Candidate, Tensor]]:
    return [(Candidate(label=f"h[{k}]", kind="state", k=k), state) for k, state in enumerate(states)]


def noisy(state: Tensor, error: float, seed: int = 1) -> Tensor:
    """The state with noise whose relative L2 error is exactly `error` in every row."""
    noise = torch.randn(state.shape, generator=torch.Generator().manual_seed(seed))
    size = torch.linalg.vector_norm(state, dim=1, keepdim=True) / torch.linalg.vector_norm(noise, dim=1, keepdim=True)
    out: Tensor = state + error * size * noise
    return out
