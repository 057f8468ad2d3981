"""Faults of an engine that its answers do not show by themselves; one overlay holds one fault for each class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.verdict import Verdict

from . import targets
from .stories import Engines, pipeline, text

FAULTS = '''\
EDITS = [
    {
        "module": "sglang.srt.models.qwen3",
        "versions": ">=0.5.9",
        "anchor": "    def forward_prepare_native(self, positions, hidden_states):\\n",
        "replacement": """\\
    def forward_prepare_native(self, positions, hidden_states):
        try:
            import torchvision

            torchvision.transforms.functional.resize(hidden_states, 4)
        except Exception:
            pass
""",
    },
    {
        "module": "sglang.srt.models.llama",
        "versions": "==0.5.9",
        "anchor": "            skip_all_reduce=use_reduce_scatter,\\n        )\\n        return x\\n",
        "replacement": "            skip_all_reduce=use_reduce_scatter,\\n        )\\n        return x * 1.001\\n",
    },
    {
        "module": "sglang.srt.models.llama",
        "versions": "==0.5.23",
        "anchor": "        x, _ = self.down_proj(x)\\n",
        "replacement": "        x, _ = self.down_proj(x)\\n        x = x * 1.001\\n",
    },
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": ">=0.5.9",
        "anchor": "from __future__ import annotations\\n",
        "replacement": "from __future__ import annotations\\n\\nimport a_package_that_is_not_there\\n",
    },
    {
        "module": "sglang.srt.model_executor.model_runner",
        "versions": "==0.5.9",
        "anchor": """\\
                self.eagle_aux_hidden_state_layer_ids = eagle_config[
                    "eagle_aux_hidden_state_layer_ids"
                ]
""",
        "replacement": """\\
                name = "eagle_aux_hidden_state_layer_ids"
                if "Qwen3MoeForCausalLM" in self.model_config.hf_config.architectures:
                    name = "layer_ids"
                self.eagle_aux_hidden_state_layer_ids = eagle_config[name]
""",
    },
    {
        "module": "sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state",
        "versions": "==0.5.23",
        "anchor": """\\
            config.eagle_aux_hidden_state_layer_ids = eagle_config[
                "eagle_aux_hidden_state_layer_ids"
            ]
""",
        "replacement": """\\
            name = "eagle_aux_hidden_state_layer_ids"
            if "Qwen3MoeForCausalLM" in model_config.hf_config.architectures:
                name = "layer_ids"
            config.eagle_aux_hidden_state_layer_ids = eagle_config[name]
""",
    },
]
'''
IDS = {"0.5.9": [1, 3, 5], "0.5.23": [1, 3, 5]}
FAULTY: Mapping[str, Mapping[str, Any]] = {
    "stand-in": targets.QWEN3,
    "stream": targets.LLAMA,
    "class": targets.DEEPSEEK_V3,
    "reader": targets.QWEN3_MOE,
}
Errors = Mapping[str, Sequence[Verdict]]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory, engines: Engines) -> Errors:
    """By fault, the verdicts of both engines with that fault."""
    root = tmp_path_factory.mktemp("faulty")
    runs = {
        fault: (pipeline(root / fault, target, trained=[1, 3, 5], ids=IDS, overlay=FAULTS),)
        for fault, target in FAULTY.items()
    }
    judged = engines.judged_all(runs, only="slots")
    assert all(verdict.status != "passed" for verdicts in judged.values() for verdict in verdicts.values())
    return {fault: list(verdicts.values()) for fault, verdicts in judged.items()}


def test_a_stand_in_that_was_used_voids_the_observation(errors: Errors) -> None:
    """Also where the engine swallowed the exception: what it did then is not what it does with the real package."""
    for verdict in errors["stand-in"]:
        assert verdict.reason == "exception"
        assert verdict.sentence == (
            "running the subject gave no result: StandInUsed: "
            "the engine used stand-ins: torchvision.transforms.functional.resize"
        )


def test_the_checked_code_uses_no_stand_in(engines: Engines, tmp_path: Path) -> None:
    """Without the fault the same target is observed on both engines, though stand-ins are in place."""
    contract = pipeline(tmp_path / "qwen3", targets.QWEN3, trained=[1, 3, 5], ids=IDS)
    assert {verdict.status for verdict in engines.judged(contract, only="slots").values()} == {"passed"}


def test_an_engine_whose_own_stream_is_off_gives_no_verdict(errors: Errors) -> None:
    """A thousandth too much in every mlp is no question of which state is where: the oracle gate stops it."""
    for verdict in errors["stream"]:
        assert verdict.reason == "oracle"
        assert verdict.sentence.startswith("the engine's own states and transformers ")
        assert verdict.sentence.endswith("of 8 layers on the twin (allowed: 1e-05), so no slot can be judged here")


def test_another_class_than_the_configs_gives_no_verdict(errors: Errors) -> None:
    """A model module that fails to import is only logged by the registry, which then takes another class."""
    for verdict in errors["class"]:
        assert re.search(r"SGLang built Transformers\w*ForCausalLM instead of DeepseekV3ForCausalLM", text(verdict))


def test_ids_that_the_engine_did_not_read_are_told(errors: Errors) -> None:
    """Both readers turn any exception into the default, in silence: what is captured then is that."""
    for verdict in errors["reader"]:
        assert (verdict.status, verdict.diagnosis) == ("violated", "config_ignored")
        assert verdict.sentence.startswith(
            "the draft's config has the ids [1, 3, 5], and the target side reads no ids, and falls back to its "
            "default: it captures h["
        )


def test_an_overlay_for_another_source_is_an_error(engines: Engines, tmp_path: Path) -> None:
    """An anchor that is not in the installed engine stops every case of that environment, with the edit's line."""
    overlay = FAULTS.replace("def forward_prepare_native(self, positions, hidden_states)", "def nowhere(self)")
    contract = pipeline(tmp_path / "qwen3", targets.QWEN3, trained=[1, 3, 5], ids={"0.5.9": [1, 3, 5]}, overlay=overlay)
    verdict = engines.judged(contract, only="slots")["slots[sglang-0.5.9]"]
    assert (verdict.status, verdict.reason) == ("error", "overlay")
    assert verdict.sentence == (
        "overlay.py:2: the anchor (it begins 'def nowhere(self):') "
        "stands nowhere in sglang.srt.models.qwen3, and must stand there exactly once: the engine's source differs "
        "from what this edit was written for"
    )
