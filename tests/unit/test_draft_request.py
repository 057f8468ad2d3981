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


def test_a_draft_that_names_no_ids() -> None:
    """`default` takes them out of the copy, and the checks know that none were meant."""
    out = asked(DRAFT, layer_ids="default")
    assert out["draft"]["eagle_config"] == {"use_aux_hidden_state": True}
    assert out["by_default"] is True
    assert asked(DRAFT)["by_default"] is False
    with pytest.raises(SpecError, match="must be a list of whole numbers, not the text 'defualt'"):
        asked(DRAFT, layer_ids="defualt")
    with pytest.raises(SpecError, match="slots must be a list of whole numbers"):
        asked(DRAFT, slots="default")


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
        ({"architectures": ["FooEagle"]}, "the draft's class is FooEagle, which is not known here"),
        (
            {"architectures": "LlamaForCausalLMEagle3"},
            "architectures is the text 'LlamaForCausalLMEagle3', which is not known here",
        ),
        ({"architectures": None}, "architectures is nothing, which is not known here"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, and no size"),
        ({"intermediate_size": None}, "intermediate_size is nothing, and no size"),
        ({"hidden_size": "7168"}, "hidden_size is the text '7168', and no size"),
        ({"num_hidden_layers": True}, "num_hidden_layers is true, and no size"),
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "q_lora_rank is missing"),
    ],
)
def test_a_config_of_which_no_draft_can_be_made(changes: dict[str, Any], message: str) -> None:
    """One sentence in the config's own words, within a report's columns."""
    with pytest.raises(SpecError) as caught:
        asked({**DRAFT, **changes})
    [issue] = caught.value.issues
    assert f"in the draft's config {message}" in issue.message
    assert len(issue.message) <= 100
