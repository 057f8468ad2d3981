"""A draft step of EAGLE-3 in plain torch, without an engine: what the engine's numbers are held against.

Row p of a sequence is the state of position p with the token at p + 1, at rotary position p. Runs inside a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.subjects import draft_weights


class Reference:
    """A draft's checkpoint and the target's embedding, which serving uses instead of the draft's own."""

    def __init__(self, draft: Path, config: Mapping[str, Any], target: Path) -> None:
        from safetensors.torch import load_file

        self.config = config
        weights = load_file(draft / draft_weights.WEIGHTS)
        self.weights = {name: t.float() if t.is_floating_point() else t for name, t in weights.items()}
        self.embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"].float()
        self._prefix = draft_weights.layer_prefix(config)
        self._eps = float(config["rms_norm_eps"])

    def steps(self, prompt: list[int], states: Any, sampled: int, count: int) -> list[dict[str, Any]]:
        """Return, for the first step and `count - 1` later ones, the last row's logits, hidden state and token.

        `states` is [tokens of the prompt, slots x target hidden], `sampled` the target's next token.
        """
        import torch

        tokens = [*prompt[1:], sampled]
        hidden = self._fc(states)
        out = []
        for _ in range(count):
            logits, own = self._layer(torch.tensor(tokens), hidden)
            token = self._in_target_vocabulary(int(logits[-1].argmax()))
            out.append({"logits": logits[-1], "hidden": own[-1], "token": token})
            tokens.append(token)
            hidden = torch.cat([hidden, own[-1:]])
        return out

    def _in_target_vocabulary(self, token: int) -> int:
        return token + int(self.weights["d2t"][token]) if "d2t" in self.weights else token

    def _fc(self, states: Any) -> Any:
        import torch

        norms = sorted(name for name in self.weights if name.startswith("fc_norm."))
        if norms:
            parts = states.chunk(len(norms), dim=-1)
            states = torch.cat([self._norm(x, self.weights[n]) for x, n in zip(parts, norms, strict=True)], dim=-1)
        return states @ self.weights["fc.weight"].T

    def _layer(self, tokens: Any, hidden: Any) -> tuple[Any, Any]:
        """Return logits over the draft's vocabulary, and the state that the next step reads."""
        import torch
        from torch.nn.functional import silu

        embedded = self._norm(self.embedding[tokens], self._of("input_layernorm"))
        both = torch.cat([embedded, self._norm(hidden, self._of("hidden_norm"))], dim=-1)
        stream = hidden + self._attention(both)
        inner = self._norm(stream, self._of("post_attention_layernorm"))
        gated = silu(inner @ self._of("mlp.gate_proj").T) * (inner @ self._of("mlp.up_proj").T)
        stream = stream + gated @ self._of("mlp.down_proj").T
        normed = self._norm(stream, self.weights["norm.weight"])
        return normed @ self.weights["lm_head.weight"].T, normed if self.config.get("norm_output") else stream

    def _of(self, name: str) -> Any:
        return self.weights[f"{self._prefix}{name}.weight"]

    def _norm(self, x: Any, gain: Any) -> Any:
        import torch

        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._eps) * gain

    def _attention(self, x: Any) -> Any:
        q, k, v = self._latent(x) if self.config["architectures"][0] == draft_weights.LATENT else self._plain(x)
        return _causal(q, k, v) @ self._of("self_attn.o_proj").T

    def _plain(self, x: Any) -> tuple[Any, Any, Any]:
        heads = self.config["num_attention_heads"]
        size = self.config.get("head_dim") or self.config["hidden_size"] // heads
        q, k, v = (
            (x @ self._of(f"self_attn.{n}_proj").T).view(x.shape[0], -1, size).transpose(0, 1) for n in ("q", "k", "v")
        )
        turn = self._turns(x.shape[0], size)
        repeated = heads // k.shape[0]
        return (
            _halves(q, turn),
            _halves(k, turn).repeat_interleave(repeated, 0),
            v.repeat_interleave(repeated, 0),
        )

    def _latent(self, x: Any) -> tuple[Any, Any, Any]:
        """Multi-head latent attention, its keys and values written out."""
        import torch

        plain, rotary, latent = (self.config[n] for n in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank"))
        heads, rows = self.config["num_attention_heads"], x.shape[0]
        low = self._norm(x @ self._of("self_attn.q_a_proj").T, self._of("self_attn.q_a_layernorm"))
        q = (low @ self._of("self_attn.q_b_proj").T).view(rows, heads, plain + rotary).transpose(0, 1)
        both = x @ self._of("self_attn.kv_a_proj_with_mqa").T
        kept = self._norm(both[:, :latent], self._of("self_attn.kv_a_layernorm"))
        k_v = (kept @ self._of("self_attn.kv_b_proj").T).view(rows, heads, -1).transpose(0, 1)
        turn = self._turns(rows, rotary)
        shared = _pairs(both[None, :, latent:], turn).expand(heads, rows, rotary)
        q = torch.cat([q[..., :plain], _pairs(q[..., plain:], turn)], dim=-1)
        return q, torch.cat([k_v[..., :plain], shared], dim=-1), k_v[..., plain:]

    def _turns(self, rows: int, size: int) -> tuple[Any, Any]:
        """Return cosines and sines [rows, size / 2] of plain rope."""
        import torch

        rope = {**self.config, **(self.config.get("rope_parameters") or {})}
        speeds = float(rope.get("rope_theta") or 10000.0) ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.arange(rows).float()[:, None] * speeds
        return angles.cos(), angles.sin()


def _halves(x: Any, turn: tuple[Any, Any]) -> Any:
    """Rotate the two halves of a head against each other."""
    import torch

    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * turn[0] - two * turn[1], two * turn[0] + one * turn[1]], dim=-1)


def _pairs(x: Any, turn: tuple[Any, Any]) -> Any:
    """Rotate neighbours against each other; their order does not matter for a product of queries and keys."""
    import torch

    one, two = x[..., ::2], x[..., 1::2]
    return torch.cat([one * turn[0] - two * turn[1], two * turn[0] + one * turn[1]], dim=-1)


def _causal(q: Any, k: Any, v: Any) -> Any:
    import torch

    rows = q.shape[1]
    weights = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    weights = weights.masked_fill(~torch.ones(rows, rows, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
    return (weights @ v).transpose(0, 1).reshape(rows, -1)
