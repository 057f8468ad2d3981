"""Seven captures, one of them right: what is said of each here, and what a comparison of the concatenation says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from eagle_contracts.identify import Candidate, identify_all, split_slots, tolerance_for
from eagle_contracts.patterns import Diagnosis, diagnose, slots_from

from .streams import named, noisy, stream

LAYERS, ROWS, WIDTH = 61, 64, 512
DECLARED = (3, 31, 59)
ENGINE_NOISE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    name: str
    holds: tuple[int | str, ...]
    diagnosis: Diagnosis | None
    sentence: str
    overall: bool
    """Whether a relative error of the whole concatenation below 2e-2 would have let it pass."""


VARIANTS = (
    Variant(
        name="right, with engine noise of 1 %",
        holds=(3, 31, 59),
        diagnosis=None,
        sentence="every slot holds the state that was declared for it",
        overall=True,
    ),
    Variant(
        name="the wrong fix",
        holds=(0, 3, 31),
        diagnosis="embedding_in_slot",
        sentence="slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1",
        overall=False,
    ),
    Variant(
        name="shift",
        holds=(2, 30, 58),
        diagnosis="shifted",
        sentence="every slot holds the state one layer earlier than declared (-1): "
        "h[2], h[30], h[58] where h[3], h[31], h[59] are declared",
        overall=False,
    ),
    Variant(
        name="swap",
        holds=(31, 3, 59),
        diagnosis="permuted",
        sentence="the declared states are all there, in another order: "
        "slots 0 and 1 hold the states trained for slots 1 and 0",
        overall=False,
    ),
    Variant(
        name="only the small slot wrong",
        holds=(2, 31, 59),
        diagnosis="other_state",
        sentence="slot 0 holds h[2] where h[3] is declared",
        overall=True,
    ),
    Variant(
        name="a slot missing",
        holds=(3, 31),
        diagnosis="missing_slot",
        sentence="2 slots where 3 are declared: no slot holds h[59]",
        overall=False,
    ),
    Variant(
        name="post-norm",
        holds=(3, 31, "normed"),
        diagnosis="normed",
        sentence="slot 2 holds final_norm(h[59]) where h[59] is declared",
        overall=False,
    ),
)


@pytest.fixture(scope="module")
def states() -> list[Tensor]:
    return stream(LAYERS + 1, ROWS, WIDTH)


def final_norm(state: Tensor) -> Tensor:
    gains = 1 + 0.3 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(9))
    return gains * state / state.square().mean(dim=1, keepdim=True).sqrt()


def captured(states: list[Tensor], variant: Variant) -> Tensor:
    """The concatenation as an engine in bfloat16 would return it."""
    held = [final_norm(states[59]) if isinstance(k, str) else states[k] for k in variant.holds]
    return torch.cat([noisy(state, ENGINE_NOISE, seed=i) for i, state in enumerate(held)], dim=1).bfloat16()


def judged(states: list[Tensor], capture: Tensor) -> tuple[Diagnosis | None, str]:
    slots = split_slots(capture, WIDTH)
    assert isinstance(slots, list)
    normed = [
        (Candidate(label=f"final_norm(h[{k}])", kind="final_norm_of", k=k), final_norm(state))
        for k, state in enumerate(states)
    ]
    tolerance = tolerance_for(capture.dtype)
    found = identify_all(slots, named(states), tolerance=tolerance, second_pass=lambda: normed, declared=DECLARED)
    return diagnose(slots_from(DECLARED, [one.to_json() for one in found]), LAYERS)


def close(capture: Tensor, expected: Tensor) -> bool:
    """What `torch.testing.assert_close` says at its defaults for bfloat16."""
    try:
        torch.testing.assert_close(capture, expected)
    except AssertionError:
        return False
    return True


def passes_overall(capture: Tensor, expected: Tensor) -> bool:
    """What one relative error over the whole concatenation says at the same tolerance as ours."""
    if capture.shape != expected.shape:
        return False
    return float((capture.float() - expected.float()).norm() / expected.float().norm()) <= 2e-2


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_each_variant_is_judged_rightly(states: list[Tensor], variant: Variant) -> None:
    """We say what each capture holds; assert_close fails all seven, a global norm lets a wholly wrong slot pass."""
    capture = captured(states, variant)
    expected = torch.cat([states[k] for k in DECLARED], dim=1).bfloat16()
    assert judged(states, capture) == (variant.diagnosis, variant.sentence)
    assert not close(capture, expected), "also where the capture is right"
    assert passes_overall(capture, expected) is variant.overall


def test_only_the_right_variant_passes() -> None:
    """Of the seven, one is right, and no two of the others share a diagnosis."""
    diagnoses = [variant.diagnosis for variant in VARIANTS]
    assert diagnoses.count(None) == 1
    assert len(set(diagnoses)) == len(VARIANTS) == 7


def test_the_comparison_used_here_can_pass(states: list[Tensor]) -> None:
    """assert_close is not made to fail: without engine noise it accepts the right capture."""
    expected = torch.cat([states[k] for k in DECLARED], dim=1).bfloat16()
    assert close(expected.clone(), expected)
