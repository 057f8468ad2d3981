"""Writes a twin's weights and its reference states, inside a worker that has torch, safetensors and transformers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

STATES = "states.safetensors"
SUBLAYERS = "sublayers.safetensors"
MANIFEST = "twin.json"
LEFT_SECONDS = 86_400
"""The age at which what a killed run left is nobody's: no twin takes a day to be written."""


def make(params: dict[str, Any]) -> dict[str, Any]:
    """Write the twin's directory once: checkpoint, reference states, manifest; return the manifest.

    Everything is written beside the final place and renamed, so that two runs at once and a killed run leave either
    nothing or the whole. Tensors follow from (seed, checkpoint name, shape) alone, whoever writes them.
    """
    final = Path(params["folder"])
    if (final / MANIFEST).is_file():
        return read_manifest(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final.parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        _write(scratch, params["twin"])
        try:
            os.rename(scratch, final)
        except OSError:
            if not (final / MANIFEST).is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return read_manifest(final)


def _sweep(twins: Path) -> None:
    """Remove what killed runs left; by age, since those that run may be in other containers."""
    for left in twins.glob(".*.*"):
        if left.is_dir() and time.time() - left.stat().st_mtime > LEFT_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a complete twin."""
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return manifest


def _write(folder: Path, twin: dict[str, Any]) -> None:
    import transformers

    target = folder / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(twin["target"], indent=1))
    dtype = config_dtype(target)
    _checkpoint(target, twin["seed"], dtype)
    (target / "config.json").write_text(json.dumps(twin["target"], indent=1))
    for extra in ("generation_config.json",):
        (target / extra).unlink(missing_ok=True)
    _reference_states(folder, twin)
    manifest = {"transformers": transformers.__version__, "layers": twin["layers"], "prompts": twin["prompts"]}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _checkpoint(target: Path, seed: int, dtype: Any) -> None:
    """Let transformers lay out the checkpoint's names and shapes, then replace every value by a seeded one."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    config = transformers.AutoConfig.from_pretrained(target)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(target, max_shard_size="100GB")
    path = target / "model.safetensors"
    tensors = {
        name: (seeded_values(name, tensor.shape, seed) * _damping(name, dtype)).to(dtype)
        for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})


def _damping(name: str, dtype: Any) -> float:
    """Return what a weight is scaled by: in bfloat16 what is not linear in the stream gets less to say.

    Products in the MLP and sharp attention amplify rounding: without this, 61 layers of latent attention in bfloat16
    are 5.6e-2 from float32 at the end, where the neighbouring state is 0.13 away. With it they are 1.2e-2.
    """
    import torch

    sharp = any(part in name for part in ("down_proj", "q_proj", "q_b_proj"))
    return 0.25 if dtype == torch.bfloat16 and sharp else 1.0


def config_dtype(folder: Path) -> Any:
    """Return the torch type that a checkpoint's config.json names."""
    import torch

    return getattr(torch, json.loads((folder / "config.json").read_text()).get("torch_dtype", "float32"))


def seeded_values(name: str, shape: Any, seed: int) -> Any:
    """Return a tensor's values: gains around 1 for norms, small offsets, else columns that keep a row's size.

    The gains are random so that a normed state cannot pass for a plain one, and every layer adds as much as the
    embedding holds, so that neighbouring states stay apart at every depth.
    """
    import torch

    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    if "norm" in name:
        return torch.rand(shape, generator=generator) + 0.5
    noise = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        return 0.02 * noise
    return noise if "embed" in name else noise / shape[-1] ** 0.5


def _reference_states(folder: Path, twin: dict[str, Any]) -> None:
    """Run transformers' model and keep every stream state, and what a wrong capture could have taken instead.

    States are [tokens of all prompts, hidden], float32 whatever the weights are. `h.k` enters decoder layer k;
    `h.n` is what enters the final norm, taken there by a hook because transformers puts the normed state at index n of
    `hidden_states`.
    """
    import torch
    import transformers
    from safetensors.torch import save_file

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "target", dtype=torch.float32).eval()
    stream = Recorder(model)
    with torch.no_grad():
        for prompt in twin["prompts"]:
            stream.record(model, torch.tensor([prompt]))
    layers = twin["layers"]
    states = {f"h.{k}": stream.joined(f"h.{k}") for k in range(layers + 1)}
    states["final_normed"] = stream.joined("final_normed")
    save_file(states, folder / STATES)
    others = {name: stream.joined(name) for name in stream.parts if name not in states}
    with torch.no_grad():
        others.update({f"final_norm_of.{k}": model.model.norm(states[f"h.{k}"]) for k in range(layers)})
    save_file(others, folder / SUBLAYERS)


class Recorder:
    """Collects a transformers model's stream and its sub-layer outputs over several prompts."""

    def __init__(self, model: Any) -> None:
        self.parts: dict[str, list[Any]] = {}
        for k, layer in enumerate(model.model.layers):
            layer.register_forward_pre_hook(self._entering(f"h.{k}"), with_kwargs=True)
            for name, module in layer.named_children():
                if name in ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm"):
                    module.register_forward_hook(self._leaving(f"{name}.{k}"))
        model.model.norm.register_forward_pre_hook(self._entering(f"h.{len(model.model.layers)}"), with_kwargs=True)
        model.model.norm.register_forward_hook(self._leaving("final_normed"))

    def _entering(self, name: str) -> Any:
        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._keep(name, args[0] if args else kwargs["hidden_states"])

        return hook

    def _leaving(self, name: str) -> Any:
        def hook(module: Any, args: tuple[Any, ...], output: Any) -> None:
            self._keep(name, output[0] if isinstance(output, tuple) else output)

        return hook

    def _keep(self, name: str, tensor: Any) -> None:
        self.parts.setdefault(name, []).append(tensor.reshape(-1, tensor.shape[-1]).clone())

    def record(self, model: Any, tokens: Any) -> None:
        """Run one prompt."""
        model(tokens, use_cache=False)

    def joined(self, name: str) -> Any:
        """Return one state over all prompts, in their order."""
        import torch

        return torch.cat(self.parts[name]).contiguous()


def read_states(folder: Path) -> dict[str, Any]:
    """Return the reference states by name, `h.0` to `h.n` and `final_normed`."""
    from safetensors.torch import load_file

    states: dict[str, Any] = load_file(folder / STATES)
    return states


def candidates(folder: Path) -> list[tuple[Any, Any]]:
    """Return what a slot is compared with first: h[0] to h[n] and the normed final."""
    from eagle_contracts.identify import Candidate

    states = read_states(folder)
    count = len(states) - 1
    out = [(Candidate(label=_stream_label(k, count - 1), kind="state", k=k), states[f"h.{k}"]) for k in range(count)]
    out.append((Candidate(label="final_normed", kind="final_normed", k=None), states["final_normed"]))
    return out


def _stream_label(k: int, layers: int) -> str:
    return f"h[{k}]" + (" (embedding)" if k == 0 else " (final)" if k == layers else "")


_SUBLAYER_KINDS: dict[str, tuple[Any, str]] = {
    "self_attn": ("sublayer", "the self_attn output of layer {k}"),
    "mlp": ("sublayer", "the mlp output of layer {k}"),
    "input_layernorm": ("normed_input", "h[{k}] after layer {k}'s input norm"),
    "post_attention_layernorm": ("normed_input", "layer {k}'s stream after its post-attention norm"),
    "final_norm_of": ("final_norm_of", "h[{k}] after the final norm"),
}


def second_pass(folder: Path) -> list[tuple[Any, Any]]:
    """Return what a wrong capture could have taken instead of a stream state; read only when nothing else fits."""
    from safetensors.torch import load_file

    from eagle_contracts.identify import Candidate

    out = []
    for name, tensor in load_file(folder / SUBLAYERS).items():
        what, _, k = name.rpartition(".")
        kind, label = _SUBLAYER_KINDS[what]
        out.append((Candidate(label=label.format(k=k), kind=kind, k=int(k)), tensor))
    return out


def row_error(x: Any, h: Any) -> float:
    """Return the median over tokens of the row's relative L2 error of x against h; NaN where either has one."""
    import torch

    errors: Any = torch.linalg.vector_norm(x - h, dim=1) / torch.linalg.vector_norm(h, dim=1)
    return float("nan") if bool(errors.isnan().any()) else float(errors.median())
