"""The toy engine answers as a real adapter does."""

from __future__ import annotations

import json

import pytest
import torch

from eagle_contracts.identify import Candidate, identify
from eagle_contracts.observation import observation_from_json

from .toy.toy_engine import model


def test_the_toy_identifies_as_identification_does() -> None:
    """What the toy computes in plain Python is what `identify` finds for the same numbers in tensors."""
    stream = model.states()
    tensors = [torch.tensor(state) for state in stream]
    pairs = [(Candidate(label=model.label(k), kind="state", k=k), tensor) for k, tensor in enumerate(tensors)]
    real = identify(tensors[0], pairs, tolerance=model.TOLERANCE, declared=3).to_json()
    toy = model.identify(stream[0], stream, declared=3)
    assert toy.keys() == real.keys()
    for key in ("outcome", "tolerance", "shape", "expected_shape", "tolerance_would_help"):
        assert toy[key] == real[key], key
    for key in ("best", "second", "declared"):
        assert toy[key] == {**real[key], "error": pytest.approx(real[key]["error"])}, key
    for key in ("slot_side", "declared_side"):
        assert toy[key]["median_row_norm"] == pytest.approx(real[key]["median_row_norm"]), key


def test_the_toy_captures_in_layer_order() -> None:
    """Ids below the embedding are refused, ids beyond the last layer are skipped in silence, as engines do."""
    declared = [3, 5, 9]
    right, fewer, refused = (model.capture(ids, 1) for ids in ([8, 2, 4], [2, 4, 10], [-2, 2, 4]))
    assert isinstance(right, list) and isinstance(fewer, list) and isinstance(refused, dict)
    seen = observation_from_json(json.loads(json.dumps(model.seen(right, declared))))
    assert seen.states == ("h[3]", "h[5]", "h[9]")
    assert observation_from_json(model.seen(fewer, declared)).states == ("h[3]", "h[5]")
    assert observation_from_json(refused).refusal is not None
