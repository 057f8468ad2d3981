"""`order`, `concat`, `equals`, `width`, `unchanged_by`: what a stage made of the tensors before it."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_contracts.spec.errors import SpecError

from .observations import TOKENS, check, listed, observation, part, said, tensor

NAMES = ["aux_0", "aux_1", "aux_2"]
SAMPLE = {"hidden_states": [*NAMES, "final"]}
BATCH = {"hidden_states": NAMES}
OF_SLOTS = "slots x target"


def stage(*requests: dict[str, Any], **variants: list[dict[str, Any]]) -> Any:
    return observation(outputs=list(requests), variants=variants)


def sample(names: list[str], request: int = 0) -> dict[str, Any]:
    return {"hidden_states": listed(*(part(name, request) for name in names))}


def joined(*names: str, **changes: Any) -> dict[str, Any]:
    return {"hidden_states": tensor(*(part(name, **changes) for name in names))}


def ordered(*names: str, promise: Any = None) -> list[tuple[str | None, str]]:
    return said("order", promise or {"hidden_states": NAMES}, stage(sample(list(names))))


HEAD = "hidden_states of request 0: it holds"
WANTED = "where [aux_0, aux_1, aux_2] is declared"


def test_what_is_as_promised_gives_nothing() -> None:
    """Lists in order, a concatenation, one tensor, a width: all as declared."""
    requests = [sample(SAMPLE["hidden_states"], n) for n in range(3)]
    assert said("order", SAMPLE, stage(*requests)) == []
    batch = {**joined(*NAMES), "last": tensor(part("final"))}
    assert said("concat", BATCH, stage(batch)) == []
    assert said("equals", {"last": "final"}, stage(batch)) == []
    assert said("width", OF_SLOTS, stage(batch), concatenated=("hidden_states",)) == []
    assert said("width", {"last": "target"}, stage(batch)) == []


@pytest.mark.parametrize(
    ("names", "diagnosis", "sentence"),
    [
        (
            ("aux_1", "aux_0", "aux_2"),
            "permuted",
            f"{HEAD} [aux_1, aux_0, aux_2] {WANTED}: the same tensors in another order",
        ),
        (("aux_0", "aux_1"), "missing_slot", f"{HEAD} [aux_0, aux_1] {WANTED}: aux_2 is nowhere in it"),
        (("aux_0",), "missing_slot", f"{HEAD} [aux_0] {WANTED}: aux_1, aux_2 are nowhere in it"),
        (
            (*NAMES, "final"),
            "wrong_width",
            f"{HEAD} [aux_0, aux_1, aux_2, final] {WANTED}: 4 slots, and 3 are declared",
        ),
        (
            ("aux_0", "aux_0", "aux_2"),
            "duplicated",
            f"{HEAD} [aux_0, aux_0, aux_2] {WANTED}: aux_0 more than once, and aux_1 is nowhere in it",
        ),
        (("aux_0", "aux_1", "final"), "other_state", f"{HEAD} [aux_0, aux_1, final] {WANTED}"),
    ],
)
def test_another_order(names: tuple[str, ...], diagnosis: str, sentence: str) -> None:
    """Each way in which a list is not the one declared has its diagnosis."""
    assert ordered(*names) == [(diagnosis, sentence)]


def test_each_part_is_told() -> None:
    """Below the sentence stands what every part is, and how exactly."""
    [one] = check("order", {"hidden_states": ["aux_0"]}, stage(sample(["aux_1", "final"])))
    assert one.details == (
        "part 0: declared aux_0, holds aux_1 of request 0 (exact, error 0.0e+00; [11, 64] float32)",
        "part 1: declared nothing, holds final of request 0 (exact, error 0.0e+00; [11, 64] float32)",
    )


def test_a_part_that_nobody_knows() -> None:
    """A tensor that is no upstream tensor is a question mark."""
    odd = {"hidden_states": listed(part("aux_0", how="unknown"), part("aux_1"), part("aux_2"))}
    sentence = f"{HEAD} [?, aux_1, aux_2] {WANTED}; ? is no upstream tensor"
    assert said("order", BATCH, stage(odd)) == [("unknown_state", sentence)]


def test_the_first_request_that_is_wrong_is_told() -> None:
    """One fault shows in every request, and is told once; here it begins with request 1."""
    good, bad = sample(NAMES), sample(NAMES, request=2)
    assert said("order", BATCH, stage(good, bad, sample(NAMES, request=0))) == [
        (
            "wrong_request",
            "hidden_states of request 1: part 0 is aux_0 of request 2, part 1 is aux_1 of request 2, part 2 is aux_2 "
            "of request 2",
        )
    ]


@pytest.mark.parametrize(
    ("how", "diagnosis", "words"),
    [
        ("rounded", "wrong_dtype", "part 0 is aux_0 in float32 (error 2.0e-03)"),
        ("near", "altered", "part 0 is aux_0, and not to the bit (error 3.0e-05)"),
        ("partial", "missing_tokens", "part 0 is aux_0 with 11 rows for 11 tokens"),
    ],
)
def test_the_right_tensor_and_not_exactly(how: str, diagnosis: str, words: str) -> None:
    """A stage moves tensors: it may neither round, alter nor cut them."""
    assert said("concat", BATCH, stage(joined(*NAMES, how=how))) == [
        (diagnosis, f"hidden_states of request 0: {words}")
    ]


def test_an_output_that_is_not_there() -> None:
    """The outputs that there are are named."""
    assert said("concat", {"states": NAMES}, stage(joined(*NAMES))) == [
        ("missing_slot", "states of request 0: there is no such output (outputs: hidden_states)")
    ]


def test_a_concatenation_along_the_wrong_axis() -> None:
    """Three times the rows in place of three times the width."""
    assert said("concat", BATCH, stage({"hidden_states": tensor(rows=33, width=64)})) == [
        (
            "wrong_width",
            "hidden_states of request 0: it is [33, 64] where [11, 192] is wanted: joined along the token axis",
        )
    ]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ({"kind": "tensor", "shape": [], "dtype": "float32", "parts": []}, "tensor"),
        ({"kind": "tensor", "shape": [0, 100], "dtype": "float32", "parts": []}, "[0, 100]"),
        ({"kind": "str"}, "str"),
    ],
    ids=["a-number", "empty", "text"],
)
def test_an_output_that_holds_no_states(output: dict[str, Any], shown: str) -> None:
    """Whatever a stage returns is told in words."""
    assert said("concat", BATCH, stage({"hidden_states": output})) == [
        ("wrong_width", f"hidden_states of request 0: it holds no tensor 64 wide a slot ({shown})")
    ]


def test_another_tensor_in_place_of_the_one() -> None:
    """`equals` tells a tensor that went elsewhere from one that is gone."""
    elsewhere = {"last": tensor(part("aux_2")), "hidden_states": tensor(part("final"))}
    head = "last of request 0: it holds [aux_2] where [final] is declared"
    assert said("equals", {"last": "final"}, stage(elsewhere)) == [("other_state", head)]
    gone = {"last": tensor(part("aux_2"))}
    assert said("equals", {"last": "final"}, stage(gone)) == [("missing_slot", f"{head}: final is nowhere in it")]


@pytest.mark.parametrize(
    ("output", "diagnosis", "words"),
    [
        (tensor(width=128), "missing_slot", "is 128 wide"),
        (tensor(width=256), "wrong_width", "is 256 wide"),
        (tensor(width=100), "wrong_width", "is 100 wide"),
        (listed(part("aux_0")), "wrong_width", "is no tensor"),
        (None, "missing_slot", "is not there"),
    ],
    ids=["fewer", "more", "odd", "list", "absent"],
)
def test_another_width(output: Any, diagnosis: str, words: str) -> None:
    """The width is told on the twin and on the real model; what has none does not pass."""
    outputs = {"hidden_states": output} if output else {}
    assert said("width", OF_SLOTS, stage(outputs), concatenated=("hidden_states",)) == [
        (diagnosis, f"hidden_states {words} where slots x target is 192 on the twin (21504 on the real model)")
    ]


def test_a_width_that_only_a_later_request_lacks() -> None:
    """Every request is looked at."""
    outputs = [{"hidden_states": tensor(width=192)}, {"hidden_states": tensor(width=64, rows=7)}]
    [(diagnosis, _)] = said("width", OF_SLOTS, stage(*outputs), concatenated=("hidden_states",))
    assert diagnosis == "missing_slot"


@pytest.mark.parametrize(
    ("kind", "promise", "message"),
    [
        ("width", OF_SLOTS, "a width alone is of what concat promises, and nothing here does"),
        ("width", {"hidden_states": "slots * target"}, "a width is a product such as slots x target"),
        ("order", ["aux_0"], "expected a map from an output's name to upstream names"),
        ("concat", {"hidden_states": [1]}, "expected names such as aux_0"),
        ("unchanged_by", ["larger_batches"], "did you mean"),
        ("unchanged_by", ["larger_batch"], "larger_batch needs an input that was made in that way, such as a dump"),
    ],
)
def test_a_promise_that_cannot_be_read(kind: str, promise: Any, message: str) -> None:
    """A user's mistake is told at its place."""
    with pytest.raises(SpecError) as caught:
        check(kind, promise, stage(joined(*NAMES)))
    assert message in caught.value.render()


def again(variant: str, *requests: dict[str, Any]) -> list[tuple[str | None, str]]:
    base = [sample(["aux_0"], n) for n in range(len(TOKENS))]
    runs = [*requests, *base[len(requests) :]]
    return said("unchanged_by", [variant], stage(*base, **{variant: runs}))


def test_a_result_that_stays_the_same() -> None:
    """The same tensors of the same requests, in every variant; another batch may move an engine's last bits."""
    near = {"hidden_states": listed(part("aux_0", 0, how="near"))}
    for variant in ("permuted_requests", "larger_batch", "second_call"):
        assert again(variant) == []
    assert again("larger_batch", near) == []


def test_a_result_of_another_request() -> None:
    """In another batch the stage takes another request's files."""
    assert again("larger_batch", sample(["aux_0"], request=4)) == [
        (
            "wrong_request",
            "with larger_batch, hidden_states of request 0 is [aux_0 of request 4], and was [aux_0 of request 0]",
        )
    ]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (sample(["aux_1"]), "is [aux_1 of request 0], and was [aux_0 of request 0]"),
        ({"hidden_states": listed(part("aux_0", how="unknown"))}, "is [?], and was [aux_0 of request 0]"),
        ({}, "is not there"),
        (
            {"hidden_states": listed(part("aux_0", how="near"))},
            "is made of the same tensors with other values: [aux_0 of request 0]",
        ),
        (
            {"hidden_states": {**listed(part("aux_0")), "shape": [3]}},
            "is [3], and was None",
        ),
    ],
    ids=["another", "unknown", "absent", "altered", "shape"],
)
def test_a_second_call_that_gives_something_else(output: dict[str, Any], words: str) -> None:
    """A stage that keeps something from call to call is unstable."""
    assert again("second_call", output) == [("unstable", f"with second_call, hidden_states of request 0 {words}")]
