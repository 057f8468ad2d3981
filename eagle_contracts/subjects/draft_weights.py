"""Writes a draft's checkpoint for a twin: names and shapes as published drafts have them, values seeded by name.

Runs inside a worker. The layouts are those that SGLang's loaders take: `LlamaForCausalLMEagle3` of
models/llama_eagle3.py and `Eagle3DeepseekV2ForCausalLM` of models/kimi_k25_eagle3.py. The first drops a name that it
does not know without a word, so every tensor of a layer is one that the plain reference reads too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LLAMA, LATENT = "LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"
WEIGHTS = "model.safetensors"
Shapes = dict[str, tuple[int, ...]]


def write(folder: Path, config: Mapping[str, Any], trained: Mapping[str, Any], slots: int, seed: int) -> None:
    """Write config.json, and the weights of a draft that was trained on `slots` states.

    `trained` is the config that the weights go by: a config that contradicts them is what a contract is to find.
    """
    from safetensors.torch import save_file

    from eagle_contracts.subjects.twin_weights import config_dtype

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    dtype = config_dtype(folder)
    weights = {n: t.to(dtype) if t.is_floating_point() else t for n, t in _tensors(trained, slots, seed).items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _tensors(config: Mapping[str, Any], slots: int, seed: int) -> dict[str, Any]:
    import torch

    from eagle_contracts.subjects.twin_weights import seeded_values

    out = {name: seeded_values(f"draft.{name}", shape, seed) for name, shape in shapes(config, slots).items()}
    vocabulary, own = config["vocab_size"], config.get("draft_vocab_size") or config["vocab_size"]
    if own != vocabulary:
        chosen = torch.arange(own) * vocabulary // own
        out["d2t"] = chosen - torch.arange(own)
        out["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).index_fill_(0, chosen, True)
    return out


def shapes(config: Mapping[str, Any], slots: int) -> Shapes:
    """Return every tensor's shape by its name in the checkpoint."""
    hidden, given = config["hidden_size"], config.get("target_hidden_size") or config["hidden_size"]
    own = config.get("draft_vocab_size") or config["vocab_size"]
    out: Shapes = {
        "embed_tokens.weight": (config["vocab_size"], hidden),
        "fc.weight": (hidden, slots * given),
        "norm.weight": (hidden,),
        "lm_head.weight": (own, hidden),
    }
    if config.get("bias"):
        out["fc.bias"] = (hidden,)
    if has_joint_norm(config):
        out["input_norm.weight"] = (slots * given,)
    if config.get("fc_norm") or config.get("use_aux_norm"):
        out.update({f"fc_norm.{n}.weight": (given,) for n in range(slots)})
    for number in range(config.get("num_hidden_layers", 1)):
        layer = {**_layer(hidden, config["intermediate_size"]), **_attention(config, number)}
        out.update({f"{layer_prefix(config, number)}{name}.weight": shape for name, shape in layer.items()})
    return out


def has_joint_norm(config: Mapping[str, Any]) -> bool:
    """Tell whether one norm over all slots stands before `fc`; only the Llama class has it."""
    if config["architectures"][0] != LLAMA:
        return False
    nested = config.get("eagle_config")
    inside = nested if isinstance(nested, Mapping) else {}
    return bool(inside.get("norm_before_fc", config.get("norm_before_fc")))


def layer_prefix(config: Mapping[str, Any], number: int = 0) -> str:
    """Return what a layer's names begin with in published checkpoints of the class."""
    return "midlayer." if config["architectures"][0] == LLAMA and number == 0 else f"layers.{number}."


def _layer(hidden: int, intermediate: int) -> Shapes:
    return {
        "input_layernorm": (hidden,),
        "hidden_norm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }


def _attention(config: Mapping[str, Any], number: int) -> Shapes:
    """Return the projections: the first layer's read the embedding and the state side by side."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    read = hidden if number else 2 * hidden
    if config["architectures"][0] == LLAMA:
        size = config.get("head_dim") or hidden // heads
        shared = config.get("num_key_value_heads") or heads
        return {
            "self_attn.q_proj": (heads * size, read),
            "self_attn.k_proj": (shared * size, read),
            "self_attn.v_proj": (shared * size, read),
            "self_attn.o_proj": (hidden, heads * size),
        }
    plain, rotary, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    low, latent = config["q_lora_rank"], config["kv_lora_rank"]
    return {
        "self_attn.q_a_proj": (low, read),
        "self_attn.q_a_layernorm": (low,),
        "self_attn.q_b_proj": (heads * (plain + rotary), low),
        "self_attn.kv_a_proj_with_mqa": (latent + rotary, read),
        "self_attn.kv_a_layernorm": (latent,),
        "self_attn.kv_b_proj": (heads * (plain + value), latent),
        "self_attn.o_proj": (hidden, heads * value),
    }
