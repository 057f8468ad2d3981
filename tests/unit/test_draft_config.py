"""Keys of a draft's config.json that say something to nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.spec.draft_config import IDS, unread

ROOT = Path(__file__).parents[2]
RIGHT: dict[str, Any] = {
    "hidden_size": 4096,
    "rope_theta": 500000.0,
    "output_hidden_states": False,
    "norm_before_residual": True,
    "eagle_config": {IDS: [2, 18, 33], "use_aux_hidden_state": True},
}


def found(**changes: Any) -> list[tuple[str, str, str]]:
    config = {key: value for key, value in {**RIGHT, **changes}.items() if value is not ...}
    return [(".".join(one.path), one.sentence, one.write) for one in unread(config)]


def nested(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**RIGHT["eagle_config"], **changes}.items() if value is not ...}


def test_a_config_as_published_drafts_have_it() -> None:
    """Nothing to say, nor of the configs of this repository."""
    assert found() == []
    for path in sorted((ROOT / "contracts").glob("*/draft.config.json")):
        assert list(unread(json.loads(path.read_text()))) == []


@pytest.mark.parametrize(
    "harmless",
    [
        {"use_aux_hidden_state": True},
        {"eagle_config": nested(use_aux_hidden_state=...)},
        {IDS: [2, 18, 33]},
        {"eagle_config": nested(norm_before_fc=True)},
        {"eagle_config": nested(rope_theta=500000.0)},
        {"eagle_config": ..., "use_aux_hidden_state": True},
        {"target_layer_ids": [1, 2]},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"sliding_window": None},
        {"rope_parameters": {"rope_theta": 500000.0}},
        {"attention_bias": False},
    ],
)
def test_what_reads_the_same_wherever_it_is_looked_for(harmless: dict[str, Any]) -> None:
    """A copy of a value, or the default written out, misleads nobody."""
    assert found(**harmless) == []


@pytest.mark.parametrize(
    ("changes", "path", "sentence", "write"),
    [
        (
            {"eagle_config": nested(**{IDS: ...}), IDS: [2, 18, 33]},
            IDS,
            f"{IDS} stands at the top, where the target's side does not look; it falls back to its default",
            "move it inside eagle_config, where engines look",
        ),
        (
            {IDS: [1, 17, 32]},
            IDS,
            f"{IDS} is [1, 17, 32] at the top and [2, 18, 33] inside eagle_config",
            "keep the one that was meant, inside",
        ),
        (
            {"use_aux_hidden_state": False},
            "use_aux_hidden_state",
            "use_aux_hidden_state is false at the top, where no reader looks; inside eagle_config it is true",
            "move it inside eagle_config, where engines look",
        ),
        (
            {"use_aux_hidden_state": False, "eagle_config": nested(use_aux_hidden_state=...)},
            "use_aux_hidden_state",
            "use_aux_hidden_state is false at the top, where no reader looks; inside eagle_config it is nothing, which "
            "means true",
            "move it inside eagle_config, where engines look",
        ),
        (
            {"eagle_config": nested(fc_norm=True)},
            "eagle_config.fc_norm",
            "fc_norm stands inside eagle_config, where no reader looks for it",
            "move it to the top, where engines look",
        ),
        (
            {"eagle_config": nested(rope_theta=10000.0)},
            "eagle_config.rope_theta",
            "rope_theta stands inside eagle_config, where no reader looks for it; at the top it is 500000.0",
            "move it to the top, where engines look",
        ),
        (
            {"eagle_config": nested(use_aux_hidden_state="false")},
            "eagle_config.use_aux_hidden_state",
            'use_aux_hidden_state is the text "false": engines take it for true',
            "write false, without quotation marks",
        ),
        (
            {"norm_output": 1},
            "norm_output",
            "norm_output is 1, no boolean: engines take it for true",
            "write true, without quotation marks",
        ),
        (
            {"eagle_config": nested(**{IDS: ..., IDS[:-1]: [2, 18, 33]})},
            f"eagle_config.{IDS[:-1]}",
            f"{IDS[:-1]} is a key that no reader has: did you mean {IDS}?",
            f"write {IDS} for {IDS[:-1]}, inside eagle_config",
        ),
        (
            {"eagle_config": nested(**{IDS: ..., "target_layer_ids": [2, 18, 33]})},
            "eagle_config.target_layer_ids",
            f"target_layer_ids is a key that no reader has: did you mean {IDS}?",
            f"write {IDS} for target_layer_ids, inside eagle_config",
        ),
        (
            {"num_aux_hidden_state": 3},
            "num_aux_hidden_state",
            "num_aux_hidden_state is a key that no reader has: did you mean num_aux_hidden_states?",
            "write num_aux_hidden_states for num_aux_hidden_state, at the top",
        ),
        (
            {"eagle_config": ..., "eagle_confg": RIGHT["eagle_config"]},
            "eagle_confg",
            "eagle_confg is a key that no reader has: did you mean eagle_config?",
            "write eagle_config for eagle_confg, at the top",
        ),
        (
            {"eagle_config": nested(norm_before_residual=False)},
            "eagle_config.norm_before_residual",
            "norm_before_residual stands inside eagle_config, where no reader looks for it; at the top it is true",
            "take it out: SGLang reads no norm_before_residual anywhere",
        ),
        (
            {"architectures": ["LlamaForCausalLMEagle3"], "attention_bias": True},
            "attention_bias",
            "attention_bias is true, and LlamaForCausalLMEagle3 builds q, k and v without a bias; only o_proj gets one",
            "write false: serve a draft trained without",
        ),
        (
            {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "eagle_config": nested(norm_before_fc=True)},
            "eagle_config.norm_before_fc",
            "norm_before_fc is true, and Eagle3DeepseekV2ForCausalLM has no reader of it",
            "take it out; for a norm of each state before fc that class reads fc_norm at the top",
        ),
        (
            {"sliding_window": 4096},
            "sliding_window",
            "sliding_window is 4096, and no draft class goes by it: it attends to all tokens",
            "take it out, or give SGLang --speculative-draft-window-size where it has that flag (0.5.23)",
        ),
        (
            {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
            "rope_theta",
            "rope_theta is 500000.0 at the top and 10000.0 inside rope_parameters",
            "keep the one that was trained with, in both: engines read one or the other",
        ),
        (
            {"eagle_config": [2, 18, 33]},
            "eagle_config",
            "eagle_config is [2, 18, 33], not a map, so that nothing in it is read",
            f"write eagle_config: {{{IDS}: [...]}}",
        ),
    ],
)
def test_a_key_that_says_something_to_nobody(changes: dict[str, Any], path: str, sentence: str, write: str) -> None:
    """It is named with its place, with what is read instead, and with what to write."""
    assert found(**changes) == [(path, sentence, write)]
