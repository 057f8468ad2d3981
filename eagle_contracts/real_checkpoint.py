"""A real draft's checkpoint against its config.json, by the headers of its files alone: no weights, no torch.

Loaders of drafts drop a tensor that they do not know, and leave one that is missing as it was made, both without a word
(SGLang's models/llama_eagle3.py and models/kimi_k25_eagle3.py), and the twin has weights of its own: nothing else would
tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eagle_contracts.real_draft import FC, INDEX, METADATA, bytes_each, extent, files_of, is_there, map_in, read_header
from eagle_contracts.spec.draft_sizes import KINDS, kind_of, unusable
from eagle_contracts.subjects.draft_weights import shapes

_PICKLED: Final = re.compile(r"(adapter_|pytorch_)?model\b.*\.(bin|pt|pth|ckpt|pkl|pickle)|consolidated.*\.pth")
_LEGACY: Final = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
_FUSED: Final = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | {
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
_MOST = 4
"""How many tensors a sentence names before it only counts."""


def checkpoint_faults(config: Path) -> Iterator[str]:
    """Yield what is wrong with the checkpoint beside a draft's config.json, each as a sentence that names the file.

    How wide `fc` reads is left to `real_draft.fc_widths`. Nothing is yielded where there is no checkpoint.
    """
    folder = config.parent
    pickled = sorted(file.name for file in folder.iterdir() if _PICKLED.fullmatch(file.name))
    if pickled and not is_there(folder / INDEX) and not list(folder.glob("*.safetensors")):
        yield f"the checkpoint is {pickled[0]} alone, which is read by unpickling only: save it as model.safetensors"
        return
    headers: dict[Path, dict[str, Any]] = {}
    faults: list[str] = []
    for file in _files(folder, faults):
        try:
            headers[file] = read_header(file)
        except ValueError as error:
            faults.append(str(error))
    for file, header in headers.items():
        faults += _layout(file, header)
    yield from faults
    if headers and not faults:
        yield from _unlisted(folder, headers)
        yield from _unlike(map_in(config), headers)


def _files(folder: Path, faults: list[str]) -> list[Path]:
    """Return the files that a loader reads, whichever tensors they hold; what is wrong with the index is a fault."""
    try:
        return files_of(folder, only=())
    except ValueError as error:
        faults.append(str(error))
        return []


def _layout(file: Path, header: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first tensor that has not the bytes of its type and shape, or not where the last one ended."""
    end = 0
    entries = [(extent(entry) or (0, 0), name, entry) for name, entry in header.items() if name != METADATA]
    for (start, stop), name, entry in sorted(entries, key=lambda one: one[:2]):
        shape = entry.get("shape") if isinstance(entry, Mapping) else None
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            yield f"{file.name} gives {name} no shape of whole numbers"
            return
        each = bytes_each(entry)
        if each is None:
            yield f"{file.name} gives {name} the type {entry.get('dtype')!s:.20}, which safetensors has not"
            return
        wanted = math.prod(shape) * each
        if stop - start != wanted:
            size = " x ".join(map(str, shape)) or "1"
            yield f"{file.name} keeps {stop - start} bytes for {name}, and {size} {entry['dtype']} are {wanted}"
            return
        if start != end:
            what = "overlaps the tensor before it" if start < end else f"leaves {start - end} bytes unnamed before it"
            yield f"{file.name} is no whole safetensors file: {name} {what}"
            return
        end = stop


def _unlisted(folder: Path, headers: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the tensors that the index places in a file that has none of that name."""
    if not is_there(folder / INDEX):
        return
    there = {file.name: header for file, header in headers.items()}
    places = map_in(folder / INDEX)["weight_map"]
    lost = [f"{name} in {file}" for name, file in places.items() if name not in there.get(str(file), {})]
    if lost:
        yield f"{INDEX} names {_listed(lost)}, and no such tensor is in there"


def _unlike(config: Mapping[str, Any], headers: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the tensors that the config's class needs and the checkpoint has not, or has in another shape."""
    if kind_of(config) not in KINDS or list(unusable(config)) or config.get("quantization_config"):
        return
    found = {
        _plain(name): (file.name, entry["shape"]) for file, header in headers.items() for name, entry in _in(header)
    }
    wanted = {_plain(name): shape for name, shape in shapes(config, _slots(config)).items()}
    own, whole = config.get("draft_vocab_size") or config["vocab_size"], config["vocab_size"]
    if own != whole:
        wanted |= {"d2t": (own,)}
    missing = [name for name in wanted if name not in found and _fused(name) not in found and not _shared(name, config)]
    lacking = [name for name in missing if name not in FC]
    if lacking:
        file = next(iter(headers)).name if len(headers) == 1 else f"the checkpoint of {len(headers)} files"
        yield f"{file} has no {_listed(lacking)}: loaders go on with whatever stands there then, without a word"
    for name, shape in {**wanted, "t2d": (whole,)}.items():
        file, real = found.get(name, ("", list(shape)))
        if real[:1] != list(shape[:1]) if name in FC else real != list(shape):
            yield f"{file} has {name} as {_sides(real)}, and by config.json it is {_sides(shape)}"
            return


def _in(header: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, entry) for name, entry in header.items() if name != METADATA)


def _plain(name: str) -> str:
    """Return a tensor's name as all published layouts of a draft can be compared by."""
    plain = re.sub(r"^midlayer\.", "layers.0.", name.removeprefix("model."))
    for old, new in _LEGACY.items():
        plain = plain.replace(old, new)
    return plain


def _fused(name: str) -> str:
    for part, whole in _FUSED.items():
        name = name.replace(f".{part}.", f".{whole}.")
    return name


def _shared(name: str, config: Mapping[str, Any]) -> bool:
    """Tell whether an engine takes a tensor from the target: the embedding, of a draft as wide; the whole lm_head."""
    if name == "embed_tokens.weight":
        return config.get("target_hidden_size") in (None, config["hidden_size"])
    return name == "lm_head.weight" and (bool(config.get("tie_word_embeddings")) or not config.get("draft_vocab_size"))


def _slots(config: Mapping[str, Any]) -> int:
    nested = config.get("eagle_config")
    inside = nested if isinstance(nested, Mapping) else {}
    key = "eagle_aux_hidden_state_layer_ids"
    ids = inside.get(key) or config.get(key)
    count = config.get("num_aux_hidden_states")
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return count
    return len(ids) if isinstance(ids, list) and ids else 3


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"


def _sides(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"
