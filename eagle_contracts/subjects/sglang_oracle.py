"""The engine as its own reference: every stream state from the outputs of its sub-layers, whatever it captures.

The state entering layer k is the embedding plus all `self_attn` and `mlp` outputs below k. A layer's own return value
is not the stream (SGLang defers the residual addition). Holds at tensor parallel size 1, for classes without norms
after their sub-layers. Runs inside a worker.
"""

from __future__ import annotations

from typing import Any


def _copied(tensor: Any) -> Any:
    """Copy a tensor to the CPU: kernels write into their inputs."""
    return tensor.detach().to("cpu", copy=True)


class StreamSums:
    """Hooks an engine's decoder and adds up its stream during one forward pass."""

    def __init__(self, model: Any) -> None:
        self._parts: dict[str, Any] = {}
        inner = model.model
        inner.embed_tokens.register_forward_hook(self._keep("embed"))
        self.layers = len(inner.layers)
        for k, layer in enumerate(inner.layers):
            layer.self_attn.register_forward_hook(self._keep(f"self_attn.{k}"))
            layer.mlp.register_forward_hook(self._keep(f"mlp.{k}"))

    def _keep(self, name: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            if name in self._parts:
                raise RuntimeError(f"{name} ran twice in one forward pass: its outputs do not add up to a stream")
            self._parts[name] = _copied(output[0] if isinstance(output, tuple) else output).float()

        return hook

    def states(self) -> list[Any]:
        """Return h[0] to h[n], each [tokens, hidden]; raises `LookupError` if a sub-layer did not run."""
        missing = [n for k in range(self.layers) for n in (f"self_attn.{k}", f"mlp.{k}") if n not in self._parts]
        if missing or "embed" not in self._parts:
            raise LookupError(f"these did not run as modules of their own: {', '.join(missing[:4]) or 'embed_tokens'}")
        out = [self._parts["embed"]]
        for k in range(self.layers):
            out.append(out[-1] + self._parts[f"self_attn.{k}"] + self._parts[f"mlp.{k}"])
        return out
