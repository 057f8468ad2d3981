"""What `sglang.draft` is asked for a draft's config, and which configs it refuses before any engine starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.spec.errors import SpecError
from eagle_contracts.subjects.sglang_draft import request
from eagle_contracts.twin import IDS, make_twin

from .observations import value

KIMI = Path(__file__).parents[2] / "contracts" / "kimi_k25"
TARGET = json.loads((KIMI / "target.config.json").read_text())["text_config"]
DRAFT = json.loads((KIMI / "draft.config.json").read_text())


def asked(draft: dict[str, Any], **given: Any) -> dict[str, Any]:
    promised = {key: value(data) for key, data in {"layer_ids": [3, 31, 59], **given}.items()}
    return request(promised, make_twin(TARGET, draft), KIMI)


def test_the_config_stays_as_it_is_but_for_its_widths() -> None:
    """Ids at the top stay there, and no switch is put right on the way."""
    nested = asked(DRAFT)["draft"]
    assert nested["eagle_config"] == {IDS: [3, 31, 59], "use_aux_hidden_state": True}
    off = asked({**DRAFT, "eagle_config": {"use_aux_hidden_state": False}, IDS: [2, 30, 58]})["draft"]
    assert (off["eagle_config"], off[IDS]) == ({"use_aux_hidden_state": False}, [3, 31, 59])


def test_what_the_weights_go_by_is_the_config_without_a_break() -> None:
    """A break changes what the engine reads, not what was trained."""
    out = asked(DRAFT, config={"norm_output": True, "eagle_config": {"use_aux_hidden_state": None}})
    assert (out["draft"]["norm_output"], out["draft"]["eagle_config"]) == (True, {IDS: [3, 31, 59]})
    assert "norm_output" not in out["trained"]


def test_a_narrower_draft_was_trained_on_its_target() -> None:
    """Also where its config does not say how wide the target is: then the engine's fc does not fit its checkpoint."""
    out = asked({**DRAFT, "hidden_size": 2048})
    assert (out["trained"]["target_hidden_size"], out["draft"].get("target_hidden_size")) == (64, None)
    both = asked({**DRAFT, "hidden_size": 2048, "target_hidden_size": 7168})
    assert both["draft"]["target_hidden_size"] == both["trained"]["target_hidden_size"] == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["FooEagle"]}, "has architectures: [FooEagle], which sglang.draft does not know"),
        ({"architectures": "LlamaForCausalLMEagle3"}, "has architectures: LlamaForCausalLMEagle3, which sglang.draft"),
        ({"architectures": None}, "has no architectures, which sglang.draft does not know"),
        ({"num_hidden_layers": 0}, "has num_hidden_layers: 0: a whole number of at least 1 is wanted"),
        ({"intermediate_size": None}, "has intermediate_size: null: a whole number of at least 1 is wanted"),
        ({"hidden_size": "7168"}, "has hidden_size: 7168: a whole number of at least 1 is wanted"),
        ({"num_hidden_layers": True}, "has num_hidden_layers: true: a whole number"),
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "has no q_lora_rank: a whole number of at least 1"),
    ],
)
def test_a_config_of_which_no_draft_can_be_made(changes: dict[str, Any], message: str) -> None:
    """One sentence in the config's own words, within a report's columns."""
    with pytest.raises(SpecError) as caught:
        asked({**DRAFT, **changes})
    [issue] = caught.value.issues
    assert f"the draft's config {message}" in issue.message
    assert len(issue.message) <= 100
