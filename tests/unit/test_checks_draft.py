"""`first_step`, `later_steps`, `fc_in`, `pairing`, `config`, `reference`: what a draft reads."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_contracts.real_draft import RealWidth
from eagle_contracts.spec.draft_config import Unread
from eagle_contracts.spec.errors import SpecError

from .observations import REFUSED, WIDTH, check, identified, observation, said

FIRST = {"reads": "slots x target", "fc": "once", "slots": {"hidden_states": [3, 31, 59]}}
LATER = {"reads": "draft", "fc": "never"}
PROMISES: dict[str, object] = {
    "first_step": FIRST,
    "later_steps": LATER,
    "fc_in": "slots x target",
    "pairing": "next_token",
    "config": "as_written",
    "reference": {"within": 1e-4},
}
IDS = "eagle_aux_hidden_state_layer_ids"
Said = list[tuple[str | None, str]]


def step(width: int, *fc: int, rows: int = 32) -> dict[str, Any]:
    return {"read": [rows, width], "fc": [[rows, one] for one in fc]}


def later(chosen: int, at: int, **changes: int) -> dict[str, int]:
    """A pair of a later step, as it should be but for the changes."""
    return {"token": chosen, "wanted": chosen, "position": at, "wanted_position": at, **changes}


def seen(**changes: Any) -> Any:
    """A draft that does everything right, with a change."""
    held = changes.pop("held", (3, 31, 59))
    given = {
        "steps": [step(192, 192), step(64, rows=3), step(64, rows=3)],
        "fed_back": [0.0, 0.0],
        "strange": None,
        "later": [[later(8, 3)], [later(6, 4)]],
        "switches": {},
        "behaves": {"norm_before_residual": False, "norm_output": False},
        "draft_width": 64,
        "fc_in": 192,
        "fed_width": 192,
        "own_error": 0.0,
        "pairs": [{"wanted": [8, 9, 5], "tokens": [8, 9, 5], "positions": [0, 1, 2], "error": 0.0}],
        "readers": {"ids": [3, 31, 59], "fc": 3.0, "buffer": 3.0},
        "written": {"use_aux_hidden_state": True, f"eagle_config.{IDS}": [3, 31, 59]},
        "reference": [{"logits": 1e-7, "hidden": 1e-7}, {"logits": 1e-7, "hidden": 1e-7}],
        "slots": [identified(one) for one in held],
        "rows": 32,
        "total_width": len(held) * WIDTH,
        "width": WIDTH,
    }
    return observation(**{**given, **changes})


def told(kind: str, **changes: Any) -> Said:
    return said(kind, PROMISES[kind], seen(**changes), real_draft=7168)


@pytest.mark.parametrize("kind", PROMISES)
def test_a_draft_that_is_right(kind: str) -> None:
    """Nothing is said of it, by any promise."""
    assert told(kind) == []


def test_a_draft_in_fewer_bits_is_held_to_what_they_allow() -> None:
    """On a twin in bfloat16 a promise of 1e-4 is one of 2e-2, since no right engine keeps more."""
    for error, diagnoses in ((1.9e-2, []), (2.1e-2, ["altered"])):
        steps = [{"logits": error, "hidden": 1e-3}]
        found = said("reference", PROMISES["reference"], seen(reference=steps, behaves=None), dtype="bfloat16")
        assert [diagnosis for diagnosis, _ in found] == diagnoses


def test_a_first_step_as_wide_as_the_draft_skips_fc() -> None:
    """It is what the engine lets pass, and both the promise and the reference name it."""
    narrow = {"steps": [step(64), step(64)], "fed_back": [0.0], "fed_width": 64, "reference": None, "held": (59,)}
    sentence = (
        "step 1 reads 64 values a token, as wide as the draft itself, so the engine skips fc without a word; slots x "
        "target is 192 on the twin (21504 on the real model). From step 2 on that width is right, at step 1 it is not"
    )
    assert told("first_step", **narrow) == told("reference", **narrow) == [("fc_skipped", sentence)]


def test_states_of_the_first_step_are_identified() -> None:
    """A right width with other states in it is diagnosed as a capture is."""
    assert [diagnosis for diagnosis, _ in told("first_step", held=(31, 3, 59))] == ["permuted"]
    assert [diagnosis for diagnosis, _ in told("first_step", held=(2, 30, 58))] == ["shifted"]
    assert [diagnosis for diagnosis, _ in told("first_step", held=(0, 3, 31))] == ["embedding_in_slot"]


@pytest.mark.parametrize(
    ("first", "diagnosis", "sentence"),
    [
        (step(128, 128), "missing_slot", "step 1 reads 128 values a token where slots x target is 192"),
        (step(200, 200), "wrong_width", "step 1 reads 200 values a token where slots x target is 192"),
        (step(192, 192, 192), "fc_repeated", "step 1 calls fc 2 times, and fc: once is promised"),
        (
            step(192),
            "fc_skipped",
            "step 1 reads 192 values a token and the engine skips fc without a word; slots x target is 192",
        ),
    ],
)
def test_a_first_step_of_another_width(first: dict[str, Any], diagnosis: str, sentence: str) -> None:
    """What an engine takes without an error is told by its width and by how often fc ran."""
    [(found, words)] = told("first_step", steps=[first, step(64)])
    assert (found, words.partition(" on the twin")[0]) == (diagnosis, sentence)


def test_the_draft_reads_its_own_state_later_and_that_is_right() -> None:
    """Who promises slots x target there is told that the narrow width is right, and what to write."""
    promise = {"reads": "slots x target", "fc": "once"}
    sentence = (
        "step 2 reads 64 values a token where slots x target is 192. 64 (7168 on the real model) is right: from step 2 "
        "on the draft reads its own state and skips fc; only step 1 reads slots x target. Write reads: draft, fc: never"
    )
    assert said("later_steps", promise, seen(), real_draft=7168) == [("wrong_width", sentence)]
    [(_, narrow)] = said("later_steps", promise, seen(), real_draft=2048)
    assert "64 (2048 on the real model) is right" in narrow


def test_a_later_step_that_calls_fc() -> None:
    """A later step of another width is one that fc reads again; one of the right width can call it too."""
    sentence = "step 3 reads 192 values a token and calls fc once, where draft is 64 and fc: never is promised"
    assert told("later_steps", steps=[step(192, 192), step(64), step(192, 192)]) == [("wrong_width", sentence)]
    again = "step 2 reads 64 values a token and calls fc once, where draft is 64 and fc: never is promised"
    assert told("later_steps", steps=[step(192, 192), step(64, 192)]) == [("fc_repeated", again)]


STRANGE = {"rows": 1, "of": 32, "requests": [1], "error": 0.8, "request": 1, "position": 4, "holds": None}


@pytest.mark.parametrize(
    ("changes", "diagnosis", "held"),
    [
        ({}, "other_state", "none of the rows that were handed over"),
        ({"holds": {"nothing": True}}, "other_state", "zeros"),
        ({"holds": {"order": [1, 0, 2]}}, "permuted", "its slots in the order [1, 0, 2]"),
        (
            {"holds": {"request": 0, "position": 4}},
            "wrong_request",
            "the states of position 4 of request 0",
        ),
        (
            {"holds": {"request": 1, "position": 3}},
            "other_state",
            "the states of position 3 of request 1",
        ),
    ],
)
def test_fc_that_reads_something_else_in_a_row(changes: dict[str, Any], diagnosis: str, held: str) -> None:
    """One row of many: what the slots hold on the whole does not show it."""
    sentence = (
        "in 1 of 32 rows fc does not read the states that the draft was handed, nor these after the draft's own norms; "
        f"the first is position 4 of request 1, which holds {held} (relative error 8.0e-01)"
    )
    plain = {"reads": "slots x target", "fc": "once"}
    assert said("first_step", plain, seen(strange={**STRANGE, **changes})) == [(diagnosis, sentence)]
    assert told("first_step", strange={**STRANGE, **changes}) == [(diagnosis, sentence)]


def test_fc_that_reads_something_else_in_most_rows() -> None:
    """Then the states are identified first, where the contract names some; else it is told all the same."""
    most = {**STRANGE, "rows": 20}
    assert [d for d, _ in told("first_step", strange=most, held=(31, 3, 59))] == ["permuted"]
    assert [d for d, _ in told("first_step", strange=most)] == ["other_state"]
    [(diagnosis, sentence)] = told("first_step", strange={**STRANGE, "error": None})
    assert diagnosis == "unknown_state"
    assert sentence.endswith("position 4 of request 1, which holds values that are not numbers")


def test_a_later_step_that_reads_another_state() -> None:
    """Step 2 reads exactly what step 1 handed on."""
    sentence = "step 3 does not read the state that step 2 handed on (off by up to 2.0e+00)"
    assert told("later_steps", fed_back=[0.0, 2.0]) == [("other_state", sentence)]
    [(_, shape)] = told("later_steps", fed_back=[None])
    assert shape.endswith("(another shape)")
    [(_, number)] = told("later_steps", fed_back=[1e30, 0.0])
    assert number == "step 2 does not read the state that step 1 handed on (values that are not numbers)"


def test_a_draft_without_later_steps() -> None:
    """Nothing seen is nothing kept."""
    assert [d for d, _ in told("later_steps", steps=[step(192, 192)], fed_back=[])] == ["missing_tokens"]


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (
            {"tokens": [7, 8, 9]},
            "request 0: the state of position 0 is paired with token 7, and the token at 1 is 8",
        ),
        ({"positions": [1, 2, 3]}, "request 0: the pairs stand at positions [1, 2, 3], not 0 to 2"),
        (
            {"error": None},
            "request 0: the states are of another shape than those that were handed over",
        ),
        (
            {"error": 1e30},
            "request 0: the states are not the rows that were handed over, in their order (values that are not "
            "numbers)",
        ),
        (
            {"error": 0.5},
            "request 0: the states are not the rows that were handed over, in their order (off by up to 5.0e-01)",
        ),
    ],
)
def test_a_state_beside_the_wrong_token(pair: dict[str, Any], sentence: str) -> None:
    """The state of position p goes with the token at p + 1, at position p."""
    right = {"wanted": [8, 9, 5], "tokens": [8, 9, 5], "positions": [0, 1, 2], "error": 0.0}
    assert told("pairing", pairs=[{**right, **pair}]) == [("mispaired", sentence)]


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([[later(8, 3)], [later(6, 4, token=7)]], "request 0: step 3 reads token 7, and step 2 chose token 6"),
        ([[later(8, 3, position=4)]], "request 0: step 2 stands at position 4, not at 3"),
        ([[later(8, 3), later(5, 9, position=8)]], "request 1: step 2 stands at position 8, not at 9"),
    ],
)
def test_a_later_step_beside_the_wrong_token(pairs: Any, sentence: str) -> None:
    """It reads the token that the step before chose, in the target's vocabulary, one position on."""
    assert told("pairing", later=pairs) == [("mispaired", sentence)]


def test_a_key_that_the_engine_does_not_go_by() -> None:
    """What a draft was trained with is no secret of the trainer's: the step's numbers tell what the engine runs."""
    sentence = (
        "norm_before_residual is true in the draft's config, and the draft's numbers are those of "
        "norm_before_residual: false: this engine does not go by the key"
    )
    assert told("config", switches={"norm_before_residual": True}) == [("config_ignored", sentence)]
    assert told("config", switches={"norm_before_residual": True}, behaves=None) == []
    assert told("config", switches={"norm_output": False}) == []


def test_ids_where_the_target_does_not_look() -> None:
    """At the top of the config the target's reader drops them without a word, and hands over its default states."""
    sentence = (
        f"{IDS} is [3, 31, 59] in the draft's config, and the target side reads no ids and falls back to its default; "
        "the target hands over other states than recorded (error 1.8e-01)"
    )
    found = told(
        "config",
        readers={"ids": None, "fc": 3.0, "buffer": 3.0},
        written={"use_aux_hidden_state": True, IDS: [3, 31, 59]},
        own_error=0.178,
    )
    assert found == [("config_ignored", sentence)]


@pytest.mark.parametrize(
    ("written", "readers", "sentence"),
    [
        (
            {"eagle_config.num_aux_hidden_states": 2},
            {"ids": None, "fc": 3.0, "buffer": 3.0},
            "eagle_config.num_aux_hidden_states says 2 states, and the draft class sized fc for 3",
        ),
        (
            {"num_aux_hidden_states": 4},
            {"ids": [3, 31, 59], "fc": 3.0, "buffer": 4.0},
            "num_aux_hidden_states says 4 states, and the draft class sized fc for 3",
        ),
        (
            {f"eagle_config.{IDS}": [3, 31], "num_aux_hidden_states": 3},
            {"ids": [3, 31], "fc": 2.0, "buffer": 2.0},
            "num_aux_hidden_states says 3 states, and the draft class sized fc for 2",
        ),
    ],
)
def test_a_count_that_its_reader_does_not_see(written: Any, readers: Any, sentence: str) -> None:
    """Each reader of the config has an order of precedence of its own; a value that one ignores is told."""
    [(diagnosis, words)] = told("config", written={"use_aux_hidden_state": True, **written}, readers=readers)
    assert (diagnosis, words) == ("config_ignored", sentence)


def test_a_config_without_ids() -> None:
    """The target's default is captured then; whether that was recorded is told by the states, not by the width."""
    nothing = {"written": {"use_aux_hidden_state": True}, "readers": {"ids": None, "fc": 3.0, "buffer": 3.0}}
    sentence = f"no {IDS} stands in the draft's config, and the target side falls back to its default"
    assert told("config", **nothing) == [("config_ignored", sentence)]
    moved = {**nothing, "own_error": 0.2, "own": own(2, 30, 58)}
    more = "; the target hands over other states than recorded (error 2.0e-01)"
    assert told("first_step", **moved) == [("config_ignored", sentence + more)]


def test_a_config_that_is_to_have_no_ids() -> None:
    """Where the contract says so, the engine's default is what was meant: a file without ids is no fault then."""
    nothing = {"written": {"use_aux_hidden_state": True}, "readers": {"ids": None, "fc": 3.0, "buffer": 3.0}}
    assert told("config", **nothing, by_default=True) == []
    assert [d for d, _ in told("config", **nothing, by_default=False)] == ["config_ignored"]


def own(*held: int) -> dict[str, Any]:
    return {"slots": [identified(one) for one in held], "total_width": len(held) * WIDTH, "width": WIDTH}


def test_ids_that_are_not_those_of_the_recorded_states() -> None:
    """The draft is given what was recorded, and serving would give it what its own config names: that is told."""
    head = "by the draft's config the target hands over other states than the contract read by from recorded"
    ids = {f"eagle_config.{IDS}": [2, 30, 58], "use_aux_hidden_state": True}
    given = {"written": ids, "readers": {"ids": [2, 30, 58], "fc": 3.0, "buffer": 3.0}, "own_error": 0.2}
    [(diagnosis, sentence)] = told("first_step", **given, own=own(2, 30, 58))
    assert diagnosis == "shifted"
    assert sentence.startswith(f"{head}: every slot holds the state one layer earlier than declared (-1)")
    without_slots = {"reads": "slots x target", "fc": "once"}
    found = said("first_step", without_slots, seen(**given, own=own(2, 30, 58)))
    assert found == [("other_state", f"{head} (error 2.0e-01)")]
    assert told("first_step", own_error=5e-5) == []


def test_keys_of_the_file_itself() -> None:
    """What `set` writes over for a run stands in the file all the same, and production reads that."""
    key = Unread(path=("eagle_config", "fc_norm"), sentence="fc_norm stands inside eagle_config", write="move it")
    found = said("config", "as_written", seen(), unread=(key,))
    assert found == [("config_ignored", "in the draft's config fc_norm stands inside eagle_config")]
    config = {"eagle_config": {IDS: [3, 31, 59], "fc_norm": True}}
    [(diagnosis, sentence)] = told("config", config=config)
    assert diagnosis == "config_ignored"
    assert sentence == "in the draft's config fc_norm stands inside eagle_config, where no reader looks for it"


def test_without_auxiliary_states_the_ids_have_no_reader() -> None:
    """Then the first step is what is wrong, not the place of the ids."""
    off = {"use_aux_hidden_state": False, f"eagle_config.{IDS}": [3, 31, 59]}
    assert told("config", written=off, readers={"ids": None, "fc": 3.0, "buffer": 1.0}) == []


def test_numbers_that_differ_from_the_plain_step() -> None:
    """The step, what differs, and how far."""
    errors = [{"logits": 1e-6, "hidden": 2e-6}, {"logits": 3e-4, "hidden": 5e-4}]
    sentence = "step 2's handed-on states differ from a plain torch step's by 5.0e-04 (relative; allowed: 1e-04)"
    assert told("reference", reference=errors, behaves=None) == [("altered", sentence)]
    switched = told("reference", reference=errors, behaves={"norm_before_residual": False, "norm_output": True})
    why = "; they are those of a step with norm_before_residual: false, norm_output: true"
    assert switched == [("altered", sentence + why)]
    assert [d for d, _ in told("reference", reference=[{"logits": 1e30, "hidden": 0.0}])] == ["altered"]


@pytest.mark.parametrize("kind", PROMISES)
def test_an_engine_that_stops_keeps_no_promise(kind: str) -> None:
    """A width that does not fit is told as such; another refusal as it is; no promise passes for want of evidence."""
    stopped = {**REFUSED, "stage": "the draft's first step", "type": "RuntimeError", "message": "shapes"}
    short = observation(refused=stopped, fed_width=128, fc_in=192)
    [(diagnosis, sentence)] = said(kind, PROMISES[kind], short)
    assert diagnosis == "missing_slot"
    assert sentence == (
        "the draft is given 128 values a token where slots x target is 192 on the twin (21504 on the real model), and "
        "the engine raised RuntimeError: shapes"
    )
    assert [d for d, _ in said(kind, PROMISES[kind], observation(refused=stopped, fed_width=100))] == ["wrong_width"]
    assert [d for d, _ in said(kind, PROMISES[kind], observation(refused=stopped, fed_width=192))] == ["engine_refused"]
    loading = observation(refused={**REFUSED, "stage": "building the target and the draft"}, fed_width=None)
    assert [d for d, _ in said(kind, PROMISES[kind], loading)] == ["engine_refused"]


def test_a_checkpoint_that_does_not_fit_is_explained() -> None:
    """An engine's own words are two sizes; one of them is known."""
    words = "Attempted to load weight (torch.Size([64, 192])) into parameter (torch.Size([64, 128]))"
    stopped = observation(refused={**REFUSED, "stage": "building the target and the draft", "message": words})
    [mismatch] = check("fc_in", "slots x target", stopped)
    assert (mismatch.diagnosis, mismatch.details[-1]) == (
        "engine_refused",
        "192 is how wide the checkpoint's fc is: slots x target on the twin (21504 on the real model). By its config "
        "the engine builds fc for another number or width of states",
    )


def test_the_real_width_is_held_against_config_and_checkpoint() -> None:
    """21504 for three states of 7168; the file that says otherwise is named, whatever the engine did."""
    right = (RealWidth(width=21504, where="config.json"), RealWidth(width=21504, where="model.safetensors (fc.weight)"))
    assert said("fc_in", "slots x target", seen(), real_fc=right) == []
    wrong = (right[0], RealWidth(width=14336, where="model.safetensors (fc.weight)"))
    sentence = (
        "fc reads 14336 values a token by model.safetensors (fc.weight), and slots x target is 21504 on the real model"
    )
    assert said("fc_in", "slots x target", seen(), real_fc=wrong) == [("missing_slot", sentence)]
    odd = (RealWidth(width=12288, where="config.json (num_aux_hidden_states)"),)
    assert [d for d, _ in said("fc_in", "slots x target", seen(), real_fc=odd)] == ["wrong_width"]
    none = (RealWidth(width=None, where="model.safetensors has no fc.weight"),)
    without = "model.safetensors has no fc.weight: an engine runs with whatever its fc holds then, some without a word"
    assert said("fc_in", "slots x target", seen(), real_fc=none) == [("missing_slot", without)]
    assert said("fc_in", "slots x target", seen(fc_in=256)) == [
        (
            "wrong_width",
            "the engine built fc for 256 values a token where slots x target is 192 on the twin (21504 on the real "
            "model)",
        )
    ]


@pytest.mark.parametrize(
    ("kind", "promise", "message"),
    [
        ("first_step", {"reads": "slots x target"}, "fc is missing"),
        ("first_step", {"reads": "slots x target", "fc": "twice"}, "fc takes once or never, not the text 'twice'"),
        ("first_step", {"reads": "slots x goal", "fc": "once"}, "a width is a product such as slots x target"),
        ("first_step", {"read": "draft", "reads": "draft", "fc": "once"}, "nothing here is called 'read'"),
        ("later_steps", "draft", "expected a map of reads, fc"),
        ("pairing", "same_token", "pairing takes next_token, not the text 'same_token'"),
        ("config", "right", "config takes as_written, not the text 'right'"),
        ("pairing", None, "pairing takes next_token, not nothing"),
        ("config", True, "config takes as_written, not true"),
        ("reference", {"within": "close"}, "within is a relative error such as 1.0e-4, not the text 'close'"),
    ],
)
def test_a_promise_that_cannot_be_read(kind: str, promise: object, message: str) -> None:
    """A mistake is told with what was expected."""
    with pytest.raises(SpecError) as caught:
        said(kind, promise, seen())
    assert message in caught.value.render()
