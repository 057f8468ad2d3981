"""Identification: which state is in the slot, and when it does not say."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eagle_contracts import identify as module
from eagle_contracts import sketch
from eagle_contracts.identify import (
    Candidate,
    Identification,
    Indivisible,
    NonFinite,
    Reference,
    identify,
    identify_all,
    split_slots,
    tolerance_for,
)

from .streams import named, noisy, stream

SHAPES = [(12, 48), (64, 1024)]  # read whole, and by a sketch first


def held(slot: Tensor, states: list[Tensor], tolerance: float = 1e-4, **more: Any) -> tuple[str, str | None]:
    found = identify(slot, named(states), tolerance=tolerance, **more)
    return found.outcome, found.best.label if found.best else None


def brute(slot: Tensor, states: list[Tensor]) -> list[float]:
    """Every state's error, by the definition and in float64."""
    x = slot.double()
    rows = [
        torch.linalg.vector_norm(x - h.double(), dim=1) / torch.linalg.vector_norm(h.double(), dim=1) for h in states
    ]
    return [float(row.median()) for row in rows]


def orthogonal(rows: int, width: int, seed: int) -> Tensor:
    """Rows of norm 1 in the upper half of the coordinates; the lower half is free for the states themselves."""
    out = torch.zeros(rows, width)
    out[:, width // 2 :] = torch.randn(rows, width - width // 2, generator=torch.Generator().manual_seed(seed))
    unit: Tensor = out / torch.linalg.vector_norm(out, dim=1, keepdim=True)
    return unit


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [0, 1, 7, 15])
def test_each_state_is_recognised(shape: tuple[int, int], k: int) -> None:
    """A slot that holds h[k] up to float32 noise is identified as h[k], with the evidence of both candidates."""
    states = stream(16, *shape)
    found = identify(noisy(states[k], 1e-6), named(states), tolerance=1e-4, declared=k)
    assert found.outcome == "identified"
    assert found.best and found.second and found.declared
    assert (found.best.k, found.declared.k) == (k, k)
    assert found.best.error == pytest.approx(1e-6, rel=0.1)
    assert found.second.error > 0.2
    assert found.tolerance_would_help


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slot_that_holds_another_state_names_it(shape: tuple[int, int]) -> None:
    """Declared h[9], holds h[4]: h[4] is named, and the number shows that no tolerance would be right."""
    states = stream(16, *shape)
    found = identify(noisy(states[4], 1e-6), named(states), tolerance=1e-4, declared=9)
    errors = brute(noisy(states[4], 1e-6), states)
    assert (found.outcome, found.best and found.best.label) == ("identified", "h[4]")
    assert found.second and found.second.exact
    assert found.second.error == pytest.approx(sorted(errors)[1], rel=1e-4)
    assert found.smallest_tolerance == pytest.approx(errors[9], rel=1e-4)
    assert not found.tolerance_would_help


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sink_token_decides_nothing(shape: tuple[int, int]) -> None:
    """Two rows a thousand times larger, wrong by half: the state is still identified, and the rows are reported."""
    states = stream(16, *shape)
    for state in states:
        state[[0, 5]] *= 1000.0
    slot = noisy(states[7], 1e-3)
    slot[[0, 5]] = noisy(states[7], 0.5, seed=3)[[0, 5]]
    found = identify(slot, named(states), tolerance=2e-2, declared=7)
    assert (found.outcome, found.best and found.best.k) == ("identified", 7)
    assert found.sink_rows == (0, 5)
    assert found.worst_row and found.worst_row[0] in (0, 5)
    assert found.worst_row[1] == pytest.approx(0.5, rel=1e-3)
    overall = float((slot - states[7]).norm() / states[7].norm())
    assert overall > 0.4, "a global norm would have called this slot wrong"


def test_at_most_eight_sink_rows_are_listed() -> None:
    """A dump with many sinks lists the first eight."""
    states = stream(3, 40, 32)
    for state in states:
        state[:12] *= 1000.0
    assert identify(states[1], named(states), tolerance=1e-4).sink_rows == tuple(range(8))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("ratio", "outcome"), [(5.2, "identified"), (4.8, "inconclusive")])
def test_close_neighbours_turn_inconclusive_at_a_factor_of_five(
    shape: tuple[int, int], ratio: float, outcome: str
) -> None:
    """With engine noise of 1 %, a neighbour 5.2 times as far still leaves an answer, and 4.8 times as far does not."""
    rows, width = shape
    base = torch.zeros(rows, width)
    base[:, : width // 2] = torch.randn(rows, width // 2, generator=torch.Generator().manual_seed(0))
    base /= torch.linalg.vector_norm(base, dim=1, keepdim=True)
    noise, apart = orthogonal(rows, width, 1), orthogonal(rows, width, 2)
    apart -= (apart * noise).sum(1, keepdim=True) * noise
    far = 0.01 * (ratio**2 - 1) ** 0.5 * apart / torch.linalg.vector_norm(apart, dim=1, keepdim=True)
    states = [base, base + far, 3 * base]
    found = identify(base + 0.01 * noise, named(states), tolerance=2e-2, declared=0)
    assert found.best and found.second
    assert found.second.error / found.best.error == pytest.approx(ratio, rel=2e-3)
    assert (found.outcome, found.best.k, found.second.k) == (outcome, 0, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("step", "outcome"), [(0.02, "identified"), (0.004, "inconclusive")])
def test_bfloat16_neighbours(shape: tuple[int, int], step: float, outcome: str) -> None:
    """Rounding to bfloat16 costs 0.17 %: neighbours 2 % apart are told apart in it, neighbours 0.4 % apart are not."""
    states = [stream(1, *shape)[0]]
    for k in range(1, 8):
        states.append(noisy(states[-1], step, seed=k))
    slot = states[4].bfloat16()
    found = identify(slot, named(states), tolerance=tolerance_for(slot.dtype), declared=4)
    assert (found.outcome, found.best and found.best.k) == (outcome, 4)
    assert found.best and found.best.error == pytest.approx(0.0017, rel=0.1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("error", "outcome"), [(0.0199, "identified"), (0.0201, "unknown")])
def test_the_tolerance_is_a_line(shape: tuple[int, int], error: float, outcome: str) -> None:
    """Just within tolerance is identified, just beyond it is unknown, and the number that would pass is given."""
    states = stream(16, *shape)
    found = identify(noisy(states[7], error), named(states), tolerance=2e-2, declared=7)
    assert found.outcome == outcome
    assert found.smallest_tolerance == pytest.approx(error, rel=1e-3)
    assert found.tolerance_would_help


@pytest.mark.parametrize("shape", SHAPES)
def test_two_equal_candidates_are_never_told_apart(shape: tuple[int, int]) -> None:
    """A twin with an identity layer: both names are given, even where the fit is perfect."""
    states = stream(6, *shape)
    states[3] = states[2].clone()
    found = identify(states[2], named(states), tolerance=1e-4, declared=2)
    assert found.outcome == "inconclusive"
    assert {found.best and found.best.label, found.second and found.second.label} == {"h[2]", "h[3]"}
    assert not found.tolerance_would_help


@pytest.mark.parametrize("shape", SHAPES)
def test_the_second_pass_is_made_only_if_nothing_fits(shape: tuple[int, int]) -> None:
    """Sub-layer outputs are computed for a slot that no state explains, and for no other."""
    states = stream(6, *shape)
    asked: list[int] = []
    output = states[3] - states[2]

    def second_pass() -> list[tuple[Candidate, Tensor]]:
        asked.append(1)
        return [(Candidate(label="mlp output of layer 2", kind="sublayer", k=2), output)]

    assert held(states[3], states, second_pass=second_pass) == ("identified", "h[3]")
    assert asked == []
    slots = [noisy(output, 1e-6), noisy(output, 1e-6, seed=2), states[1]]
    found = identify_all(slots, named(states), tolerance=1e-4, second_pass=second_pass, declared=[3, 3, 1])
    assert [one.best.label for one in found if one.best] == ["mlp output of layer 2"] * 2 + ["h[1]"]
    assert [one.outcome for one in found] == ["identified"] * 3
    assert asked == [1], "several slots share one second pass"


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_is_unknown_after_both_passes(shape: tuple[int, int]) -> None:
    """A slot that is nothing stays unknown, with the nearest candidate named."""
    states = stream(6, *shape)
    other = [(Candidate(label="mlp output of layer 2", kind="sublayer", k=2), states[3] - states[2])]
    found = identify(torch.randn(shape), named(states), tolerance=2e-2, second_pass=other, declared=3)
    assert found.outcome == "unknown"
    assert found.best and found.best.error > 0.5
    assert len(found.errors) == 7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_slot_that_is_not_finite_is_not_compared(shape: tuple[int, int], value: float) -> None:
    """One NaN or infinity is an outcome with its place, never a comparison that happens to be false."""
    states = stream(6, *shape)
    slot = states[2].clone()
    slot[3, 5] = slot[7, 1] = value
    found = identify(slot, named(states), tolerance=1e-4, declared=2)
    assert found.outcome == "non_finite"
    assert found.non_finite == NonFinite(where="slot", count=2, row=3, column=5)
    assert found.best is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_declared_state_that_is_not_finite_is_named(shape: tuple[int, int], value: float) -> None:
    """A reference with a NaN is the reference's fault, and is said so."""
    states = stream(6, *shape)
    slot = states[2].clone()
    states[2][4, 6] = value
    found = identify(slot, named(states), tolerance=1e-4, declared=2)
    assert found.outcome == "non_finite"
    assert found.non_finite == NonFinite(where="h[2]", count=1, row=4, column=6)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_another_candidate_that_are_not_finite_are_seen(shape: tuple[int, int]) -> None:
    """States that overflowed later in the stream are reported too, also where only a sample of them is read."""
    states = stream(6, *shape)
    states[5][:] = float("inf")
    found = identify(states[2], named(states), tolerance=1e-4, declared=2)
    assert found.non_finite == NonFinite(where="h[5]", count=shape[0] * shape[1], row=0, column=0)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_whose_squares_leave_float32_are_compared_all_the_same(shape: tuple[int, int], scale: float) -> None:
    """Huge and tiny values are finite, so they are compared."""
    states = [state * scale for state in stream(6, *shape)]
    assert held(noisy(stream(6, *shape)[2], 1e-6) * scale, states, declared=2) == ("identified", "h[2]")


def test_shapes_that_cannot_be_compared_are_outcomes() -> None:
    """Another width or another number of rows is said, with both shapes; it is no exception."""
    states = named(stream(4, 12, 48))
    wide = identify(torch.randn(12, 96), states, tolerance=1e-4, declared=2)
    assert (wide.outcome, wide.shape, wide.expected_shape) == ("wrong_width", (12, 96), (12, 48))
    short = identify(torch.randn(11, 48), states, tolerance=1e-4, declared=2)
    assert (short.outcome, short.shape, short.expected_shape) == ("wrong_rows", (11, 48), (12, 48))
    empty = named(stream(4, 0, 48))
    assert identify(torch.randn(0, 48), empty, tolerance=1e-4).outcome == "wrong_rows"


def test_padding_rows_are_errors_only_where_they_differ() -> None:
    """A row that is zero on both sides agrees; one that is zero in the reference only is wrong by 1."""
    states = stream(4, 12, 48)
    for state in states:
        state[10:] = 0.0
    slot = states[2].clone()
    slot[11] = 1.0
    found = identify(slot, named(states), tolerance=1e-4, declared=2)
    assert (found.outcome, found.best and found.best.error) == ("identified", 0.0)
    assert found.worst_row == (11, 1.0)


def test_one_candidate_has_no_rival() -> None:
    """With a single candidate within tolerance there is nothing to be five times better than."""
    state = stream(1, 12, 48)
    found = identify(state[0], named(state), tolerance=1e-4)
    assert (found.outcome, found.second) == ("identified", None)


def test_the_normed_final_can_be_declared() -> None:
    """`final_normed` is a candidate by its kind and not by a number."""
    states = stream(4, 12, 48)
    normed = (Candidate(label="final_normed", kind="final_normed"), torch.nn.functional.normalize(states[3], dim=1))
    found = identify(normed[1], [*named(states), normed], tolerance=1e-4, declared="final_normed")
    assert found.declared == found.best
    assert found.best and found.best.kind == "final_normed"


def test_both_sides_show_first_values_and_norms() -> None:
    """The report carries what a person compares by eye, for the slot, the declared state and the nearest one."""
    states = [torch.full((4, 6), float(k + 1)) for k in range(4)]
    found = identify(states[1], named(states), tolerance=1e-4, declared=2)
    assert found.slot_side and found.best_side and found.declared_side
    assert found.slot_side.first_values == (2.0,) * 5
    assert found.slot_side == found.best_side
    assert found.declared_side.first_values == (3.0,) * 5
    assert found.declared_side.median_row_norm == pytest.approx(3 * 6**0.5)
    assert found.declared_side.frobenius == pytest.approx(3 * 24**0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_identification_survives_json(shape: tuple[int, int]) -> None:
    """What a worker writes is what the host reads, in strict JSON."""
    states = stream(6, *shape)
    bad = states[2].clone()
    bad[0, 0] = float("nan")
    for slot in (states[2], states[4], torch.randn(shape), bad, torch.randn(3, 5)):
        found = identify(slot, named(states), tolerance=1e-4, declared=2)
        text = json.dumps(found.to_json(), allow_nan=False)
        assert Identification.from_json(json.loads(text)) == found
        assert json.loads(text)["smallest_tolerance"] == found.smallest_tolerance


def test_a_concatenation_is_cut_into_slots() -> None:
    """Slots are compared one by one, so the concatenation is cut, or it is said how it does not divide."""
    slots = split_slots(torch.arange(12.0).view(2, 6), 2)
    assert isinstance(slots, list)
    assert [slot.tolist() for slot in slots] == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]
    assert split_slots(torch.zeros(2, 7), 3) == Indivisible(total=7, width=3, whole=2, rest=1)
    assert split_slots(torch.zeros(2, 0), 3) == Indivisible(total=0, width=3, whole=0, rest=0)


def test_slots_cut_from_a_concatenation_are_identified() -> None:
    """The cut slots are views with the row stride of the whole, which the sketch must read rightly."""
    states = stream(16, 64, 1024)
    slots = split_slots(torch.cat([noisy(states[k], 1e-6) for k in (3, 8, 14)], dim=1), 1024)
    assert isinstance(slots, list)
    found = identify_all(slots, named(states), tolerance=1e-4, declared=[3, 8])
    assert [one.best.k for one in found if one.best] == [3, 8, 14]
    assert [one.declared is None for one in found] == [False, False, True]


def test_default_tolerances() -> None:
    """Each known type has a measured tolerance; another type is refused rather than guessed."""
    types = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    assert [tolerance_for(dtype) for dtype in types] == [1e-4, 1e-4, 2e-2, 2e-2]
    with pytest.raises(ValueError) as caught:
        tolerance_for(torch.int8)
    assert str(caught.value) == ("no default tolerance for torch.int8; expected float32, float64, bfloat16 or float16")


def test_misuse_is_refused_in_words() -> None:
    """What only a programmer can get wrong raises, and says what was expected."""
    states = named(stream(3, 12, 48))
    other = [(Candidate(label="mlp output of layer 1", kind="sublayer", k=1), torch.randn(12, 4))]

    def words(*args: Any, **more: Any) -> str:
        with pytest.raises(ValueError) as caught:
            identify(*args, tolerance=1e-4, **more)
        return str(caught.value)

    assert words(torch.randn(12, 48), []) == "no candidates to compare with"
    assert words(torch.randn(12), states) == "expected a tensor [tokens, width], found [12]"
    assert words(torch.randn(12, 48), states, declared=7) == "the declared state 7 is not among the candidates"
    message = "candidate mlp output of layer 1 is [12, 4], expected [12, 48]"
    assert words(torch.randn(12, 48), [*states, *other]) == message
    assert words(torch.randn(12, 48), states, second_pass=other) == message


def test_a_state_that_fits_is_found_without_comparing_the_others() -> None:
    """The fast road: one exact comparison, and the runner-up says that its error is an estimate, which is close."""
    states = stream(62, 64, 1024)
    found = identify(noisy(states[31], 1e-6), named(states), tolerance=1e-4, declared=31)
    assert [label for label, _ in found.errors] == ["h[31]"]
    assert found.second and not found.second.exact
    assert found.second.k in (30, 32)
    assert found.second.error == pytest.approx(sorted(brute(states[31], states))[1], rel=0.1)


@pytest.mark.parametrize("channel", [0, 517, 1023])
def test_a_difference_in_one_huge_channel_does_not_blind_the_sketch(channel: int) -> None:
    """Neighbours that differ in a single sink channel look equal to the sample, and are told apart all the same."""
    base = stream(1, 64, 1024)[0]
    states = []
    for k in range(12):
        state = base.clone()
        state[:, channel] = 3000.0 * (1 + 0.2 * k)
        states.append(state)
    for k in (0, 5, 11):
        for declared in (k, 3, None):
            found = identify(noisy(states[k], 1e-6), named(states), tolerance=1e-4, declared=declared)
            assert (found.outcome, found.best and found.best.k) == ("identified", k)


def test_a_neighbour_hidden_in_one_channel_still_makes_it_inconclusive() -> None:
    """A rival that only a full comparison can see is never passed over."""
    states = stream(8, 64, 1024)
    rival = states[5].clone()
    rival[:, 77] *= 1.001
    states.append(rival)
    found = identify(noisy(states[5], 1e-3), named(states), tolerance=2e-2, declared=5)
    assert found.outcome == "inconclusive"
    assert {found.best and found.best.k, found.second and found.second.k} == {5, 8}


def test_a_rival_that_is_near_in_just_over_half_of_the_rows_is_not_passed_over() -> None:
    """The median decides, so a rival may be far off in all other rows and still be one."""
    states = stream(8, 64, 1024)
    rival = noisy(states[5], 2e-3, seed=7)
    rival[33:] = states[0][33:]
    found = identify(noisy(states[5], 1e-3), named([*states, rival]), tolerance=2e-2, declared=5)
    assert found.outcome == "inconclusive"
    assert {found.best and found.best.k, found.second and found.second.k} == {5, 8}


def test_without_a_clear_answer_everything_is_compared() -> None:
    """Just beyond tolerance, the far states are compared too, so that the report of a failure rests on no sample."""
    states = stream(20, 64, 1024, growth=1.5)
    found = identify(noisy(states[7], 0.03), named(states), tolerance=2e-2, declared=7)
    assert found.outcome == "unknown"
    assert len(found.errors) == 20
    assert found.second and found.second.exact


@pytest.mark.parametrize("width", [257, 264, 300, 896])
def test_widths_that_no_block_divides(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample covers every coordinate of any width with equal chance."""
    states = stream(8, 40, width)
    assert held(noisy(states[3], 1e-6), states) == ("identified", "h[3]")
    monkeypatch.setattr(sketch, "SKETCH_ROWS", ((8000, 8000),))
    rows, runs, block = sketch.sample.__wrapped__(8000, width, torch.device("cpu"))
    counts = torch.bincount(runs.remainder(width // block))
    assert rows == list(range(8000))
    assert len(counts) == width // block
    assert counts.min() > 0.5 * counts.float().mean()


def _chance(rows: int, sampled: int) -> float:
    """How likely a candidate within reach is passed over at worst: its rows above the median all look far.

    The others look far with chance 1/SAFETY^2, independently; how many of them are sampled is hypergeometric.
    """
    within, far = (rows + 1) // 2, 1 / sketch.SAFETY**2
    needed = sampled - sampled // 16
    total = 0.0
    for drawn in range(max(0, sampled - (rows - within)), min(sampled, within) + 1):
        share = math.comb(within, drawn) * math.comb(rows - within, sampled - drawn) / math.comb(rows, sampled)
        least = max(0, needed - (sampled - drawn))
        total += share * sum(math.comb(drawn, k) * far**k * (1 - far) ** (drawn - k) for k in range(least, drawn + 1))
    return total


@pytest.mark.parametrize("rows", [32, 33, 40, 48, 63, 64, 65, 96, 256, 4096, 100_000])
def test_the_chance_to_pass_over_a_candidate_within_reach_is_what_the_module_says(rows: int) -> None:
    """Whatever the number of rows, the sampled ones are enough for a chance below 6e-9, in the worst case."""
    drawn = sketch.sample(rows, 7168, torch.device("cpu")).rows
    assert len(set(drawn)) == len(drawn) and set(drawn) <= set(range(rows))
    assert _chance(rows, len(drawn)) < 6e-9


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    step=st.sampled_from([1e-3, 1e-2, 0.1, 0.5]),
    noise=st.sampled_from([0.0, 1e-6, 1e-3, 1e-2, 0.1]),
    k=st.integers(0, 9),
    declared=st.one_of(st.none(), st.integers(0, 9)),
    spread=st.sampled_from(["even", "channel", "rows"]),
)
def test_the_sketch_never_changes_the_answer(
    seed: int, step: float, noise: float, k: int, declared: int | None, spread: str
) -> None:
    """Whatever the stream looks like, reading a sample first gives the outcome and the state that reading all does."""
    generator = torch.Generator().manual_seed(seed)
    states = [torch.randn(48, 512, generator=generator)]
    for _ in range(9):
        part = step * torch.randn(48, 512, generator=generator)
        if spread == "channel":
            part[:, 1:] = 0.0
        if spread == "rows":
            part[::3] *= 100.0
        states.append(states[-1] + part)
    slot = noisy(states[k], noise, seed=seed)
    found = identify(slot, named(states), tolerance=2e-2, declared=declared)
    errors = brute(slot, states)
    order = sorted(range(10), key=errors.__getitem__)
    first, second = errors[order[0]], errors[order[1]]
    clear = first < second and 5 * first <= second
    expected = "unknown" if first > 2e-2 else "identified" if clear else "inconclusive"
    if abs(5 * first - second) > 1e-3 * second and abs(first - 2e-2) > 1e-5:
        assert found.outcome == expected
    if clear:
        assert found.best and found.best.k == order[0]
    if found.outcome != "identified":
        assert len(found.errors) == 10, "without a clear answer everything is compared"


def test_the_sample_bounds_every_error_from_below() -> None:
    """No candidate within reach is passed over, whichever reach is asked for."""
    states = stream(40, 64, 1024, growth=1.02)
    slot = noisy(states[20], 5e-3)
    errors = brute(slot, states)
    reference = Reference(named(states))
    search = module._begin(slot, reference, 2e-2, 20)
    assert isinstance(search, module._Search)
    read = reference.sketch()
    assert read
    module._look([search], *read)
    kept = set(search.exact)
    reach = module.MARGIN * search.exact[20].error
    assert {index for index, error in enumerate(errors) if error <= reach} <= kept
    assert len(kept) < 20, "and far ones are passed over"
