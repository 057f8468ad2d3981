"""Numbers of a draft's config.json that no draft can have; the twin, with numbers of its own, never meets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from eagle_contracts.spec.draft_config import LATENT, LLAMA, Unread
from eagle_contracts.spec.flow import found

KINDS: Final = (LLAMA, LATENT)
_SIZES: Final = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
_LATENT_SIZES: Final = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MOST_LAYERS: Final = 1000
_NULLABLE: Final = ("draft_vocab_size", "num_key_value_heads", "head_dim", "target_hidden_size")


def unusable(config: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield why no draft can be built from a config at all: a class that is not known, or a size that is none."""
    kind = kind_of(config)
    if kind not in KINDS:
        named = config.get("architectures")
        is_ = f"architectures is {found(named)}" if not isinstance(named, list) else f"the draft's class is {kind}"
        write = f"write [{'] or ['.join(KINDS)}]"
        yield Unread(path=("architectures",), sentence=f"{is_}, which is not known here", write=write)
        return
    for key in (*_SIZES, *(_LATENT_SIZES if kind == LATENT else ())):
        if not _is_size(config.get(key)):
            yield _no_size(key, config)
    if (layers := _size(config, "num_hidden_layers")) > _MOST_LAYERS:
        sentence = f"num_hidden_layers is {layers}, and no draft has so many"
        yield Unread(
            path=("num_hidden_layers",), sentence=sentence, write="write how many the draft has: 1, most likely"
        )


def wrong_sizes(config: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield the sizes that contradict each other, or the target's."""
    kind = kind_of(config)
    for key in _NULLABLE:
        if config.get(key) is not None and not _is_size(config[key]):
            yield _no_size(key, config)
    if kind == LLAMA:
        yield from _absent(config)
        yield from _heads(config)
    yield from _vocabularies(config, target)


def kind_of(config: Mapping[str, Any]) -> str:
    """Return the class that a draft's config names first; empty where it names none."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _absent(config: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield keys whose absence, or whose null, the Llama class does not survive."""
    if "draft_vocab_size" not in config and not config.get("tie_word_embeddings"):
        sentence = f"draft_vocab_size is missing, and {LLAMA} does not start without it"
        write = "write draft_vocab_size: null at the top where the draft has the target's whole vocabulary"
        yield Unread(path=("draft_vocab_size",), sentence=sentence, write=write)
    if "target_hidden_size" in config and config["target_hidden_size"] is None:
        sentence = f"target_hidden_size is null, and {LLAMA} takes that for a width"
        yield Unread(path=("target_hidden_size",), sentence=sentence, write="take the key out, or write the width")


def _heads(config: Mapping[str, Any]) -> Iterator[Unread]:
    hidden, heads, shared = (
        _size(config, key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    if heads and shared and heads % shared:
        yield Unread(
            path=("num_key_value_heads",),
            sentence=f"num_key_value_heads is {shared}, and num_attention_heads, {heads}, is no multiple of it",
            write="write both as the draft was trained: each key head serves a whole number of query heads",
        )
    if hidden and heads and not config.get("head_dim") and hidden % heads:
        yield Unread(
            path=("num_attention_heads",),
            sentence=f"num_attention_heads is {heads}, hidden_size, {hidden}, is no multiple of it, and no head_dim is "
            f"given",
            write="write the number of heads that the draft was trained with, or its head_dim",
        )


def _vocabularies(config: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[Unread]:
    own, whole, there = _size(config, "draft_vocab_size"), _size(config, "vocab_size"), _size(target, "vocab_size")
    if own and whole and own > whole:
        sentence = f"draft_vocab_size is {own}, more than vocab_size, {whole}, of which it is a part"
        write = "write how many tokens the draft's lm_head has: at most vocab_size"
        yield Unread(path=("draft_vocab_size",), sentence=sentence, write=write)
    if whole and there and (whole < there or (whole > there and (own or whole) > there)):
        has = "has no row for the rest" if whole < there else "could propose others"
        rule = f"vocab_size is {whole}, and the target's is {there}"
        yield Unread(
            path=("vocab_size",),
            sentence=f"{rule}: the draft reads the target's tokens, and {has}",
            write=f"write {there}, if the draft was trained on this target",
        )


def _size(config: Mapping[str, Any], key: str) -> int:
    """Return a size, 0 where there is none that counts."""
    value = config.get(key)
    return value if isinstance(value, int) and _is_size(value) else 0


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _no_size(key: str, config: Mapping[str, Any]) -> Unread:
    value = config.get(key)
    plain = isinstance(value, str) and value.strip().isdecimal() and int(value) > 0
    write = f"write {value}, without quotation marks" if plain else "write a whole number of at least 1"
    sentence = f"{key} is {found(value)}, and no size" if key in config else f"{key} is missing"
    return Unread(path=(key,), sentence=sentence, write=write)
