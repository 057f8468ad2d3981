"""A report says what was declared, what was seen, why, and what to do, in 100 columns."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_contracts.observation import Match, Side, SlotSeen
from eagle_contracts.report.columns import COLUMNS
from eagle_contracts.report.terminal import render
from eagle_contracts.verdict import Mismatch, Remedy, SlotEvidence, Verdict

CONTEXT = (
    ("slots", "{hidden_states: [3, 31, 59]}", "contracts/kimi_k25/pipeline.yaml:5"),
    ("layer_ids", "[-1, 2, 30]", "--contracts-set draft.layer_ids"),
    ("engine", "sglang 0.5.9, DeepseekV3ForCausalLM twin of 61 layers, 32 tokens, cpu", ""),
)
PLACE = "contracts/kimi_k25/pipeline.yaml:5"


def match(k: int, error: float) -> Match:
    return Match(label=f"h[{k}]" + (" (embedding)" if k == 0 else ""), kind="state", k=k, error=error)


def side(first: float) -> Side:
    return Side(first_values=(first, -0.25, 1.5, 0.003, -12.0), median_row_norm=8.125)


def seen(**changes: Any) -> SlotSeen:
    """A slot of bad luck: h[3] declared, the embedding held."""
    base: dict[str, Any] = {
        "outcome": "identified",
        "tolerance": 1e-4,
        "shape": (32, 64),
        "expected_shape": (32, 64),
        "best": match(0, 0.0),
        "second": match(1, 0.31),
        "declared": match(3, 0.94),
        "worst_row": (0, 0.0),
        "sink_rows": (),
        "slot_side": side(0.5),
        "declared_side": side(-0.75),
        "smallest_tolerance": 0.94,
        "tolerance_would_help": False,
        "non_finite": None,
        "report": {},
    }
    return SlotSeen(**{**base, **changes})


def slot(index: int = 0, found: SlotSeen | None = None, declared: str | None = "h[3]") -> SlotEvidence:
    return SlotEvidence(name=f"slot {index}", declared=declared, position=PLACE, seen=found)


def violated(mismatch: Mismatch, **more: Any) -> Verdict:
    return Verdict(
        status="violated", diagnosis=mismatch.diagnosis, sentence=mismatch.sentence, mismatches=(mismatch,), **more
    )


def test_a_violation_with_its_remedy() -> None:
    """The diagnosis comes first, then what was run, the evidence of each slot, the remedy and the next command."""
    mismatch = Mismatch(
        diagnosis="embedding_in_slot",
        sentence="slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1",
        slots=(slot(0, seen()), slot(1, seen(best=match(3, 2e-7), declared=match(3, 2e-7), smallest_tolerance=2e-7))),
    )
    remedy = Remedy(
        key="draft.layer_ids",
        lists=((2, 30, 58),),
        where="contracts/kimi_k25/pipeline.yaml:7, environment sglang-0.5.9",
        sentence="verified by running the engine",
    )
    command = (
        "pytest --contracts 'contracts/kimi_k25/sglang_capture_offset.yaml::slots[sglang-0.5.9]' "
        "--contracts-set 'draft.layer_ids=[2,30,58]'"
    )
    assert render(violated(mismatch, context=CONTEXT, remedy=remedy, next_command=command)) == (
        "embedding_in_slot: slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and\n"
        "  1\n"
        "\n"
        "slots      {hidden_states: [3, 31, 59]}  contracts/kimi_k25/pipeline.yaml:5\n"
        "layer_ids  [-1, 2, 30]  --contracts-set draft.layer_ids\n"
        "engine     sglang 0.5.9, DeepseekV3ForCausalLM twin of 61 layers, 32 tokens, cpu\n"
        "\n"
        "slot 0  declared h[3] (contracts/kimi_k25/pipeline.yaml:5), holds h[0] (embedding)\n"
        "        error h[0] (embedding) 0.0e+00, next best h[1] 3.1e-01 (tolerance 1e-04)\n"
        "        declared       -0.75      -0.25        1.5      0.003        -12 ...  norm 8.125\n"
        "        observed         0.5      -0.25        1.5      0.003        -12 ...  norm 8.125\n"
        "        smallest tolerance that would pass: 9.4e-01, and another state would still fit better\n"
        "\n"
        "slot 1  declared h[3] (contracts/kimi_k25/pipeline.yaml:5), holds h[3]\n"
        "        error h[3] 2.0e-07, next best h[1] 3.1e-01 (tolerance 1e-04)\n"
        "        declared       -0.75      -0.25        1.5      0.003        -12 ...  norm 8.125\n"
        "        observed         0.5      -0.25        1.5      0.003        -12 ...  norm 8.125\n"
        "\n"
        "write draft.layer_ids: [2, 30, 58]\n"
        "  at contracts/kimi_k25/pipeline.yaml:7, environment sglang-0.5.9; verified by running the engine\n"
        "\n"
        "then run:\n"
        "  pytest --contracts 'contracts/kimi_k25/sglang_capture_offset.yaml::slots[sglang-0.5.9]' \\\n"
        "    --contracts-set 'draft.layer_ids=[2,30,58]'"
    )


def test_a_doubted_claim_comes_before_any_ids() -> None:
    """What to look at first stands before the list, and the list only holds if the claim does."""
    mismatch = Mismatch(diagnosis="other_state", sentence="slot 0 holds h[3] where the embedding is declared")
    remedy = Remedy(
        key="draft.layer_ids",
        lists=((-1, 2, 30),),
        where="contracts/kimi_k25/pipeline.yaml:7",
        before=("The claim may be what is wrong, not serving.", "Look first at what was trained."),
        sentence="only if the claim is right (verified by running the engine)",
    )
    assert render(violated(mismatch, remedy=remedy)) == (
        "other_state: slot 0 holds h[3] where the embedding is declared\n"
        "\n"
        "The claim may be what is wrong, not serving.\n"
        "Look first at what was trained.\n"
        "write draft.layer_ids: [-1, 2, 30]\n"
        "  at contracts/kimi_k25/pipeline.yaml:7; only if the claim is right (verified by running the engine)"
    )


def test_no_list_works() -> None:
    """Without a list that works the report says how many were tried, and gives no ids."""
    remedy = Remedy(
        key="draft.layer_ids",
        lists=(),
        where=PLACE,
        sentence="no list that was tried expresses these states (15 were run)",
        tried=15,
    )
    mismatch = Mismatch(diagnosis="missing_slot", sentence="2 slots where 3 are declared", slots=(slot(2),))
    assert render(violated(mismatch, remedy=remedy)) == (
        "missing_slot: 2 slots where 3 are declared\n"
        "\n"
        "slot 2  declared h[3] (contracts/kimi_k25/pipeline.yaml:5), and there is no such slot\n"
        "\n"
        "no list that was tried expresses these states (15 were run)"
    )


def test_a_refusal_shows_the_line_that_raised() -> None:
    """An engine's own exception is shown in its words and with its line."""
    mismatch = Mismatch(
        diagnosis="engine_refused",
        sentence="the engine raised TypeError at the forward pass: unsupported operand",
        details=("sglang/srt/models/deepseek_v2.py:2751: aux_hidden_states.append(hidden_states + residual)",),
    )
    assert render(violated(mismatch)) == (
        "engine_refused: the engine raised TypeError at the forward pass: unsupported operand\n"
        "\n"
        "sglang/srt/models/deepseek_v2.py:2751: aux_hidden_states.append(hidden_states + residual)"
    )


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (seen(outcome="unknown"), "holds no known state"),
        (seen(outcome="inconclusive"), "holds a state that two candidates fit\n        almost alike"),
        (
            seen(
                outcome="non_finite",
                best=None,
                second=None,
                declared=None,
                non_finite="4 values of slot, first at row 0",
            ),
            "holds values that are not numbers (4\n        values of slot, first at row 0)",
        ),
        (
            seen(outcome="wrong_rows", best=None, second=None, declared=None, shape=(31, 64)),
            "holds [31, 64] where [32, 64] is wanted",
        ),
    ],
)
def test_what_is_not_identified_says_so(found: SlotSeen, line: str) -> None:
    """A slot without a state says what stands there instead."""
    text = render(violated(Mismatch(diagnosis="unknown_state", sentence="s", slots=(slot(0, found),))))
    assert f"slot 0  declared h[3] (contracts/kimi_k25/pipeline.yaml:5), {line}" in text


def test_an_undeclared_slot_and_sinks_are_named() -> None:
    """A slot beyond the declared ones is declared as nothing; rows that are attention sinks are pointed out."""
    found = seen(sink_rows=(0, 11), worst_row=(11, 0.02), declared=None, declared_side=None, smallest_tolerance=None)
    text = render(violated(Mismatch(diagnosis="wrong_width", sentence="s", slots=(slot(3, found, declared=None),))))
    assert text == (
        "wrong_width: s\n"
        "\n"
        "slot 3  declared nothing (contracts/kimi_k25/pipeline.yaml:5), holds h[0] (embedding)\n"
        "        error h[0] (embedding) 0.0e+00, next best h[1] 3.1e-01 (tolerance 1e-04)\n"
        "        observed         0.5      -0.25        1.5      0.003        -12 ...  norm 8.125\n"
        "        worst row 11 (2.0e-02); attention sinks in rows 0, 11"
    )


def test_an_inconclusive_verdict_is_called_so() -> None:
    """Without a diagnosis the status stands in its place."""
    mismatch = Mismatch(diagnosis=None, sentence="slot 0 cannot be told apart")
    verdict = Verdict(status="inconclusive", sentence=mismatch.sentence, mismatches=(mismatch,))
    assert render(verdict) == "inconclusive: slot 0 cannot be told apart"


def test_an_error_shows_the_last_lines() -> None:
    """An error names its code, and long log lines are cut at the margin."""
    verdict = Verdict(status="error", reason="died", sentence="ended by signal 9", log="loading\n" + "x" * 200)
    assert render(verdict) == (f"error(died): ended by signal 9\n\nLast lines printed:\n  | loading\n  | {'x' * 96}")


def test_an_unavailable_environment_names_its_code() -> None:
    """The reason's code stands in brackets."""
    verdict = Verdict(status="unavailable", reason="environment", sentence="It is not built. Build it: x sync y")
    assert render(verdict) == "unavailable(environment): It is not built. Build it: x sync y"


def test_a_mistake_in_a_file_is_shown_as_it_is() -> None:
    """A specification's error is laid out already: its caret must stay under its word."""
    text = "pipeline.yaml:1:7: 'spec' must be 1, not 2\n    spec: 2\n          ^"
    assert render(Verdict(status="error", reason="spec", sentence=text)) == text


def test_a_control_that_failed_shows_what_was_found() -> None:
    """Where the headline is about the control, each mismatch has a line of its own."""
    found = Mismatch(diagnosis="shifted", sentence="every slot is off by one")
    verdict = Verdict(
        status="violated", diagnosis="caught_as_another", sentence="the break was to be caught", mismatches=(found,)
    )
    assert render(verdict) == "caught_as_another: the break was to be caught\n\nshifted: every slot is off by one"


FILLER = "h[3] contracts/kimi_k25/pipeline.yaml:5, [-1, 2, 30] a state-of-the-art 1e-04 " * 5
words = st.integers(1, len(FILLER)).map(lambda length: FILLER[:length].strip())
matches = st.builds(
    Match, label=words, kind=st.just("state"), k=st.integers(0, 61), error=st.floats(0, 1e30, allow_nan=False)
)
sides = st.builds(
    Side,
    first_values=st.lists(st.floats(allow_nan=False), min_size=5, max_size=5).map(tuple),
    median_row_norm=st.floats(0, 1e38),
)
found_slots = st.builds(
    lambda **changes: seen(**changes),
    outcome=st.sampled_from(["identified", "unknown", "inconclusive", "non_finite", "wrong_width", "wrong_rows"]),
    best=st.none() | matches,
    second=st.none() | matches,
    declared=st.none() | matches,
    slot_side=st.none() | sides,
    declared_side=st.none() | sides,
    smallest_tolerance=st.none() | st.floats(0, 1e30),
    tolerance_would_help=st.booleans(),
    non_finite=words,
    sink_rows=st.lists(st.integers(0, 10**6), max_size=8).map(tuple),
)
slots = st.builds(
    SlotEvidence,
    name=st.sampled_from(["slot 0", "aux_12", "final"]),
    declared=st.none() | words,
    position=words,
    seen=st.none() | found_slots,
)
mismatches = st.builds(
    Mismatch,
    diagnosis=st.none() | st.just("shifted"),
    sentence=words,
    slots=st.lists(slots, max_size=2).map(tuple),
    details=st.lists(words, max_size=2).map(tuple),
)
remedies = st.builds(
    Remedy,
    key=st.just("draft.layer_ids"),
    lists=st.lists(st.lists(st.integers(-1, 99), max_size=12).map(tuple), max_size=2).map(tuple),
    where=words,
    before=st.lists(words, max_size=2).map(tuple),
    sentence=words,
)
verdicts = st.builds(
    Verdict,
    status=st.sampled_from(["violated", "error", "unavailable", "inconclusive"]),
    diagnosis=st.none() | st.just("shifted"),
    sentence=words,
    mismatches=st.lists(mismatches, max_size=2).map(tuple),
    context=st.lists(st.tuples(st.sampled_from(["slots", "layer_ids"]), words, words), max_size=3).map(tuple),
    remedy=st.none() | remedies,
    reason=st.sampled_from(["died", "environment"]),
    log=words,
)


def too_long(text: str) -> list[str]:
    """Return the lines over the margin that could have been broken: they hold a blank beyond their indentation."""
    return [line for line in text.splitlines() if len(line) > COLUMNS and " " in line.strip()]


@settings(max_examples=60, deadline=None)
@given(verdicts)
def test_no_line_is_longer_than_the_margin(verdict: Verdict) -> None:
    """Whatever is in a verdict, only a word that is too long by itself leaves the 100 columns."""
    assert too_long(render(verdict)) == []


def test_the_margin_test_can_fail() -> None:
    """The check above sees a line that could have been broken."""
    assert too_long("word " * 30) != []
    assert too_long("  " + "x" * 150) == []


def test_a_long_next_command_is_broken_at_its_options() -> None:
    """A command of several overrides can be copied as a whole, one option a line."""
    verdict = dataclasses.replace(
        Verdict(status="violated", diagnosis="shifted", sentence="s"),
        next_command="pytest --contracts contracts/kimi_k25 "
        "--contracts-set 'trained.taps={hidden_states: [3, 31, 59]}' --contracts-set 'draft.layer_ids=[2,30,58]'",
    )
    assert render(verdict) == (
        "shifted: s\n"
        "\n"
        "then run:\n"
        "  pytest --contracts contracts/kimi_k25 \\\n"
        "    --contracts-set 'trained.taps={hidden_states: [3, 31, 59]}' \\\n"
        "    --contracts-set 'draft.layer_ids=[2,30,58]'"
    )
