"""Extraction stages, each with one fault."""

from pathlib import Path
from typing import Any

import torch
from extract import of, sample  # type: ignore[import-not-found]


def swapped(dump: Path, input_ids: list[int]) -> Any:
    """Two slots exchanged."""
    return sample(of(dump, input_ids), input_ids, ("aux_1", "aux_0", "aux_2", "final"))


def by_arrival(dump: Path, request: int, input_ids: list[int]) -> Any:
    """The request's number taken for its folder's: right until requests arrive in another order."""
    return sample(dump / f"request_{request}", input_ids)


def by_length(dump: Path, input_ids: list[int]) -> Any:
    """The first request of that length: another one's files, with the right number of rows."""
    places = sorted(dump.iterdir())
    return sample(next(p for p in places if len(torch.load(p / "input_ids.pt")) == len(input_ids)), input_ids)


def in_bfloat16(dump: Path, input_ids: list[int]) -> Any:
    """Precision lost on the way."""
    made = sample(of(dump, input_ids), input_ids)
    return {**made, "hidden_states": [tensor.bfloat16() for tensor in made["hidden_states"]]}
