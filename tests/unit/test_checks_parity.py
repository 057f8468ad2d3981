"""`same`: what training gave and what serving gives, slot by slot."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_contracts.spec.errors import SpecError

from .observations import check, identified, observation, said

CLAIM = {"slots": {"hidden_states": [3, 31, 59]}}
HERE = "serving against training: "


def sides(
    train: tuple[Any, ...], serve: tuple[Any, ...], *errors: float | None, dtype: str = "float32"
) -> list[tuple[str | None, str]]:
    both = {"train": [identified(one) for one in train], "serve": [identified(one) for one in serve]}
    between = [{"error": error, "dtypes": [dtype, "float32"]} for error in errors]
    return said("same", CLAIM, observation(sides=both, between=between))


def test_equal_sides() -> None:
    """Equal values are enough, whatever they are called: the claim is other contracts' business."""
    assert sides((3, 31, 59), (3, 31, 59), 0.0, 1e-6, 9e-5) == []
    assert sides((2, None, 58), (2, None, 58), 0.0, 0.0, 0.0) == []


def test_fewer_bits_are_allowed_a_larger_error() -> None:
    """A side in bfloat16 is compared as bfloat16 allows, and no further."""
    assert sides((3, 31, 59), (3, 31, 59), 1e-2, 1e-2, 1e-2, dtype="bfloat16") == []
    assert sides((3, 31, 59), (3, 31, 59), 3e-2, 0.0, 0.0, dtype="bfloat16") != []


def test_two_sides_with_fewer_bits_may_each_be_off() -> None:
    """Two bfloat16 sides, each within its tolerance of the state, are within twice that of each other."""
    held = [identified(3), identified(31), identified(59)]
    for error, diagnoses in ((3.9e-2, []), (4.1e-2, ["altered"])):
        between = [{"error": error, "dtypes": ["bfloat16", "bfloat16"]}] * 3
        seen = observation(sides={"train": held, "serve": held}, between=between)
        assert [diagnosis for diagnosis, _ in said("same", CLAIM, seen)] == diagnoses


@pytest.mark.parametrize(
    ("serve", "diagnosis", "sentence"),
    [
        (
            (2, 30, 58),
            "shifted",
            "every slot holds the state one layer earlier than in training (-1): h[2], h[30], h[58] where training "
            "holds h[3], h[31], h[59]",
        ),
        (
            (0, 3, 31),
            "embedding_in_slot",
            "slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1",
        ),
        (
            (31, 3, 59),
            "permuted",
            "training's states are all there, in another order: slots 0 and 1 hold the states trained for slots 1 "
            "and 0",
        ),
    ],
)
def test_serving_differs_from_training(serve: tuple[int, ...], diagnosis: str, sentence: str) -> None:
    """The patterns are those of a capture, with training in the place of the claim."""
    assert sides((3, 31, 59), serve, 0.5, 0.5, 0.5) == [(diagnosis, HERE + sentence)]


def test_one_side_has_fewer_slots() -> None:
    """A slot that training has and serving has not."""
    assert sides((3, 31, 59), (3, 31), 0.0, 0.0) == [
        ("missing_slot", f"{HERE}2 slots where training holds 3: no slot holds h[59]")
    ]


def test_both_sides_have_another_number_of_slots() -> None:
    """They agree with each other, and not with the number that is claimed."""
    assert sides((3, 31), (3, 31), 0.0, 0.0) == [("missing_slot", f"{HERE}both sides have 2 slots where 3 are claimed")]
    assert sides((3, 31, 59, 61), (3, 31, 59, 61), 0.0, 0.0, 0.0, 0.0) == [
        ("wrong_width", f"{HERE}both sides have 4 slots where 3 are claimed")
    ]


def test_the_same_states_with_other_values() -> None:
    """Both hold the declared states, and one of them not closely enough."""
    assert sides((3, 31, 59), (3, 31, 59), 0.0, 1.5e-4, 0.0) == [
        ("altered", f"{HERE}every slot holds the same state, but the values differ (largest error 1.5e-04)")
    ]


def test_training_holds_no_plain_state() -> None:
    """Then serving has nothing to be named after, and the distance is told, or that there is none."""
    words = "and a slot of training is no plain state"
    assert sides((None, 31, 59), (3, 31, 59), 0.7, 0.0, 0.0) == [
        ("other_state", f"training and serving differ (largest error 7.0e-01), {words}")
    ]
    assert sides((None, 31, 59), (3, 31, 59), None, None, None) == [
        ("other_state", f"training and serving differ in their number of rows or slots, {words}")
    ]


def test_values_that_are_not_numbers_do_not_agree() -> None:
    """NaN is no small error."""
    assert sides((3, 31, 59), (3, 31, 59), float("nan"), 0.0, 0.0) != []


def test_same_takes_slots() -> None:
    """Anything else is a mistake at its place."""
    with pytest.raises(SpecError, match=r"same takes \{slots: TAPS\}"):
        check("same", {"hidden_states": [3]}, observation())
