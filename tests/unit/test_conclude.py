"""The conclusion: one sentence a pipeline that says which side is wrong, from what the cases found out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eagle_contracts.conclude import Conclusion, conclude
from eagle_contracts.facts import CONCAT, DRAFT, DUMP, ORDER, PARITY, SERVE, Fact, State
from eagle_contracts.report.summary import write_summary

HERE = "contracts/kimi_k25"
CLAIM: tuple[State, ...] = (3, 31, 59)
EARLIER: tuple[State, ...] = (2, 30, 58)
SWAPPED: tuple[State, ...] = (31, 3, 59)
AUX = ("aux_0", "aux_1", "aux_2")
PATCH = f"{HERE}/patches/dump_hidden_states.py ({HERE}/dump_patch_layers.yaml:7)"
EXTRACT = f"{HERE}/stages/extract.py ({HERE}/extraction_ordering.yaml:7)"
JOIN = f"speculators.train.data:standardize_data_v1 ({HERE}/standardize_concat.yaml:7)"
AS_CLAIMED = f"serving gives h[3], h[31], h[59], as {HERE}/pipeline.yaml:5 says"


def fact(kind: str, **changes: Any) -> Fact:
    given: dict[str, Any] = {
        "pipeline": f"{HERE}/pipeline.yaml",
        "kind": kind,
        "contract": f"{HERE}/a_contract.yaml",
        "environment": "sglang-0.5.9",
        "claim": CLAIM,
        "claim_text": "hidden_states: [3, 31, 59]",
        "claim_where": f"{HERE}/pipeline.yaml:5",
        "layers": 61,
    }
    return Fact(**{**given, **changes})


def serve(states: tuple[State, ...] = CLAIM, environment: str = "sglang-0.5.9", **changes: Any) -> Fact:
    """What serving was seen to hand to the draft."""
    where = f"{HERE}/pipeline.yaml:{9 if environment.endswith('23') else 7}"
    return fact(SERVE, states=states, environment=environment, where=where, key="draft.layer_ids", **changes)


def dump(states: tuple[State, ...] = CLAIM, **changes: Any) -> Fact:
    file, _, where = PATCH.rstrip(")").partition(" (")
    return fact(DUMP, **{"states": states, "names": AUX, "file": file, "where": where, **changes})


def order(*names: str | None, **changes: Any) -> Fact:
    file, _, where = EXTRACT.rstrip(")").partition(" (")
    return fact(ORDER, names=names or (*AUX, "final"), file=file, where=where, **changes)


def concat(*names: str | None, **changes: Any) -> Fact:
    file, _, where = JOIN.rstrip(")").partition(" (")
    return fact(CONCAT, names=names or AUX, file=file, where=where, environment="speculators-0.6.0", **changes)


def said(*facts: Fact) -> tuple[str, str]:
    [one] = conclude(facts)
    return one.outcome, one.sentence


def test_both_sides_as_declared() -> None:
    """Where both sides give what the claim says, the sentence names the environments that were seen."""
    assert said(dump(), order(), concat(), serve(), serve(environment="sglang-0.5.23")) == (
        "agreed",
        "training and serving (sglang-0.5.9, sglang-0.5.23) both give the draft h[3], h[31], h[59], as "
        f"{HERE}/pipeline.yaml:5 says",
    )


def test_the_drafts_side_is_wrong_where_both_sides_are_right() -> None:
    """What the draft makes of the right states is nobody's list of ids."""
    fault = "mispaired: request 0: the state of position 0 is paired with token 7, and the token at 1 is 8"
    draft = fact(DRAFT, states=CLAIM, fault=fault, contract=f"{HERE}/draft_input_dims.yaml")
    head = (
        f"the draft's side is wrong: {HERE}/draft_input_dims.yaml in sglang-0.5.9 is broken ({fault}), and the states"
    )
    right = f"{head} in training and in serving (sglang-0.5.9) are right"
    assert said(dump(), order(), concat(), serve(), draft) == ("draft", right)
    alone = f"{head} that serving (sglang-0.5.9) captures are those that {HERE}/pipeline.yaml:5 says"
    assert said(serve(), draft) == ("draft", alone)
    assert said(dump(), serve(), fact(DRAFT, states=CLAIM))[0] == "agreed"
    assert said(dump(), serve(EARLIER), draft)[0] == "serving"


def test_environments_come_in_the_pipelines_order() -> None:
    """Whichever process was first, the sentence is the same."""
    _, sentence = said(dump(), serve(environment="sglang-0.5.23", rank=2), serve(environment="sglang-0.5.9", rank=0))
    assert "training and serving (sglang-0.5.9, sglang-0.5.23) both" in sentence


def test_a_wrong_claim() -> None:
    """Both sides agree with each other and not with the claim: the label is wrong, and no side is to be changed."""
    assert said(dump(EARLIER), order(), concat(), serve(EARLIER)) == (
        "claim",
        f"the declaration at {HERE}/pipeline.yaml:5 is wrong: training and serving both give the draft h[2], h[30], "
        "h[58], not h[3], h[31], h[59]. Write trained.taps: {hidden_states: [2, 30, 58]} there, and change neither "
        "side",
    )


def test_a_claim_is_rewritten_in_words_that_a_pipeline_takes() -> None:
    """The last state has a name: `hidden_states: [61]` would be refused, since it means two states."""
    _, sentence = said(dump((3, 61, "final_normed")), serve((3, 61, "final_normed")))
    assert "Write trained.taps: {hidden_states: [3, final, final_normed]} there" in sentence


def test_serving_is_wrong_in_one_environment() -> None:
    """Only the environment that is wrong is named, with the place of its ids."""
    assert said(dump(), order(), concat(), serve(), serve(EARLIER, "sglang-0.5.23")) == (
        "serving",
        f"serving is wrong: sglang-0.5.23 gives h[2], h[30], h[58] ({HERE}/pipeline.yaml:9), and training gave h[3], "
        f"h[31], h[59], as {HERE}/pipeline.yaml:5 says. Write the draft.layer_ids that the failing item names; do not "
        "change training",
    )


def test_serving_is_wrong_in_several_environments() -> None:
    """Every environment is named: one that refuses, and one whose slots hold nothing known."""
    _, sentence = said(dump(), serve(("refused",)), serve((0, 3, None), "sglang-0.5.23"))
    assert sentence.startswith(
        f"serving is wrong: sglang-0.5.9 gives nothing (the engine refuses) ({HERE}/pipeline.yaml:7); sglang-0.5.23 "
        f"gives h[0], h[3], an unknown state ({HERE}/pipeline.yaml:9), and training gave h[3], h[31], h[59], as"
    )


def test_the_dump_is_wrong() -> None:
    """Serving is as claimed and the files are not: the patch is named with what it writes."""
    assert said(dump(EARLIER), order(), concat(), serve()) == (
        "dump",
        f"the dump is wrong: {PATCH} writes h[2], h[30], h[58], and {AS_CLAIMED}. What was trained on these files was "
        "trained on other states than served",
    )


def test_the_dump_that_refuses_is_wrong() -> None:
    """An engine that raises with the patch leaves no files."""
    _, sentence = said(dump(("refused",), names=None), serve())
    assert sentence.startswith(f"the dump is wrong: {PATCH} writes nothing (the engine refuses), and serving gives")


def test_the_extraction_order_is_wrong() -> None:
    """The files are right, and the stage puts them in another order, which every later stage passes on."""
    assert said(dump(), order("aux_1", "aux_0", "aux_2", "final"), concat("aux_1", "aux_0", "aux_2"), serve()) == (
        "extraction",
        f"the extraction order is wrong: {EXTRACT} puts [aux_1, aux_0, aux_2, final], the dump holds the declared "
        f"states, and {AS_CLAIMED}",
    )


def test_a_final_state_in_front_is_the_extractions_fault() -> None:
    """The trainer drops the last tensor whatever it is: that the first is `final` is not the trainer's doing."""
    outcome, _ = said(dump(), order("final", *AUX), concat("final", "aux_0", "aux_1"), serve())
    assert outcome == "extraction"
    assert said(dump(), order("final", *AUX), serve())[0] == "extraction"


def test_another_requests_files_are_the_extractions_fault() -> None:
    """The order is right and the request is not: no state of the sample is a known one."""
    foreign = tuple(f"{name} of another request" for name in (*AUX, "final"))
    parity = fact(PARITY, states=(None, None, None))
    outcome, sentence = said(dump(), order(*foreign), concat(*foreign[:3]), parity, serve())
    assert outcome == "extraction"
    assert "puts [aux_0 of another request, aux_1 of another request," in sentence


def test_the_concatenation_is_wrong() -> None:
    """The stages before it are right, and the last slot was left in."""
    assert said(dump(), order(), concat(*AUX, "final"), serve()) == (
        "concat",
        f"the concatenation is wrong: {JOIN} joins [aux_0, aux_1, aux_2, final], the stages before it are right, and "
        f"{AS_CLAIMED}",
    )


def test_training_is_wrong_and_no_stage_was_seen() -> None:
    """With the trainer's batch alone the sentence says how to find the stage."""
    assert said(fact(PARITY, states=SWAPPED), serve()) == (
        "training",
        f"training is wrong: it gave h[31], h[3], h[59], and {AS_CLAIMED}. Run the contracts of the dump and of the "
        "stages after it to see where it enters",
    )


def test_a_stage_that_breaks_its_contract_is_named_where_all_orders_are_right() -> None:
    """Rows are missing in the dump: nothing is in another order, and the concatenation is not to blame."""
    fault = "missing_tokens: request 0's aux_0 has 5 rows for 11 tokens"
    parity = fact(PARITY, states=(None, None, None))
    assert said(dump(fault=fault), order(), concat(), parity, serve()) == (
        "dump",
        f"the dump is wrong: {PATCH} breaks its contract ({fault}), and {AS_CLAIMED}",
    )


def test_the_first_stage_that_breaks_its_contract_is_named() -> None:
    """A sample without `final` makes the trainer drop a slot: the trainer is right, and precision moves no slot."""
    late = dump(fault="wrong_dtype: aux_0.pt is bfloat16")
    short = order(*AUX, fault="missing_slot: final is nowhere in it")
    assert said(late, short, concat("aux_0", "aux_1", fault="missing_slot: aux_2 is nowhere in it"), serve()) == (
        "extraction",
        f"the extraction is wrong: {EXTRACT} breaks its contract (missing_slot: final is nowhere in it), and "
        f"{AS_CLAIMED}",
    )


def test_agreement_does_not_hide_a_broken_promise() -> None:
    """The states are right, and a stage is not: no sentence says that all is well."""
    fault = "wrong_request: with larger_batch, hidden_states of request 0 is [aux_0 of request 4], and was another"
    assert said(dump(), order(fault=fault), concat(), serve()) == (
        "extraction",
        f"the extraction is wrong: {EXTRACT} breaks its contract ({fault}), and the states in training and in serving "
        f"(sglang-0.5.9) are those that {HERE}/pipeline.yaml:5 says",
    )
    assert said(dump(fault="wrong_dtype: aux_0.pt is bfloat16"))[1].endswith("and serving was not observed here")


def test_both_sides_wrong_in_the_same_way() -> None:
    """The dump holds the claim, and extraction and serving both swap: agreeing with each other makes neither right."""
    assert said(
        dump(), order("aux_1", "aux_0", "aux_2", "final"), concat("aux_1", "aux_0", "aux_2"), serve(SWAPPED)
    ) == (
        "both",
        "both sides are wrong in the same way: training and serving give the draft h[31], h[3], h[59] where "
        f"{HERE}/pipeline.yaml:5 declares h[3], h[31], h[59]. In training it enters at {EXTRACT}",
    )


def test_both_sides_without_residual_are_no_wrong_claim() -> None:
    """A sub-layer's output cannot be declared, so the advice is not to declare it."""
    held: tuple[State, ...] = ("mlp output of layer 2", 31, 59)
    outcome, sentence = said(dump(held), serve(held))
    assert outcome == "both"
    assert sentence.endswith(f"In training it enters at {PATCH}")


def test_two_unknown_states_do_not_agree() -> None:
    """That nothing is known of either side is no agreement between them."""
    assert said(dump((None, 31, 59)), serve((None, 31, 59)))[0] == "undecided"


def test_three_different_lists_are_undecided() -> None:
    """No two of training, serving and claim agree: the sentence lists them all and says what to do first."""
    assert said(dump(SWAPPED), serve(EARLIER)) == (
        "undecided",
        "undecided: training gave h[31], h[3], h[59], serving gives h[2], h[30], h[58] in sglang-0.5.9, and "
        f"{HERE}/pipeline.yaml:5 declares h[3], h[31], h[59]: no two of the three agree everywhere. Correct the side "
        "whose item fails first in the pipeline's order, then run again",
    )


def test_environments_that_differ_are_undecided() -> None:
    """One environment agrees with training, the other with the claim."""
    assert said(dump(EARLIER), serve(EARLIER), serve(environment="sglang-0.5.23")) == (
        "undecided",
        "undecided: training gave h[2], h[30], h[58], serving gives h[2], h[30], h[58] in sglang-0.5.9; h[3], h[31], "
        f"h[59] in sglang-0.5.23, and {HERE}/pipeline.yaml:5 declares h[3], h[31], h[59]: no two of the three agree "
        "everywhere. Bring serving's environments to one list first, then run again",
    )


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            [serve()],
            f"serving (sglang-0.5.9) gives h[3], h[31], h[59], as {HERE}/pipeline.yaml:5 says; what training gave was "
            "not observed here, so the two sides are not compared",
        ),
        (
            [serve(EARLIER)],
            f"undecided: serving gives h[2], h[30], h[58] in sglang-0.5.9 where {HERE}/pipeline.yaml:5 declares h[3], "
            "h[31], h[59]; whether the claim or serving is wrong shows when training is observed too: run the "
            "contracts of its dump",
        ),
        (
            [dump(), order()],
            f"training gave h[3], h[31], h[59], as {HERE}/pipeline.yaml:5 says; serving was not observed here, so the "
            "two sides are not compared",
        ),
        (
            [dump(EARLIER)],
            f"undecided: training gave h[2], h[30], h[58] where {HERE}/pipeline.yaml:5 declares h[3], h[31], h[59]; "
            "whether the claim or training is wrong shows when serving is observed too: run its capture contract",
        ),
        (
            [order()],
            "undecided: neither training nor serving was observed; run the whole pipeline's contracts",
        ),
    ],
    ids=["serving", "serving-wrong", "training", "training-wrong", "a-stage"],
)
def test_a_partial_selection_is_undecided(facts: list[Fact], sentence: str) -> None:
    """A run of one side says what it saw, and what to run to decide."""
    assert said(*facts) == ("undecided", sentence)


def test_names_are_followed_through_the_stages_that_were_seen() -> None:
    """Files may be called as the user likes; what is trained follows from the last stage that was seen."""
    files = ("layer_3", "layer_31", "layer_59")
    facts = (dump(names=files), order("layer_59", "layer_31", "layer_3", "last"))
    _, sentence = said(*facts)
    assert sentence.startswith("undecided: training gave h[59], h[31], h[3] where")
    assert said(*facts, concat(*files))[1].startswith("training gave h[3], h[31], h[59], as")


def test_the_trainers_batch_outranks_the_names() -> None:
    """What parity saw by value is what training gave, whatever the stages' names say."""
    assert said(dump(), order(), concat(), fact(PARITY, states=SWAPPED), serve())[0] == "training"


def test_each_pipeline_has_its_own_sentence() -> None:
    """Facts of two pipelines are not mixed, and the order is that in which they came."""
    other = serve(EARLIER, pipeline="contracts/qwen3/pipeline.yaml")
    found = conclude([other, serve(), dump()])
    assert [(one.pipeline, one.outcome) for one in found] == [
        ("contracts/qwen3/pipeline.yaml", "undecided"),
        (f"{HERE}/pipeline.yaml", "agreed"),
    ]
    assert conclude([]) == []
    assert isinstance(found[0], Conclusion)


def test_facts_survive_a_trip_through_json() -> None:
    """What an xdist worker sends is what it knew, tuples and nothings included."""
    for one in (serve(("refused",), said=("a line",), rank=2), dump((0, "final_normed", None)), order("aux_0", None)):
        assert Fact.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_note_is_told_once_and_whatever_the_outcome() -> None:
    """What was run is not what the file has: both the capture and the draft know, and a reader needs it once."""
    lines: list[str] = []
    told = [
        fact(kind, notes=("a was run with the ids [1] of p.yaml:3, and d.json:2 has [2]",)) for kind in (SERVE, DRAFT)
    ]
    write_summary(told, lines.append, lambda *_, **__: None)
    assert [line for line in lines if "note" in line] == [
        "note: a was run with the ids [1] of p.yaml:3, and d.json:2 has [2]."
    ]
    assert Fact.from_json(json.loads(json.dumps(told[0].to_json()))) == told[0]
