"""What a checkpoint says of its embedding and its final norm; needs torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eagle_contracts.cli import USAGE
from eagle_contracts.cli.tensors import FLOATS, Stored, safetensors_names, tensors_in
from eagle_contracts.cli.words import Complaint
from eagle_contracts.spec.errors import suggest

INDEX: Final = "model.safetensors.index.json"
_EMBEDDINGS: Final = ("embed_tokens.weight", "tok_embeddings.weight", "word_embeddings.weight", "wte.weight")
_NORMS: Final = ("norm.weight", "final_layernorm.weight", "ln_f.weight", "norm_f.weight")
_HEADS: Final = ("lm_head.weight", "output.weight", "embed_out.weight")
_ADDS_ONE: Final = ("gemma", "t5gemma", "qwen3_next")
_CONFIG_LIMIT: Final = 16 << 20
_INDEX_LIMIT: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint of which nothing but names is read: `scale` is what the class multiplies embeddings by, if known.

    `norm` is None where the final norm is not there, or is no RMS norm: `no_norm` says which. `head` is lm_head, or the
    embedding where a checkpoint ties them; None where neither can be read, and `no_head` says why. `adds_one` is for
    norms of gain 1 + weight.
    """

    folder: Path
    hidden: int
    layers: int | None
    embedding: Stored
    norm: Stored | None
    no_norm: str
    head: Stored | None
    no_head: str
    eps: float
    adds_one: bool
    scale: float
    scale_name: str


def read_checkpoint(folder: Path) -> Checkpoint:
    """Find the two tensors in a folder of config.json and safetensors files; raises `Complaint`."""
    if not folder.is_dir():
        raise Complaint(f"there is no checkpoint folder {folder}", USAGE)
    part = _text_part(_json(folder / "config.json", _CONFIG_LIMIT), folder)
    hidden, layers = part["hidden_size"], part.get("num_hidden_layers")
    places = _places(folder)
    embedding = _embedding(places, folder, hidden)
    norm, no_norm = _norm(places, folder, embedding.name, hidden)
    head, no_head = _head(places, folder, embedding)
    scale, scale_name = _scale(part, hidden)
    return Checkpoint(
        folder=folder,
        hidden=hidden,
        layers=layers if isinstance(layers, int) else None,
        embedding=embedding,
        norm=norm,
        no_norm=no_norm,
        head=head,
        no_head=no_head,
        eps=_eps(part),
        adds_one=str(part.get("model_type", "")).startswith(_ADDS_ONE),
        scale=scale,
        scale_name=scale_name,
    )


def _json(path: Path, limit: int) -> dict[str, Any]:
    if not path.is_file():
        raise Complaint(f"{path.parent} has no {path.name}")
    if path.stat().st_size > limit:
        raise Complaint(f"{path} is larger than {limit >> 20} MiB: is it another file?")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Complaint(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise Complaint(f"{path} holds no map")
    return data


def _text_part(config: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    parts = [config.get("text_config"), config, *config.values()]
    for part in parts:
        size = part.get("hidden_size") if isinstance(part, dict) else None
        if isinstance(size, int) and size > 0 and ("num_hidden_layers" in part or part is config):
            return dict(part)
    raise Complaint(f"{folder / 'config.json'} names no hidden_size: it must be the config.json of the target model")


def _places(folder: Path) -> Mapping[str, str]:
    """Return which file holds which tensor: from the index, else from the one file there is."""
    if (folder / INDEX).is_file():
        weights = _json(folder / INDEX, _INDEX_LIMIT).get("weight_map")
        if not isinstance(weights, dict):
            raise Complaint(f"{folder / INDEX} has no weight_map")
        return {str(name): str(file) for name, file in weights.items()}
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    files = ["model.safetensors"] if "model.safetensors" in files else files
    if len(files) == 1:
        return dict.fromkeys(safetensors_names(folder / files[0]), files[0])
    if files:
        raise Complaint(f"{folder} has {len(files)} .safetensors files and no {INDEX}, which says what is where")
    pickled = any(folder.glob("*.bin"))
    more = ": its .bin files are pickles, which are not read; save it as safetensors" if pickled else ""
    raise Complaint(f"{folder} has no .safetensors file{more}")


def _embedding(places: Mapping[str, str], folder: Path, hidden: int) -> Stored:
    names = [name for name in places if name.endswith(_EMBEDDINGS) and ".layers." not in name]
    if not names:
        near = suggest("model.embed_tokens.weight", list(places)[:20], "tensors there")
        raise Complaint(f"the checkpoint {folder} has no tensor *.embed_tokens.weight: {near}")
    found = [_in_shard(name, places, folder) for name in names]
    fitting = [one for one in found if len(one.shape) == 2 and one.shape[1] == hidden]
    if len(fitting) > 1:
        raise Complaint(f"the checkpoint {folder} has {len(fitting)} embeddings of width {hidden}: {', '.join(names)}")
    if not fitting:
        shape = " x ".join(map(str, found[0].shape))
        raise Complaint(f"{found[0].name} of {folder} is {shape}, and hidden_size in config.json is {hidden}")
    if fitting[0].kind not in FLOATS:
        raise Complaint(f"{fitting[0].name} is stored as {fitting[0].kind}; only {', '.join(FLOATS)} are read")
    return fitting[0]


def _norm(places: Mapping[str, str], folder: Path, embedding: str, hidden: int) -> tuple[Stored | None, str]:
    prefix = embedding[: -len(next(end for end in _EMBEDDINGS if embedding.endswith(end)))]
    name = next((prefix + end for end in _NORMS if prefix + end in places), None)
    if name is None:
        return None, f"the checkpoint has no {prefix}norm.weight"
    if f"{name.removesuffix('weight')}bias" in places:
        return None, f"{name} has a bias, so it is no RMS norm"
    try:
        found = _in_shard(name, places, folder)
    except Complaint as error:
        return None, str(error)
    if found.shape != (hidden,) or found.kind not in FLOATS:
        shape = " x ".join(map(str, found.shape))
        return None, f"{name} is {shape} of {found.kind}, not {hidden} floating point numbers"
    return found, ""


def _head(places: Mapping[str, str], folder: Path, embedding: Stored) -> tuple[Stored | None, str]:
    """Return lm_head; the embedding where there is none, since a checkpoint that ties the two stores one of them."""
    names = [name for name in places if name.endswith(_HEADS) and ".layers." not in name]
    if len(names) > 1:
        return None, f"the checkpoint has {len(names)} of them: {', '.join(names[:3])}"
    try:
        found = _in_shard(names[0], places, folder) if names else embedding
    except Complaint as error:
        return None, str(error)
    if found.shape != embedding.shape or found.kind not in FLOATS:
        return None, f"{found.name} is {' x '.join(map(str, found.shape))} of {found.kind}"
    return found, ""


def _eps(part: Mapping[str, Any]) -> float:
    value = part.get("rms_norm_eps", part.get("layer_norm_epsilon"))
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1 else 1e-6


def _in_shard(name: str, places: Mapping[str, str], folder: Path) -> Stored:
    file = places[name]
    if Path(file).name != file or not (folder / file).is_file():
        raise Complaint(f"{INDEX} says that {name} is in {file}, and {folder} has no such file")
    there = tensors_in(folder / file)
    if name not in there:
        raise Complaint(f"{INDEX} says that {name} is in {file}, and it is not")
    return there[name]


def _scale(part: Mapping[str, Any], hidden: int) -> tuple[float, str]:
    """Return what the class multiplies embeddings by, and how it is written."""
    if str(part.get("model_type", "")).startswith(("gemma", "t5gemma")):
        return math.sqrt(hidden), f"sqrt(hidden_size) = {math.sqrt(hidden):.4g}, as this model's class does"
    for key in ("embedding_multiplier", "scale_emb"):
        value = part.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value not in (0, 1):
            return float(value), f"{key} = {value:g}, as this model's class does"
    return 1.0, ""
