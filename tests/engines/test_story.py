"""The story as verdicts: each run of pytest that the issue names, judged on SGLang 0.5.9 and 0.5.23."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from eagle_contracts.report.columns import COLUMNS
from eagle_contracts.report.terminal import render
from eagle_contracts.verdict import Verdict

from .stories import ROOT, Engines, advice, summary, text

KIMI = ROOT / "contracts" / "kimi_k25" / "sglang_capture_offset.yaml"
QWEN3 = ROOT / "contracts" / "qwen3" / "sglang_capture_offset.yaml"
OLD, PATCHED, NEW = "slots[sglang-0.5.9]", "slots[sglang-0.5.9+embed]", "slots[sglang-0.5.23]"
Verdicts = Mapping[str, Verdict]


RUNS = {
    "old ids": (KIMI, "draft.layer_ids=[2,30,58]"),
    "no rule": (KIMI, "draft.layer_ids=[2,30,58]", "trained.taps={hidden_states: [1,30,58]}"),
    "wrong fix": (KIMI, "draft.layer_ids=[-1,2,30]"),
    "relabelled": (KIMI, "trained.taps={hidden_states: [0,3,31]}"),
    "qwen3": (QWEN3, "draft.layer_ids=[-1,2,18]"),
}


@pytest.fixture(scope="module")
def story(engines: Engines) -> Mapping[str, Verdicts]:
    """The verdicts of every run above."""
    return engines.judged_all(RUNS)


@pytest.fixture
def old_ids(story: Mapping[str, Verdicts]) -> Verdicts:
    """The list that was right on 0.5.9, everywhere."""
    return story["old ids"]


@pytest.fixture
def wrong_fix(story: Mapping[str, Verdicts]) -> Verdicts:
    """The story's fix, everywhere."""
    return story["wrong fix"]


@pytest.fixture
def relabelled(story: Mapping[str, Verdicts]) -> Verdicts:
    """The claim changed to what someone believed, serving left alone."""
    return story["relabelled"]


SHIFTED = """\
shifted: every slot holds the state one layer earlier than declared (-1): h[2], h[30], h[58] where
  h[3], h[31], h[59] are declared

slots      {hidden_states: [3, 31, 59]}  contracts/kimi_k25/pipeline.yaml:5
layer_ids  [2, 30, 58]  --contracts-set draft.layer_ids
engine     sglang 0.5.23, DeepseekV3ForCausalLM twin of 61 layers, 43 tokens, cpu

slot 0  declared h[3] (contracts/kimi_k25/pipeline.yaml:5), holds h[2]
        error h[2] 3.3e-07, next best h[3] 6.4e-01 (tolerance 1e-04)
        declared       3.803      1.632      2.665      -1.19     -0.503 ...  norm 22.21
        observed       2.661      1.462      3.328      1.951     0.3393 ...  norm 16.83
        smallest tolerance that would pass: 6.4e-01, and another state would still fit better

slot 1  declared h[31] (contracts/kimi_k25/pipeline.yaml:5), holds h[30]
        error h[30] 2.0e-06, next best h[29] 1.6e-01 (tolerance 1e-04)
        declared       8.977      3.452       10.2     -5.335     -1.238 ...  norm 76.21
        observed       11.36      3.465      9.808     -7.316     -3.059 ...  norm 74.98
        smallest tolerance that would pass: 1.6e-01, and another state would still fit better

slot 2  declared h[59] (contracts/kimi_k25/pipeline.yaml:5), holds h[58]
        error h[58] 2.9e-06, next best h[59] 1.1e-01 (tolerance 1e-04)
        declared       10.91      2.466      23.32     0.6846      17.89 ...  norm 103.8
        observed       10.65      3.242      22.29     0.7938      17.91 ...  norm 103.2
        smallest tolerance that would pass: 1.1e-01, and another state would still fit better

write draft.layer_ids: [3, 31, 59]
  at contracts/kimi_k25/pipeline.yaml:9, environment sglang-0.5.23, where it stands already: drop
  the flag; verified by running the engine

then run:
  pytest --contracts 'contracts/kimi_k25/sglang_capture_offset.yaml::slots[sglang-0.5.23]' \\
    --contracts-set 'draft.layer_ids=[3,31,59]'"""


def test_an_upgrade_shifts_the_right_list(old_ids: Verdicts) -> None:
    """[2, 30, 58] holds on 0.5.9, patched or not, and is one layer early on 0.5.23; all of the report is fixed here."""
    assert summary(old_ids) == {OLD: "passed", PATCHED: "passed", NEW: "shifted"}
    assert advice(old_ids[NEW]) == [[3, 31, 59]]
    assert _without_values(render(old_ids[NEW])) == _without_values(SHIFTED)


def _without_values(report: str) -> str:
    """Leave out what another processor rounds differently: errors at the noise's size, and the first values."""
    quiet = re.sub(r"(error h\[\d+\]) \d\.\de-0[567]", r"\1 NOISE", report)
    return re.sub(r"(declared|observed) +(-?[\d.]+ +){5}\.\.\.", r"\1 VALUES", quiet)


def test_a_list_that_no_rule_gives_is_found(story: Mapping[str, Verdicts]) -> None:
    """For h[1], h[30], h[58] 0.5.9 is told its shifted list, and 0.5.23 the one order that works there."""
    verdicts = story["no rule"]
    assert summary(verdicts) == {OLD: "other_state", PATCHED: "other_state", NEW: "other_state"}
    assert advice(verdicts[OLD]) == advice(verdicts[PATCHED]) == [[0, 29, 57]]
    assert advice(verdicts[NEW]) == [[30, 58, 1]]


def test_the_wrong_fix_is_named(wrong_fix: Verdicts) -> None:
    """Where the engine was patched to allow it, [-1, 2, 30] puts the embedding first and moves the others along."""
    assert summary(wrong_fix) == {OLD: "engine_refused", PATCHED: "embedding_in_slot", NEW: "engine_refused"}
    assert wrong_fix[PATCHED].sentence == (
        "slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1"
    )
    assert "patched contracts/kimi_k25/patches/capture_embedding.py (diff " in text(wrong_fix[PATCHED])


def test_a_refusal_is_in_the_engines_own_words(wrong_fix: Verdicts) -> None:
    """Each engine's exception, the line that raised it, and the id that it is about."""
    assert wrong_fix[OLD].sentence == (
        "the engine raised TypeError at the forward pass: unsupported operand type(s) for +: 'Tensor' and 'NoneType'"
    )
    assert "models/deepseek_v2.py:2728: aux_hidden_states.append(hidden_states + residual)" in text(wrong_fix[OLD])
    assert wrong_fix[NEW].sentence == (
        "the engine raised RuntimeError at the forward pass: captured 2 of 3 aux hidden states"
    )
    cause = (
        "likely cause: -1. Without it the engine accepts [2, 30]: this engine cannot capture what it asks for, the "
        "embedding for instance."
    )
    assert all(cause in text(wrong_fix[name]) for name in (OLD, NEW))


def test_the_wrong_fix_is_always_corrected(wrong_fix: Verdicts) -> None:
    """Every environment is told its own right list, and where to write it."""
    assert {name: advice(verdict) for name, verdict in wrong_fix.items()} == {
        OLD: [[2, 30, 58]],
        PATCHED: [[2, 30, 58]],
        NEW: [[3, 31, 59]],
    }
    assert (
        "write draft.layer_ids: [3, 31, 59] at contracts/kimi_k25/pipeline.yaml:9, environment sglang-0.5.23, "
        "where it stands already: drop the flag; verified "
        "by running the engine then run: pytest --contracts "
        "'contracts/kimi_k25/sglang_capture_offset.yaml::slots[sglang-0.5.23]' \\ --contracts-set "
        "'draft.layer_ids=[3,31,59]'"
    ) in text(wrong_fix[NEW])


def test_a_relabelled_claim_is_doubted_first(relabelled: Verdicts) -> None:
    """When all of serving shows the same other states, the claim comes first, and ids only as if it is right."""
    assert summary(relabelled) == {OLD: "other_state", PATCHED: "other_state", NEW: "other_state"}
    doubt = (
        "The claim may be what is wrong, not serving: with the ids of its own `set`, every environment shows h[3], "
        "h[31], h[59] (sglang-0.5.9, sglang-0.5.9+embed, sglang-0.5.23). Look first at what was trained. If it was "
        "h[3], h[31], h[59], write trained.taps: {hidden_states: [3, 31, 59]} at contracts/kimi_k25/pipeline.yaml:5 "
        "and change no id."
    )
    for verdict in relabelled.values():
        before, found, after = text(verdict).partition(doubt)
        assert found and "write draft.layer_ids" not in before
        assert ("write draft.layer_ids" in after) == ("only if the claim is right" in after)


def test_the_wrong_fix_is_printed_only_if_the_claim_is_right(relabelled: Verdicts) -> None:
    """The lists that give a relabelled claim are found, or said not to exist, and none is plain advice."""
    assert advice(relabelled[OLD]) == []
    assert "no list that was tried expresses these states (15 were run)" in text(relabelled[OLD])
    assert advice(relabelled[PATCHED]) == [[-1, 2, 30]]
    assert advice(relabelled[NEW]) == [[0, 3, 31]]
    assert text(relabelled[NEW]).endswith(
        "then run: pytest --contracts contracts/kimi_k25 --contracts-set 'trained.taps={hidden_states: [3, 31, 59]}'"
    )


def test_reports_fit_their_columns_and_hold_no_trace(story: Mapping[str, Verdicts]) -> None:
    """Nothing that is printed is wider than 100 columns or shows our own code."""
    reports = [render(verdict) for verdicts in story.values() for verdict in verdicts.values()]
    assert max(len(line) for report in reports for line in report.splitlines()) <= COLUMNS
    assert not any(word in report for report in reports for word in ("Traceback", "<sent>", "eagle_contracts/"))


def test_on_qwen3_the_embedding_is_taken_in_silence_and_caught(story: Mapping[str, Verdicts]) -> None:
    """Neither engine refuses -1 on this class; both captures are named and corrected."""
    verdicts = story["qwen3"]
    assert summary(verdicts) == {OLD: "embedding_in_slot", NEW: "embedding_in_slot"}
    for verdict in verdicts.values():
        assert verdict.sentence == "slot 0 holds the embedding; slots 1 and 2 hold the states trained for slots 0 and 1"
        assert advice(verdict) == [[2, 18, 33]]
        written = "write draft.layer_ids: [2, 18, 33] at contracts/qwen3/draft.config.json:17, "
        written += "where it stands already: drop the flag; "
        assert written in text(verdict)
