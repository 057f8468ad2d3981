"""A checkpoint's config -> a twin: same class, same depth, same layer pattern, tiny widths, random weights.

This half works on plain dictionaries and needs no torch; `subjects.twin_weights` writes the tensors inside a worker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagle_contracts.spec.draft_config import BY_DEFAULT
from eagle_contracts.spec.flow import show

GENERATION = 1
"""Raised when the same config must give another twin, so that kept twins are not reused."""

HIDDEN = 64
NARROW = 32
"""The hidden size of a draft that is not as wide as its target."""
VOCABULARY = 512
MAX_POSITIONS = 8192

_WIDTHS: Mapping[str, int] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "head_dim": 16,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": VOCABULARY,
    "n_group": 1,
    "topk_group": 1,
}
_KERNEL_WIDTHS: Mapping[str, int] = {
    **_WIDTHS,
    "hidden_size": 512,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "head_dim": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "qk_head_dim": 192,
    "v_head_dim": 128,
}
"""Widths that kernels on a GPU are compiled for; heads without a width of their own get 128 by them too."""

HEADS, LATENT_HEADS = 4, 16
"""Attention heads; latent attention's kernels take 16 at least."""

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_DROPPED = ("quantization_config", "auto_map", "_name_or_path", "transformers_version")
_CLASS_MODEL_TYPE: Mapping[str, str] = {"DeepseekV3ForCausalLM": "deepseek_v3"}
"""Model types that transformers only knows by remote code, although the class they name is its own."""

_LOW_RANK_EPS = 1e-6
"""transformers 4.57 and 5.19 norm the low-rank projections of DeepSeek's attention with this constant, SGLang with the

config's `rms_norm_eps`: at 1e-5 the two are 4.6e-6 apart after one layer and 4e-5 at depth 61, which is no fault of
wiring.
"""

IDS = "eagle_aux_hidden_state_layer_ids"
_DEPTHS_ELSEWHERE = ("n_layer", "n_layers", "num_layers")
_ROPE_KEYS_OUTSIDE = ("rope_theta", "partial_rotary_factor")
_SEED = 20_251_130
PROMPT_LENGTHS = (11, 7, 14, 11)
"""Two requests are equally long, so that one can stand in for the other without a wrong number of rows."""


class TwinError(ValueError):
    """A config from which no twin can be made; the message says which field is missing or unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A twin's target and its inputs, from which its weights and states follow, and the draft's config beside them."""

    target: Mapping[str, Any]
    draft: Mapping[str, Any]
    layers: int
    prompts: tuple[tuple[int, ...], ...]
    seed: int
    notes: tuple[str, ...]

    @property
    def architecture(self) -> str:
        """The class that the engine must build: the config's first architecture."""
        return str(self.target["architectures"][0])

    @property
    def dtype(self) -> str:
        """The type of its weights, and of what the engine computes in."""
        return str(self.target["torch_dtype"])

    @property
    def digest(self) -> str:
        """Twenty hex digits over all that the weights and states depend on; the draft is not among it.

        A subject that reads the draft's config gives it to its worker itself, and is told apart by that.
        """
        parts = [GENERATION, self.target, self.prompts, self.seed]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]

    def as_json(self) -> dict[str, Any]:
        """What a worker needs to write the twin down."""
        return {
            "target": dict(self.target),
            "layers": self.layers,
            "prompts": [list(p) for p in self.prompts],
            "seed": self.seed,
        }


def make_twin(target: Mapping[str, Any], draft: Mapping[str, Any] | None, *, for_kernels: bool = False) -> Twin:
    """Return the twin of a target's text config and of its draft's config.

    For a GPU's kernels it has the widths that they are compiled for, and bfloat16. Raises `TwinError` for a target
    without depth or class.
    """
    shrunk, notes = _shrink_target(target, for_kernels)
    layers = shrunk["num_hidden_layers"]
    return Twin(
        target=shrunk,
        draft=_shrink_draft(draft, target.get("hidden_size"), for_kernels),
        layers=layers,
        prompts=_prompts(_SEED),
        seed=_SEED,
        notes=tuple(notes),
    )


def _shrink_target(config: Mapping[str, Any], for_kernels: bool) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    shrunk = _shrink(config, for_kernels)
    layers = shrunk.get("num_hidden_layers")
    if layers is None:
        raise TwinError(_no_depth(config))
    if not isinstance(layers, int) or isinstance(layers, bool) or layers < 1:
        raise TwinError(f"num_hidden_layers must be a whole number of at least 1, and is {show(layers)}")
    width = config.get("hidden_size")
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise TwinError(f"hidden_size must be a whole number of at least 1, and is {show(width)}")
    architectures = shrunk.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise TwinError("architectures must name the model's class, such as [LlamaForCausalLM]")
    known = _CLASS_MODEL_TYPE.get(architectures[0])
    if known and shrunk.get("model_type") != known:
        notes.append(f"model_type {shrunk.get('model_type')} -> {known}, the type of {architectures[0]}")
        shrunk["model_type"] = known
    if shrunk.get("kv_lora_rank") and shrunk.get("rms_norm_eps") != _LOW_RANK_EPS:
        notes.append(f"rms_norm_eps {shrunk.get('rms_norm_eps')} -> {_LOW_RANK_EPS}, see docs/twins.md")
        shrunk["rms_norm_eps"] = _LOW_RANK_EPS
    if architectures[0] == "DeepseekV2ForCausalLM" and _drop_mscale(shrunk):
        notes.append("mscale of the rope scaling is left out, see docs/twins.md")
    if "model_type" not in shrunk:
        raise TwinError("model_type is missing: transformers and the engine choose the class by it")
    return shrunk, notes


def _drop_mscale(shrunk: Mapping[str, Any]) -> bool:
    """Leave yarn's attention factors out; tell whether there were any.

    transformers 4.57's DeepseekV2 class does not scale its attention by them, 5.19's and SGLang's do, and the reference
    must not depend on which of the two wrote it.
    """
    spellings = [shrunk.get(name) for name in ("rope_scaling", "rope_parameters")]
    dropped = [s.pop(key, None) for s in spellings if isinstance(s, dict) for key in ("mscale", "mscale_all_dim")]
    return any(value is not None for value in dropped)


def _no_depth(config: Mapping[str, Any]) -> str:
    """Say where the depth is instead: in a part of a multimodal config, or under another name."""
    missing = "num_hidden_layers is missing"
    parts = [k for k, v in config.items() if isinstance(v, Mapping) and "num_hidden_layers" in v]
    if parts:
        return f"{missing} at its top, and {' and '.join(parts)} has it: write target: {{..., part: {parts[0]}}}"
    other = next((key for key in _DEPTHS_ELSEWHERE if key in config), None)
    if other:
        return f"{missing}: this config has {other}, and classes with that layout are not known here"
    return f"{missing}: it must be the config.json of a whole decoder-only model"


def _shrink_draft(config: Mapping[str, Any] | None, target_hidden: object, for_kernels: bool) -> dict[str, Any]:
    """Shrink a draft's config; a draft that is not as wide as its target stays so."""
    if config is None:
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": HIDDEN,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "vocab_size": VOCABULARY,
            "draft_vocab_size": VOCABULARY,
            "rms_norm_eps": 1e-6,
        }
        return _shrink(config, for_kernels)
    out, wide = _shrink(config, for_kernels), (_KERNEL_WIDTHS if for_kernels else _WIDTHS)["hidden_size"]
    narrow = wide * NARROW // HIDDEN
    if config.get("hidden_size") != target_hidden and isinstance(config.get("hidden_size"), int):
        out["hidden_size"] = narrow
    if isinstance(config.get("target_hidden_size"), int):
        out["target_hidden_size"] = wide if config["target_hidden_size"] == target_hidden else narrow
    return out


def _shrink(config: Mapping[str, Any], for_kernels: bool) -> dict[str, Any]:
    """Shrink every width that the config names, keep depth, pattern, activation, scaling kinds and flags."""
    out = {key: value for key, value in config.items() if key not in _DROPPED}
    widths = _KERNEL_WIDTHS if for_kernels else _WIDTHS
    out.update({key: width for key, width in widths.items() if isinstance(out.get(key), int) and out[key]})
    _shrink_heads(out, LATENT_HEADS if for_kernels and out.get("kv_lora_rank") else HEADS)
    _shrink_experts(out, for_kernels)
    _shrink_positions(out)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if key in out:
            out[key] = None if key == "pad_token_id" else 1
    out["torch_dtype"] = out["dtype"] = "bfloat16" if for_kernels else "float32"
    if out.get("num_nextn_predict_layers"):
        out["num_nextn_predict_layers"] = 0
    return out


def _shrink_heads(out: dict[str, Any], count: int) -> None:
    heads, shared = out.get("num_attention_heads"), out.get("num_key_value_heads")
    if not isinstance(heads, int):
        return
    out["num_attention_heads"] = count
    if isinstance(shared, int):
        out["num_key_value_heads"] = count if shared == heads else min(shared, 2)


def _shrink_experts(out: dict[str, Any], for_kernels: bool) -> None:
    """Keep 4 experts, of which 2 at most are used, or all 4 where bfloat16's noise would choose others now and then."""
    for key in _EXPERTS:
        if isinstance(out.get(key), int) and out[key]:
            out[key] = 4
            out["num_experts_per_tok"] = 4 if for_kernels else min(2, out.get("num_experts_per_tok") or 2)


def _shrink_positions(out: dict[str, Any]) -> None:
    """Keep the kind of rope scaling and its factor; write both spellings of it.

    transformers 4.57 reads `rope_theta` and `rope_scaling`, 5.x reads `rope_parameters`: with one spelling alone the
    two disagree by up to 0.44 (relative) on a 61-layer yarn twin.
    """
    positions = out.get("max_position_embeddings")
    if isinstance(positions, int):
        out["max_position_embeddings"] = min(positions, MAX_POSITIONS)
    parameters = dict(out.get("rope_parameters") or {})
    if any(isinstance(value, Mapping) for value in parameters.values()):
        return
    scaling = dict(out.get("rope_scaling") or {})
    rope = {**parameters, **scaling}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    for key in _ROPE_KEYS_OUTSIDE:
        if key in out or key in rope:
            out[key] = rope[key] = rope.get(key, out.get(key))
    if kind == "yarn" and isinstance(positions, int):
        factor = float(rope.get("factor") or 1.0)
        rope["original_max_position_embeddings"] = max(16, int(out["max_position_embeddings"] / factor))
    if "rope_theta" not in rope and kind == "default":
        return
    out["rope_parameters"] = {**rope, "rope_type": kind, "type": kind}
    inside = {key: value for key, value in rope.items() if key not in _ROPE_KEYS_OUTSIDE}
    out["rope_scaling"] = None if kind == "default" else {**inside, "rope_type": kind, "type": kind}


def _prompts(seed: int) -> tuple[tuple[int, ...], ...]:
    """Token ids of a few requests of different lengths, away from the special ids at the vocabulary's start."""
    span = VOCABULARY - 16
    digits = hashlib.shake_256(f"prompts:{seed}".encode()).digest(2 * sum(PROMPT_LENGTHS))
    ids = [16 + int.from_bytes(digits[i : i + 2], "big") % span for i in range(0, len(digits), 2)]
    out, start = [], 0
    for length in PROMPT_LENGTHS:
        out.append(tuple(ids[start : start + length]))
        start += length
    return tuple(out)


def with_layer_ids_in_place(draft: Mapping[str, Any], layer_ids: object) -> dict[str, Any]:
    """Return a draft config whose ids are these, where it has its own, and nothing else of it changed.

    That is at the top where it has them only there, whoever looks there; else inside `eagle_config`. An `eagle_config`
    that is no map stays as it is. For `default` there are none then, in neither place.
    """
    out, nested = dict(draft), draft.get("eagle_config")
    if nested is not None and not isinstance(nested, Mapping):
        return out
    inside = nested if isinstance(nested, Mapping) else {}
    if layer_ids == BY_DEFAULT:
        out.pop(IDS, None)
        return {**out, "eagle_config": {k: v for k, v in inside.items() if k != IDS}} if nested is not None else out
    if out.get(IDS) is not None and inside.get(IDS) is None:
        return {**out, IDS: layer_ids}
    if out.get(IDS) is not None:
        out[IDS] = layer_ids
    return {**out, "eagle_config": {**inside, IDS: layer_ids}}


def without_layer_ids(draft: Mapping[str, Any]) -> dict[str, Any]:
    """Return a draft config that leaves the ids to the engine's default."""
    out = {key: value for key, value in draft.items() if key != IDS}
    nested = out.get("eagle_config")
    kept = nested if isinstance(nested, Mapping) else {}
    out["eagle_config"] = {k: v for k, v in kept.items() if k != IDS}
    out["eagle_config"]["use_aux_hidden_state"] = True
    return out
