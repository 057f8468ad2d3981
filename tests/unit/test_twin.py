"""Twins: what is kept of a target's config, what is shrunk, and which configs make no twin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.subjects import twin_weights
from eagle_contracts.twin import (
    IDS,
    Twin,
    TwinError,
    make_twin,
    with_layer_ids_in_place,
    without_layer_ids,
)

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "vocab_size": 128256,
}
OLD_SPELLING: Mapping[str, Any] = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}}
NEW_SPELLING: Mapping[str, Any] = {**LLAMA, "rope_parameters": {**LLAMA3, "rope_type": "llama3", "rope_theta": 5e5}}


def twin(config: Mapping[str, Any], **changes: Any) -> Twin:
    return make_twin({**config, **changes}, None)


WITHOUT_TWIN: dict[str, tuple[Mapping[str, Any], str]] = {
    "another layout": (
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12, "n_embd": 768},
        "num_hidden_layers is missing: this config has n_layer, and classes with that layout are not known here",
    ),
    "a part": (
        {"model_type": "kimi_k25", "text_config": LLAMA},
        "num_hidden_layers is missing at its top, and text_config has it: write target: {..., part: text_config}",
    ),
    "nothing": ({}, "num_hidden_layers is missing: it must be the config.json of a whole decoder-only model"),
    "no depth": (
        {**LLAMA, "num_hidden_layers": 0},
        "num_hidden_layers must be a whole number of at least 1, and is 0",
    ),
    "a flag": (
        {**LLAMA, "num_hidden_layers": True},
        "num_hidden_layers must be a whole number of at least 1, and is true",
    ),
    "no class": (
        {**LLAMA, "architectures": []},
        "architectures must name the model's class, such as [LlamaForCausalLM]",
    ),
    "no type": (
        {key: value for key, value in LLAMA.items() if key != "model_type"},
        "model_type is missing: transformers and the engine choose the class by it",
    ),
}


@pytest.mark.parametrize("what", WITHOUT_TWIN)
def test_a_config_without_a_twin_says_what_is_missing(what: str) -> None:
    """The message names the field, and where the depth is instead."""
    config, message = WITHOUT_TWIN[what]
    with pytest.raises(TwinError) as stopped:
        make_twin(config, None)
    assert str(stopped.value) == message


def test_class_depth_and_pattern_are_kept_and_widths_are_small() -> None:
    """What decides the wiring stays; what only costs memory shrinks."""
    made = twin(
        LLAMA, num_hidden_layers=61, first_k_dense_replace=3, n_routed_experts=256, num_experts_per_tok=8, n_group=8
    )
    kept = ("architectures", "model_type", "hidden_act", "num_hidden_layers", "first_k_dense_replace")
    assert {key: made.target[key] for key in kept} == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": 61,
        "first_k_dense_replace": 3,
    }
    assert (made.layers, made.architecture) == (61, "LlamaForCausalLM")
    assert made.target["hidden_size"] == 64
    assert made.target["n_routed_experts"] == 4
    assert made.target["num_experts_per_tok"] == 2
    assert made.target["n_group"] == 1
    assert made.target["dtype"] == made.target["torch_dtype"] == "float32"


def test_what_a_twin_has_no_weights_for_is_left_out() -> None:
    """No quantization, no remote code, no head that predicts further tokens."""
    made = twin(
        LLAMA, quantization_config={"quant_method": "fp8"}, auto_map={"AutoModel": "x.Y"}, num_nextn_predict_layers=1
    )
    assert "quantization_config" not in made.target
    assert "auto_map" not in made.target
    assert made.target["num_nextn_predict_layers"] == 0


@pytest.mark.parametrize(("shared", "kept"), [(8, 2), (32, 4), (1, 1)])
def test_the_kind_of_attention_is_kept(shared: int, kept: int) -> None:
    """Grouped heads stay grouped, one for each stays one for each, one for all stays one for all."""
    made = twin(LLAMA, num_key_value_heads=shared)
    assert (made.target["num_attention_heads"], made.target["num_key_value_heads"]) == (4, kept)


def test_both_spellings_of_the_rope_give_one_twin() -> None:
    """Whichever transformers wrote the config, both versions read the same angles from the twin's."""
    old, new = twin(OLD_SPELLING).target, twin(NEW_SPELLING).target
    for name in ("rope_theta", "rope_scaling", "rope_parameters"):
        assert old[name] == new[name]
    assert old["rope_theta"] == old["rope_parameters"]["rope_theta"] == 5e5
    assert old["rope_scaling"] == {**LLAMA3, "rope_type": "llama3", "type": "llama3"}
    assert twin(OLD_SPELLING).digest == twin(NEW_SPELLING).digest


def test_deepseek_v2_keeps_yarn_without_its_attention_factors() -> None:
    """Two versions of transformers scale this class's attention differently by them; DeepSeek-V3's they scale alike."""
    yarn = {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707}
    for name, kept in (("DeepseekV2ForCausalLM", False), ("DeepseekV3ForCausalLM", True)):
        made = twin(LLAMA, architectures=[name], rope_theta=1e4, rope_scaling=yarn).target
        for spelling in ("rope_scaling", "rope_parameters"):
            assert made[spelling]["rope_type"] == "yarn"
            assert ("mscale" in made[spelling]) is ("mscale_all_dim" in made[spelling]) is kept


def test_a_twin_follows_from_the_configs_alone() -> None:
    """The same configs give the same digest in any order of keys, and another depth gives another."""
    assert twin(LLAMA).digest == make_twin(dict(sorted(LLAMA.items(), reverse=True)), None).digest
    assert twin(LLAMA).digest != twin(LLAMA, num_hidden_layers=31).digest
    assert all(16 <= token < 512 for prompt in twin(LLAMA).prompts for token in prompt)


def test_a_draft_can_leave_its_ids_to_the_engine() -> None:
    """No list stays, in neither place, and the states of inner layers are asked for."""
    draft = {IDS: [9], "eagle_config": {"other": 1, IDS: [2]}}
    assert without_layer_ids(draft) == {"eagle_config": {"other": 1, "use_aux_hidden_state": True}}
    assert draft[IDS] == [9]


def test_ids_are_put_where_a_draft_has_them() -> None:
    """A draft whose ids stand at the top only keeps them there, whoever reads them; nothing else is changed."""
    top = {IDS: [1], "eagle_config": {"use_aux_hidden_state": False}}
    assert with_layer_ids_in_place(top, [2]) == {**top, IDS: [2]}
    assert with_layer_ids_in_place({IDS: [1], "eagle_config": {IDS: [1]}}, [2]) == {
        IDS: [2],
        "eagle_config": {IDS: [2]},
    }
    assert with_layer_ids_in_place({"eagle_config": None}, [2]) == {"eagle_config": {IDS: [2]}}
    assert with_layer_ids_in_place({"eagle_config": [2, 30]}, [2]) == {"eagle_config": [2, 30]}


@pytest.mark.parametrize(
    "draft",
    [
        {IDS: [1], "eagle_config": {IDS: [1], "use_aux_hidden_state": True}},
        {"eagle_config": {"use_aux_hidden_state": True}},
    ],
)
def test_a_draft_by_default_has_no_ids_and_the_rest_stays(draft: dict[str, Any]) -> None:
    """In neither place: what the engine takes then is its own."""
    assert with_layer_ids_in_place(draft, "default") == {"eagle_config": {"use_aux_hidden_state": True}}
    assert with_layer_ids_in_place({"hidden_size": 64}, "default") == {"hidden_size": 64}


def test_a_draft_of_another_width_than_its_target_stays_so() -> None:
    """What its fc reads and writes is then told apart on the twin too."""
    target = {**LLAMA, "hidden_size": 7168}
    alike = make_twin(target, {"hidden_size": 7168, "target_hidden_size": 7168}).draft
    assert (alike["hidden_size"], alike["target_hidden_size"]) == (64, 64)
    narrow = make_twin(target, {"hidden_size": 2048, "target_hidden_size": 7168}).draft
    assert (narrow["hidden_size"], narrow["target_hidden_size"]) == (32, 64)
    assert make_twin(target, {"hidden_size": 7168, "target_hidden_size": 4096}).draft["target_hidden_size"] == 32


def test_a_twin_for_kernels_has_their_widths() -> None:
    """Heads are 128 wide, named or not; latent attention has 512 and 64; all experts are used; weights are bfloat16."""
    llama = make_twin(LLAMA, None, for_kernels=True)
    assert llama.target["hidden_size"] // llama.target["num_attention_heads"] == 128
    assert (llama.dtype, llama.draft["torch_dtype"], twin(LLAMA).dtype) == ("bfloat16", "bfloat16", "float32")
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    experts = {"n_routed_experts": 384, "num_experts_per_tok": 8}
    deep = make_twin({**LLAMA, **latent, **experts}, {"hidden_size": 2048}, for_kernels=True)
    assert {key: deep.target[key] for key in latent} == latent
    assert (deep.target["num_attention_heads"], deep.target["num_experts_per_tok"]) == (16, 4)
    assert (deep.target["hidden_size"], deep.draft["hidden_size"]) == (512, 256)
    assert llama.digest != twin(LLAMA).digest


def test_what_killed_runs_left_of_a_twin_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next twin that is written clears it away, but not what another run writes now."""

    def write(folder: Path, twin: Mapping[str, Any]) -> None:
        (folder / twin_weights.MANIFEST).write_text("{}", encoding="utf-8")

    monkeypatch.setattr(twin_weights, "_write", write)
    for name in (".aa.left", ".bb.living"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".aa.left", (1, 1))
    assert twin_weights.make({"folder": str(tmp_path / "cc"), "twin": {}}) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bb.living", "cc"]
