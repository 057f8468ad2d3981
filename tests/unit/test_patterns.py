"""Patterns: one diagnosis and one sentence over all slots."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_contracts.patterns import Slot, State, diagnose, slots_from

N = 61
KIMI = (3, 31, 59)
FINAL: Final = "final_normed"
MLP = ("sublayer", 2, "mlp output of layer 2, without the residual")
NORM_OF = ("final_norm_of", 59, "h[59] after the final norm")
INPUT = ("normed_input", 3, "h[3] after layer 3's input norm")
Held = Any


def match(kind: str, k: int | None, label: str, error: float) -> dict[str, Any]:
    return {"kind": kind, "k": k, "label": label, "error": error}


def report(held: Held) -> dict[str, Any]:
    """An identification as a worker sends it: a state's number, or a word for what else was found."""
    out: dict[str, Any] = {"outcome": "identified", "second": match("state", 8, "h[8]", 0.31), "shape": [64, 48]}
    out |= {"expected_shape": [64, 48], "non_finite": None, "best": match("state", 7, "h[7]", 0.3)}
    if isinstance(held, tuple):
        kind, k, label = held
        return out | {"best": match(kind, k, label, 1e-6)}
    if held == FINAL:
        return out | {"best": match(FINAL, None, FINAL, 1e-6)}
    if held == "unknown":
        return out | {"outcome": "unknown"}
    if held == "inconclusive":
        best, second = match("state", 3, "h[3]", 0.004), match("state", 4, "h[4]", 0.0071)
        return out | {"outcome": "inconclusive", "best": best, "second": second}
    if isinstance(held, str):
        bad = {"where": held.partition(":")[2] or "slot", "count": 2, "row": 0, "column": 5}
        shape = {"wrong_width": [64, 40], "wrong_rows": [63, 48]}.get(held, [64, 48])
        out |= {"outcome": held.partition(":")[0], "best": None, "second": None, "shape": shape}
        return out | {"non_finite": bad if "non_finite" in held else None}
    return out | {"best": match("state", held, f"h[{held}]", 1e-6)}


def said(declared: Sequence[State], held: Sequence[Held]) -> tuple[str | None, str]:
    return diagnose(slots_from(declared, [report(one) for one in held]), N)


STORIES: list[tuple[Sequence[State], Sequence[Held], str | None, str]] = [
    (KIMI, (3, 31, 59), None, "every slot holds the state that was declared for it"),
    ((0, 3, FINAL), (0, 3, FINAL), None, "every slot holds the state that was declared for it"),
    # the embedding
    (
        KIMI,
        (0, 3, 31),
        "embedding_in_slot",
        "slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1",
    ),
    (
        KIMI,
        (0, 3, 31, 59),
        "embedding_in_slot",
        "slot 0 holds the embedding; slots 1, 2 and 3 hold the states trained for slots 0, 1 and 2",
    ),
    (
        KIMI,
        (0, 31, 59),
        "embedding_in_slot",
        "slot 0 holds the embedding where h[3] is declared; the other 2 slots are right",
    ),
    (
        (1, 30, 58),
        (0, 29, 57),
        "embedding_in_slot",
        "slot 0 holds the embedding; every slot holds the state one layer earlier than declared (-1)",
    ),
    (
        KIMI,
        (0, 3, 30),
        "embedding_in_slot",
        "slot 0 holds the embedding where h[3] is declared; slot 1 holds h[3] where h[31] is declared; "
        "slot 2 holds h[30] where h[59] is declared",
    ),
    (
        KIMI,
        (0, 31, "unknown"),
        "embedding_in_slot",
        "slot 0 holds the embedding where h[3] is declared; "
        "slot 2 holds nothing that is known where h[59] is declared; the nearest is h[7] (error 0.3)",
    ),
    (
        KIMI,
        (0, 31),
        "embedding_in_slot",
        "slot 0 holds the embedding where h[3] is declared; slot 2 is missing where h[59] is declared",
    ),
    (KIMI, (0, 0, 0), "embedding_in_slot", "slots 0, 1 and 2 hold the embedding"),
    ((3, 31), (0, 3), "embedding_in_slot", "slot 0 holds the embedding; slot 1 holds the state trained for slot 0"),
    # a slot missing
    (KIMI, (3, 31), "missing_slot", "2 slots where 3 are declared: no slot holds h[59]"),
    (KIMI, (3, 59), "missing_slot", "2 slots where 3 are declared: no slot holds h[31]"),
    (KIMI, (31, 59), "missing_slot", "2 slots where 3 are declared: no slot holds h[3]"),
    (KIMI, (59,), "missing_slot", "1 slot where 3 are declared: no slot holds h[3] or h[31]"),
    (KIMI, (), "missing_slot", "0 slots where 3 are declared: no slot holds h[3], h[31] or h[59]"),
    ((3,), (), "missing_slot", "0 slots where 1 is declared: no slot holds h[3]"),
    (
        KIMI,
        (2, 31),
        "missing_slot",
        "2 slots where 3 are declared: no slot holds h[3] or h[59]; slot 0 holds h[2] where h[3] is declared",
    ),
    # a slot too many, and the wrong width
    (KIMI, (3, 31, 59, 60), "wrong_width", "4 slots where 3 are declared: slot 3 holds h[60]"),
    ((3,), (3, 4), "wrong_width", "2 slots where 1 is declared: slot 1 holds h[4]"),
    (KIMI, (3, 31, 59, 59), "duplicated", "slots 2 and 3 hold the same state, h[59]"),
    (
        KIMI,
        (3, "wrong_width", 59),
        "wrong_width",
        "slot 1 is 40 wide where a state is 48 wide",
    ),
    # another order
    (
        KIMI,
        (31, 3, 59),
        "permuted",
        "the declared states are all there, in another order: slots 0 and 1 hold the states trained for slots 1 and 0",
    ),
    (
        (0, 3, 31),
        (3, 0, 31),
        "permuted",
        "the declared states are all there, in another order: slots 0 and 1 hold the states trained for slots 1 and 0",
    ),
    (
        (3, 31, FINAL),
        (FINAL, 3, 31),
        "permuted",
        "the declared states are all there, in another order: "
        "slots 0, 1 and 2 hold the states trained for slots 2, 0 and 1",
    ),
    # a shift
    (
        KIMI,
        (2, 30, 58),
        "shifted",
        "every slot holds the state one layer earlier than declared (-1): "
        "h[2], h[30], h[58] where h[3], h[31], h[59] are declared",
    ),
    (
        KIMI,
        (5, 33, 61),
        "shifted",
        "every slot holds the state 2 layers later than declared (+2): "
        "h[5], h[33], h[61] (the final state before the norm) where h[3], h[31], h[59] are declared",
    ),
    (
        (3,),
        (4,),
        "shifted",
        "every slot holds the state one layer later than declared (+1): h[4] where h[3] is declared",
    ),
    (range(1, 9), range(2, 10), "shifted", "every slot holds the state one layer later than declared (+1)"),
    # twice the same
    (KIMI, (3, 3, 59), "duplicated", "slots 0 and 1 hold the same state, h[3]; no slot holds h[31]"),
    (KIMI, (31, 31, 31), "duplicated", "slots 0, 1 and 2 hold the same state, h[31]; no slot holds h[3] or h[59]"),
    (
        (3, FINAL),
        (FINAL, FINAL),
        "duplicated",
        "slots 0 and 1 hold the same state, the normed final state; no slot holds h[3]",
    ),
    # normed, or without the residual
    (KIMI, (3, 31, FINAL), "normed", "slot 2 holds the normed final state where h[59] is declared"),
    (KIMI, (3, 31, NORM_OF), "normed", "slot 2 holds h[59] after the final norm where h[59] is declared"),
    (KIMI, (INPUT, 31, 59), "normed", "slot 0 holds h[3] after layer 3's input norm where h[3] is declared"),
    (
        (3, 31, 61),
        (3, 31, FINAL),
        "normed",
        "slot 2 holds the normed final state where h[61] (the final state before the norm) is declared",
    ),
    (
        KIMI,
        (MLP, 31, 59),
        "missing_residual",
        "slot 0 holds mlp output of layer 2, without the residual, where h[3] is declared",
    ),
    (
        KIMI,
        (MLP, 31, NORM_OF),
        "normed",
        "slot 2 holds h[59] after the final norm where h[59] is declared; "
        "slot 0 holds mlp output of layer 2, without the residual, where h[3] is declared",
    ),
    # single slots
    (KIMI, (3, 31, 58), "other_state", "slot 2 holds h[58] where h[59] is declared"),
    (
        KIMI,
        (2, 30, 59),
        "other_state",
        "slot 0 holds h[2] where h[3] is declared; slot 1 holds h[30] where h[31] is declared",
    ),
    (
        (3, FINAL),
        (3, 61),
        "other_state",
        "slot 1 holds h[61] (the final state before the norm) where the normed final state is declared",
    ),
    (
        (0, 3, 31),
        (3, 31, 59),
        "other_state",
        "slot 0 holds h[3] where the embedding is declared; slot 1 holds h[31] where h[3] is declared; "
        "slot 2 holds h[59] where h[31] is declared",
    ),
    (
        range(1, 8),
        (20, 30, 40, 41, 50, 51, 52),
        "other_state",
        "slot 0 holds h[20] where h[1] is declared; slot 1 holds h[30] where h[2] is declared; "
        "slot 2 holds h[40] where h[3] is declared; slot 3 holds h[41] where h[4] is declared; "
        "and 3 more slots not as declared",
    ),
    (
        KIMI,
        (3, "unknown", 59),
        "unknown_state",
        "slot 1 holds nothing that is known where h[31] is declared; the nearest is h[7] (error 0.3)",
    ),
    (
        KIMI,
        (3, "unknown", 58),
        "other_state",
        "slot 2 holds h[58] where h[59] is declared; "
        "slot 1 holds nothing that is known where h[31] is declared; the nearest is h[7] (error 0.3)",
    ),
    (KIMI, (3, "wrong_rows", 59), "unknown_state", "slot 1 has 63 rows where the reference has 64 rows"),
    (
        KIMI,
        (3, "non_finite", 59),
        "unknown_state",
        "slot 1 holds 2 values that no float32 can hold (the first at row 0, column 5)",
    ),
    (
        KIMI,
        (3, "non_finite:h[31]", 59),
        "unknown_state",
        "slot 1 cannot be compared, since the reference h[31] holds 2 values that no float32 can hold "
        "(the first at row 0, column 5)",
    ),
    # not told apart
    (
        KIMI,
        ("inconclusive", 31, 59),
        "inconclusive",
        "slot 0 cannot be told apart where h[3] is declared: "
        "h[3] (error 0.004) is not five times nearer than h[4] (error 0.0071)",
    ),
    (
        KIMI,
        ("inconclusive", 30, 58),
        "other_state",
        "slot 1 holds h[30] where h[31] is declared; slot 2 holds h[58] where h[59] is declared; "
        "slot 0 cannot be told apart where h[3] is declared: "
        "h[3] (error 0.004) is not five times nearer than h[4] (error 0.0071)",
    ),
]


@pytest.mark.parametrize(("declared", "held", "diagnosis", "sentence"), STORIES)
def test_what_is_said(declared: Sequence[State], held: Sequence[Held], diagnosis: str | None, sentence: str) -> None:
    """Every pattern has its name and one whole sentence in the user's words."""
    assert said(declared, held) == (diagnosis, sentence)


def expected(held: tuple[int, ...]) -> str | None:
    offsets = {observed - declared for observed, declared in zip(held, KIMI, strict=True)}
    if held == KIMI:
        return None
    if 0 in held:
        return "embedding_in_slot"
    if sorted(held) == sorted(KIMI):
        return "permuted"
    if len(offsets) == 1:
        return "shifted"
    return "duplicated" if len(set(held)) < 3 else "other_state"


def test_precedence_over_all_triples() -> None:
    """Embedding over permutation over shift over the rest, for every triple of states around the declared ones."""
    triples = list(itertools.product([0, 2, 3, 4, 30, 31, 32, 58, 59, 60], repeat=3))
    assert {held: said(KIMI, held)[0] for held in triples} == {held: expected(held) for held in triples}


ANYTHING = st.one_of(
    st.integers(0, N),
    st.sampled_from([FINAL, MLP, NORM_OF, INPUT, "unknown", "inconclusive", "wrong_width", "wrong_rows", "non_finite"]),
)


@given(
    declared=st.lists(st.one_of(st.integers(0, N), st.just(FINAL)), min_size=1, max_size=6, unique=True),
    held=st.lists(ANYTHING, max_size=7),
)
def test_nothing_wrong_is_ever_passed_over(declared: list[State], held: list[Held]) -> None:
    """No diagnosis means that every slot is right; whatever else was found has a name and a sentence on one line."""
    diagnosis, sentence = said(declared, held)
    assert (diagnosis is None) == (held == declared)
    assert sentence
    assert "None" not in sentence
    assert "\n" not in sentence
    assert "  " not in sentence


def test_a_state_that_the_target_does_not_have_is_refused() -> None:
    """A number of layers that does not fit what was observed is a mistake of the caller."""
    slot = Slot(index=0, declared=3, outcome="identified", observed_kind="state", observed_k=62, observed_label="h[62]")
    with pytest.raises(ValueError) as caught:
        diagnose([slot], N)
    assert str(caught.value) == "slot 0 holds h[62], but the states are h[0] to h[61]"
    with pytest.raises(ValueError) as caught:
        diagnose([], N)
    assert str(caught.value) == "no slots to diagnose"


@pytest.mark.parametrize(("module", "loaded"), [("patterns", False), ("identification", False), ("identify", True)])
def test_patterns_need_no_torch(module: str, loaded: bool) -> None:
    """The reader's side is torch-free; the worker's side is not, which shows that this test can fail."""
    code = f"import sys, eagle_contracts.{module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loaded)
