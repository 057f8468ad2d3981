"""`slots` and `rows`: a capture's slots and a dump's files against what is declared."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_contracts.spec.errors import SpecError

from .observations import REFUSED, TOKENS, check, identified, observation, said

CLAIM = {"hidden_states": [3, 31, 59]}
GROUPS = {"aux": CLAIM, "final": "final"}
FILES = "(slots are aux_0.pt, aux_1.pt, aux_2.pt)"


def capture(*held: int | str | None, total: int | None = None) -> Any:
    slots = [identified(one) for one in held]
    width = len(held) * 64 if total is None else total
    return observation(slots=slots, rows=32, total_width=width, width=64)


def dump(held: dict[str, int | str | None] | None = None, **data: Any) -> Any:
    """A dump of three requests; every request has every file unless rows are given."""
    held = held or {"aux_0": 3, "aux_1": 31, "aux_2": 59, "final": 61}
    given: dict[str, Any] = {
        "unreadable": [],
        "named": {name: identified(one) for name, one in held.items()},
        "dtypes": dict.fromkeys(held, "float32"),
        "rows": [dict.fromkeys(held, count) for count in TOKENS],
    }
    return observation(**{**given, **data})


def test_right_slots_give_nothing() -> None:
    """A capture and a dump as declared keep their promises."""
    assert said("slots", CLAIM, capture(3, 31, 59)) == []
    assert said("slots", GROUPS, dump()) == []
    assert said("rows", "one_per_token", dump()) == []


def test_an_engine_that_raised() -> None:
    """A refusal is told in the engine's words, with the line that raised, for either promise."""
    for kind, promise in (("slots", CLAIM), ("rows", "one_per_token")):
        [one] = check(kind, promise, observation(refused=REFUSED))
        assert (one.diagnosis, one.sentence) == (
            "engine_refused",
            "the engine raised TypeError at the forward pass: no residual",
        )
        assert one.details == ("deepseek_v2.py:2728: hidden_states + residual",)


@pytest.mark.parametrize(
    ("held", "diagnosis", "sentence"),
    [
        (
            (4, 32, 60),
            "shifted",
            "every slot holds the state one layer later than declared (+1): h[4], h[32], h[60] where h[3], h[31], "
            "h[59] are declared",
        ),
        (
            (31, 3, 59),
            "permuted",
            "the declared states are all there, in another order: slots 0 and 1 hold the states trained for slots 1 "
            "and 0",
        ),
        ((3, 31), "missing_slot", "2 slots where 3 are declared: no slot holds h[59]"),
        ((3, 31, 59, 60), "wrong_width", "4 slots where 3 are declared: slot 3 holds h[60]"),
        (
            ("mlp output", 31, 59),
            "missing_residual",
            "slot 0 holds mlp output where h[3] is declared",
        ),
        (
            (3, None, 59),
            "unknown_state",
            "slot 1 holds nothing that is known where h[31] is declared; the nearest is h[7] (error 0.5)",
        ),
    ],
)
def test_a_capture_that_is_not_as_declared(held: Any, diagnosis: str, sentence: str) -> None:
    """The pattern over all slots has one diagnosis and one sentence."""
    assert said("slots", CLAIM, capture(*held)) == [(diagnosis, sentence)]


def test_a_concatenation_that_is_no_whole_number_of_slots() -> None:
    """Nothing can be cut, so the widths are told."""
    assert said("slots", CLAIM, capture(total=200)) == [
        (
            "wrong_width",
            "the concatenation is 200 wide, which is no whole number of slots 64 wide; 3 slots would be 192",
        )
    ]


def test_files_with_other_states() -> None:
    """The sentence says which files the slots are; each group is judged by itself."""
    moved = dump({"aux_0": 2, "aux_1": 30, "aux_2": 58, "final": "final_normed"})
    sentence = (
        "every slot holds the state one layer earlier than declared (-1): h[2], h[30], h[58] where h[3], h[31], h[59] "
        f"are declared {FILES}"
    )
    normed = (
        "slot 0 holds the normed final state where h[61] (the final state before the norm) is declared (slots are "
        "final.pt)"
    )
    assert said("slots", GROUPS, moved) == [("shifted", sentence), ("normed", normed)]


def test_files_that_are_not_there() -> None:
    """What is missing and what was found are named."""
    assert said("slots", GROUPS, dump({"aux_0": 3, "aux_1": 31, "final": 61})) == [
        ("missing_slot", "no request has aux_2.pt (files found: aux_0, aux_1, final)")
    ]


def test_a_file_too_many() -> None:
    """A fourth file of the group is a slot that nobody declared."""
    more = dump({"aux_0": 3, "aux_1": 31, "aux_2": 59, "aux_3": 60, "final": 61})
    [(diagnosis, sentence)] = said("slots", GROUPS, more)
    assert diagnosis == "wrong_width"
    assert sentence.startswith("4 slots where 3 are declared: slot 3 holds h[60] (slots are aux_0.pt")


def test_files_that_cannot_be_read() -> None:
    """Nothing is unpickled and half a file is no file; either promise says so, and under one name."""
    bad = ["request_1/aux_1.pt: EOFError: half", "request_2/aux_1.pt: EOFError: half"]
    for kind, promise in (("slots", GROUPS), ("rows", "one_per_token")):
        [one] = check(kind, promise, dump(unreadable=bad))
        assert (one.diagnosis, one.sentence) == (
            "unreadable",
            f"2 of the files cannot be read as tensors without unpickling objects: {bad[0]}",
        )
        assert one.details == (bad[1],)
    [(_, sentence)] = said("slots", GROUPS, dump(unreadable=bad[:1]))
    assert sentence.startswith("one of the files cannot be read")


def test_files_of_another_type() -> None:
    """A state that was saved in fewer bits is the right state, and still not what the engine holds."""
    dtypes = {"aux_0": "bfloat16", "aux_1": "float32", "aux_2": "float32", "final": "float32"}
    assert said("slots", GROUPS, dump(dtypes=dtypes)) == [
        ("wrong_dtype", "aux_0.pt is bfloat16 where the engine's stream is float32: precision is lost here")
    ]


def test_files_of_the_type_that_the_engine_computes_in() -> None:
    """An engine in bfloat16 is dumped in bfloat16; more bits than it has are not what it holds either."""
    reduced = dict.fromkeys(("aux_0", "aux_1", "aux_2", "final"), "bfloat16")
    assert said("slots", GROUPS, dump(dtypes=reduced), dtype="bfloat16") == []
    [(diagnosis, sentence)] = said("slots", GROUPS, dump(dtypes={**reduced, "final": "float32"}), dtype="bfloat16")
    assert (diagnosis, "final.pt is float32 where the engine's stream is bfloat16" in sentence) == ("wrong_dtype", True)


def test_files_that_hold_no_rows() -> None:
    """A tensor with a batch axis cannot be compared with a state, and its shape is told."""
    seen = dump()
    seen.data["named"]["aux_1"] = {"outcome": "nothing", "shape": [1, 11, 64]}
    assert said("slots", GROUPS, seen) == [
        ("wrong_width", "aux_1.pt is [1, 11, 64], and a state is [tokens, hidden size]")
    ]


def rows(*named: dict[str, int]) -> list[tuple[str | None, str]]:
    return said("rows", "one_per_token", dump(rows=list(named)))


def test_requests_without_files() -> None:
    """Every request that was served has a folder."""
    assert rows({"aux_0": 11}, {"aux_0": 7}) == [("missing_tokens", "3 requests were served and 2 have files")]


def test_rows_that_are_missing() -> None:
    """Rows and tokens are counted file by file."""
    assert rows({"aux_0": 5, "final": 5}, {"aux_0": 7, "final": 7}, {"aux_0": 14, "final": 14}) == [
        ("missing_tokens", "request 0's aux_0 has 5 rows for 11 tokens, and 1 more are wrong")
    ]


def test_one_short_file_among_whole_ones() -> None:
    """One file is short: its request's other files do not make that another request's."""
    short = ({"aux_0": 5, "final": 11}, {"aux_0": 7, "final": 7}, {"aux_0": 14, "final": 14})
    assert rows(*short) == [("missing_tokens", "request 0's aux_0 has 5 rows for 11 tokens")]


def test_a_file_that_one_request_lacks() -> None:
    """A file that the other requests have is missed."""
    assert rows({"aux_0": 11, "final": 11}, {"final": 7}, {"aux_0": 14, "final": 14}) == [
        ("missing_tokens", "request 1 has no aux_0")
    ]


def test_files_in_another_requests_folder() -> None:
    """All rows are there, in the wrong folders."""
    assert rows({"aux_0": 7}, {"aux_0": 11}, {"aux_0": 14}) == [
        ("wrong_request", "request 0's aux_0 has 7 rows for 11 tokens, and 1 more are wrong")
    ]


def test_rows_takes_one_word() -> None:
    """Anything else is a mistake at its place."""
    with pytest.raises(SpecError, match="rows takes one_per_token, not all"):
        check("rows", "all", dump())


def test_a_slot_that_is_wrong_in_one_request_alone() -> None:
    """The rest of the batch fits, and a median over all tokens would be content."""
    slots = [{**identified(k), "by_request": [1e-6, 0.3, 1e-6] if k == 31 else [1e-6] * 3} for k in (3, 31, 59)]
    seen = observation(slots=slots, rows=32, total_width=192, width=64)
    assert said("slots", {"hidden_states": [3, 31, 59]}, seen) == [
        (
            "wrong_request",
            "slot 1 holds h[31], but not in the rows of request 1 of 3 (relative error 3.0e-01): what fits on the "
            "whole hides them",
        )
    ]
