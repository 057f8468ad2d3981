"""Concatenations of a user's own, each with one fault."""

from typing import Any

import torch


def with_the_last(data: dict[str, Any]) -> dict[str, Any]:
    """The last tensor, which is what the draft learns to predict, left in."""
    return _joined(data, data["hidden_states"], dim=-1)


def along_tokens(data: dict[str, Any]) -> dict[str, Any]:
    """Joined along the token axis."""
    return _joined(data, data["hidden_states"][:-1], dim=0)


def swapped(data: dict[str, Any]) -> dict[str, Any]:
    """Two slots exchanged."""
    one, other, *rest = data["hidden_states"][:-1]
    return _joined(data, [other, one, *rest], dim=-1)


def _joined(data: dict[str, Any], parts: list[torch.Tensor], dim: int) -> dict[str, Any]:
    return {
        "hidden_states": torch.cat(parts, dim=dim),
        "verifier_last_hidden_states": data["hidden_states"][-1],
        "input_ids": data["input_ids"],
        "loss_mask": data["loss_mask"],
    }
