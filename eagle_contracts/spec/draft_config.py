"""Keys of a draft's config.json that say something to nobody: in the wrong place, misspelt, or of the wrong kind.

Where keys are looked for is that of SGLang 0.5.9 and 0.5.23: the target's side reads the ids and
`use_aux_hidden_state` inside `eagle_config` alone (0.5.23: model_executor/model_runner_components/
spec_aux_hidden_state.py; 0.5.9: model_executor/model_runner.py), and the draft classes read all else at the top, but
the Llama class `norm_before_fc` in either place (models/llama_eagle3.py, models/kimi_k25_eagle3.py). Neither class goes
by `sliding_window`, and the Llama class builds q, k and v without a bias whatever `attention_bias` says. No engine and
no torch is needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eagle_contracts.spec.flow import clip, show

IDS: Final = "eagle_aux_hidden_state_layer_ids"
NESTED: Final = "eagle_config"
BY_DEFAULT: Final = "default"
"""What stands for the ids where a draft's config is to have none: the engine takes layers of its own then."""
USE: Final = "use_aux_hidden_state"
LLAMA: Final = "LlamaForCausalLMEagle3"
LATENT: Final = "Eagle3DeepseekV2ForCausalLM"
_EITHER: Final = "norm_before_fc"
_NOWHERE: Final = "norm_before_residual"
_INSIDE: Final = (IDS, USE, _EITHER)
_SWITCHES: Final = (
    USE,
    _EITHER,
    "fc_norm",
    "use_aux_norm",
    "norm_output",
    "norm_before_residual",
    "attention_bias",
    "bias",
    "tie_word_embeddings",
)
_TOP: Final = (
    *(name for name in _SWITCHES if name != USE),
    "num_aux_hidden_states",
    "target_hidden_size",
    "draft_vocab_size",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "max_position_embeddings",
    "sliding_window",
)
_MISSPELT: Final = (
    *(IDS, USE, _EITHER, NESTED, "num_aux_hidden_states", "target_hidden_size", "draft_vocab_size"),
    *("fc_norm", "use_aux_norm", "norm_output", _NOWHERE),
)
_NO: Final = ("false", "no", "off", "0", "none", "null", "")
_ALIKE = 0.88
"""How alike two names must be: `output_hidden_states`, which many configs have, is 0.78 like a key of drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A key that no reader goes by: its path in the file, what is wrong, and what to write."""

    path: tuple[str, ...]
    sentence: str
    write: str


def unread(config: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield what a draft's config.json says to no reader, or says otherwise than it looks."""
    nested = config.get(NESTED)
    if nested is not None and not isinstance(nested, Mapping):
        sentence = f"{NESTED} is {clip(show(nested))}, not a map, so that nothing in it is read"
        yield Unread(path=(NESTED,), sentence=sentence, write=f"write {NESTED}: {{{IDS}: [...]}}")
        return
    inside: Mapping[str, Any] = nested or {}
    yield from _ids(config, inside)
    yield from _switched_at_the_top(config, inside)
    yield from _too_deep(config, inside)
    yield from _of_no_class(config, inside)
    yield from _turned_twice(config)
    for path, holder in (((), config), ((NESTED,), inside)):
        yield from _texts(path, holder)
        yield from _misspelt(path, holder, config, inside)


def _ids(config: Mapping[str, Any], inside: Mapping[str, Any]) -> Iterator[Unread]:
    top, nested = config.get(IDS), inside.get(IDS)
    if top is None or top == nested:
        return
    if nested is None:
        sentence = f"{IDS} stands at the top, where the target's side does not look; it falls back to its default"
        yield Unread(path=(IDS,), sentence=sentence, write=f"move it inside {NESTED}, where engines look")
    else:
        sentence = f"{IDS} is {show(top)} at the top and {show(nested)} inside {NESTED}"
        yield Unread(path=(IDS,), sentence=sentence, write="keep the one that was meant, inside")


def _switched_at_the_top(config: Mapping[str, Any], inside: Mapping[str, Any]) -> Iterator[Unread]:
    if USE in config and bool(config[USE]) != bool(inside.get(USE, True)):
        read = show(inside[USE]) if USE in inside else "nothing, which means true"
        sentence = f"{USE} is {show(config[USE])} at the top, where no reader looks; inside {NESTED} it is {read}"
        yield Unread(path=(USE,), sentence=sentence, write=f"move it inside {NESTED}, where engines look")


def _too_deep(config: Mapping[str, Any], inside: Mapping[str, Any]) -> Iterator[Unread]:
    for key, value in inside.items():
        if key in _TOP and key not in _INSIDE and config.get(key) != value:
            read = f"; at the top it is {clip(show(config[key]))}" if key in config else ""
            sentence = f"{key} stands inside {NESTED}, where no reader looks for it{read}"
            write = (
                f"take it out: SGLang reads no {key} anywhere"
                if key == _NOWHERE
                else "move it to the top, where engines look"
            )
            yield Unread(path=(NESTED, key), sentence=sentence, write=write)


def _of_no_class(config: Mapping[str, Any], inside: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield keys that stand in their place, and that the draft's own class has no reader for."""
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        sentence = f"sliding_window is {clip(show(window))}, and no draft class goes by it: it attends to all tokens"
        write = "take it out, or give SGLang --speculative-draft-window-size where it has that flag (0.5.23)"
        yield Unread(path=("sliding_window",), sentence=sentence, write=write)
    named = config.get("architectures")
    kind = named[0] if isinstance(named, list) and named else None
    if kind == LLAMA and config.get("attention_bias") is True:
        sentence = f"attention_bias is true, and {LLAMA} builds q, k and v without a bias; only o_proj gets one"
        yield Unread(path=("attention_bias",), sentence=sentence, write="write false: serve a draft trained without")
    if kind == LATENT:
        for path, holder in (((), config), ((NESTED,), inside)):
            if holder.get(_EITHER) is True:
                sentence = f"{_EITHER} is true, and {LATENT} has no reader of it"
                write = "take it out; for a norm of each state before fc that class reads fc_norm at the top"
                yield Unread(path=(*path, _EITHER), sentence=sentence, write=write)


def _turned_twice(config: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield a `rope_theta` that stands in two places with two values: 0.5.9 reads the top, 0.5.23 rope_parameters."""
    top = config.get("rope_theta")
    for key in ("rope_parameters", "rope_scaling"):
        part = config.get(key)
        other = part.get("rope_theta") if isinstance(part, Mapping) else None
        if top is not None and other is not None and other != top:
            sentence = f"rope_theta is {clip(show(top))} at the top and {clip(show(other))} inside {key}"
            write = "keep the one that was trained with, in both: engines read one or the other"
            yield Unread(path=("rope_theta",), sentence=sentence, write=write)


def _texts(path: tuple[str, ...], holder: Mapping[str, Any]) -> Iterator[Unread]:
    for key in _SWITCHES:
        value = holder.get(key)
        if value is not None and not isinstance(value, bool):
            counts = "true" if value else "false"
            is_ = f'the text "{clip(value, 20)}"' if isinstance(value, str) else f"{clip(show(value))}, no boolean"
            meant = "false" if not value or str(value).strip().lower() in _NO else "true"
            sentence = f"{key} is {is_}: engines take it for {counts}"
            yield Unread(path=(*path, key), sentence=sentence, write=f"write {meant}, without quotation marks")


def _misspelt(
    path: tuple[str, ...], holder: Mapping[str, Any], config: Mapping[str, Any], inside: Mapping[str, Any]
) -> Iterator[Unread]:
    missing = [name for name in _MISSPELT if name not in config and name not in inside]
    for key in map(str, holder):
        if key in _TOP or key in _MISSPELT:
            continue
        near = difflib.get_close_matches(key, missing, n=1, cutoff=_ALIKE)
        if not near and IDS in missing and key.endswith(("layer_ids", "layer_id")):
            near = [IDS]
        if near:
            where = f"inside {NESTED}" if near[0] in (IDS, USE) else "at the top"
            yield Unread(
                path=(*path, key),
                sentence=f"{key} is a key that no reader has: did you mean {near[0]}?",
                write=f"write {near[0]} for {key}, {where}",
            )
