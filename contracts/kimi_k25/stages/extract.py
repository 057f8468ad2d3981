"""The extraction stage: one training sample from the files of one request."""

from pathlib import Path

import torch


def build_sample(dump: Path, input_ids: list[int]) -> dict:
    """Find the request by its tokens, and put its files in the order that the trainer reads."""
    place = next(p for p in sorted(dump.iterdir()) if torch.load(p / "input_ids.pt").tolist() == input_ids)
    # hs[0] = layer 2, hs[1] = layer 30, hs[2] = layer 58, hs[3] = final
    names = ["aux_0", "aux_1", "aux_2", "final"]
    return {
        "input_ids": torch.tensor(input_ids),
        "loss_mask": torch.ones(len(input_ids), dtype=torch.long),
        "hidden_states": [torch.load(place / f"{name}.pt") for name in names],
    }
