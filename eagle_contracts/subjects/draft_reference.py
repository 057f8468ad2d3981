"""A draft step of EAGLE-3 in plain torch, without an engine: what the engine's numbers are held against.

Row p of a sequence is the state of position p with the token at p + 1, at rotary position p. Runs inside a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eagle_contracts.subjects import draft_weights

EPS = 1e-6
"""What transformers' configs take where rms_norm_eps is left out."""
Of = Callable[[str], Any]
"""A layer's weight by its name."""


class Read(NamedTuple):
    """What a request's steps were given: `states` [tokens of the prompt, slots x target hidden], and for each pair its

    token and position, those of later steps behind those of the first.
    """

    states: Any
    tokens: list[int]
    positions: list[int]


def _in_float32(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: t.float() if t.is_floating_point() else t for name, t in weights.items()}


class Reference:
    """A draft's checkpoint, and what serving takes from the target instead of the draft's own.

    That is the embedding, unless the draft says that its target has another width, and a head that the draft leaves
    out.
    """

    def __init__(self, draft: Path, config: Mapping[str, Any], target: Path) -> None:
        from safetensors.torch import load_file

        self.config = config
        self.weights = _in_float32(load_file(draft / draft_weights.WEIGHTS))
        given = _in_float32(load_file(target / "model.safetensors"))
        own = config.get("target_hidden_size") not in (None, config["hidden_size"])
        self.embedding = self.weights["embed_tokens.weight"] if own else given["model.embed_tokens.weight"]
        head = self.weights["lm_head.weight"]
        if config.get("tie_word_embeddings"):
            head = self.embedding
        elif config.get("draft_vocab_size") is None:
            head = given.get("lm_head.weight", given["model.embed_tokens.weight"])
        self._head = head[: config.get("draft_vocab_size")]
        self._eps = float(config.get("rms_norm_eps") or EPS)

    def steps(self, read: Read, count: int) -> list[dict[str, Any]]:
        """Return the last row's logits and handed-on state of the first step and of `count - 1` later ones."""
        import torch

        first = len(read.states)
        hidden = self._fc(read.states)
        out = []
        for rows in range(first, first + count):
            tokens, positions = torch.tensor(read.tokens[:rows]), torch.tensor(read.positions[:rows])
            logits, own = self._layers(tokens, positions, hidden)
            out.append({"logits": logits[-1], "hidden": own[-1]})
            hidden = torch.cat([hidden, own[-1:]])
        return out

    def in_target_vocabulary(self, token: int) -> int:
        """Return which of the target's tokens one of the draft's is: d2t holds differences."""
        return token + int(self.weights["d2t"][token]) if "d2t" in self.weights else token

    def before_fc(self, states: Any) -> Any:
        """Return what `fc` reads of the states: they pass the norms that stand before it."""
        import torch

        if "input_norm.weight" in self.weights:
            states = self._norm(states, self.weights["input_norm.weight"])
        norms = sorted(name for name in self.weights if name.startswith("fc_norm."))
        if norms:
            parts = states.chunk(len(norms), dim=-1)
            states = torch.cat([self._norm(x, self.weights[n]) for x, n in zip(parts, norms, strict=True)], dim=-1)
        return states

    def _fc(self, states: Any) -> Any:
        out = self.before_fc(states) @ self.weights["fc.weight"].T
        return out + self.weights["fc.bias"] if "fc.bias" in self.weights else out

    def _layers(self, tokens: Any, positions: Any, hidden: Any) -> tuple[Any, Any]:
        """Return logits over the draft's vocabulary, and the state that the next step reads."""
        stream = self._layer(hidden, positions, 0, self.embedding[tokens])
        for number in range(1, self.config.get("num_hidden_layers", 1)):
            stream = self._layer(stream, positions, number)
        normed = self._norm(stream, self.weights["norm.weight"])
        return normed @ self._head.T, normed if self.config.get("norm_output") else stream

    def _layer(self, stream: Any, positions: Any, number: int, embedded: Any = None) -> Any:
        """Return the stream after a layer; the first one reads the embedding beside it."""
        import torch
        from torch.nn.functional import silu

        def of(name: str) -> Any:
            """Return a weight of this layer."""
            return self.weights[f"{draft_weights.layer_prefix(self.config, number)}{name}.weight"]

        read = self._norm(stream, of("hidden_norm"))
        if embedded is not None:
            stream = read if self.config.get("norm_before_residual") else stream
            read = torch.cat([self._norm(embedded, of("input_layernorm")), read], dim=-1)
        stream = stream + self._attention(read, positions, of)
        inner = self._norm(stream, of("post_attention_layernorm"))
        gated = silu(inner @ of("mlp.gate_proj").T) * (inner @ of("mlp.up_proj").T)
        return stream + gated @ of("mlp.down_proj").T

    def _norm(self, x: Any, gain: Any) -> Any:
        import torch

        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._eps) * gain

    def _attention(self, x: Any, positions: Any, of: Of) -> Any:
        latent = self.config["architectures"][0] == draft_weights.LATENT
        q, k, v = self._latent(x, positions, of) if latent else self._plain(x, positions, of)
        return _causal(q, k, v) @ of("self_attn.o_proj").T

    def _plain(self, x: Any, positions: Any, of: Of) -> tuple[Any, Any, Any]:
        heads = self.config["num_attention_heads"]
        size = self.config.get("head_dim") or self.config["hidden_size"] // heads
        q, k, v = (
            (x @ of(f"self_attn.{n}_proj").T).view(x.shape[0], -1, size).transpose(0, 1) for n in ("q", "k", "v")
        )
        turn = self._turns(positions, size)
        repeated = heads // k.shape[0]
        return (
            _halves(q, turn),
            _halves(k, turn).repeat_interleave(repeated, 0),
            v.repeat_interleave(repeated, 0),
        )

    def _latent(self, x: Any, positions: Any, of: Of) -> tuple[Any, Any, Any]:
        """Multi-head latent attention, its keys and values written out."""
        import torch

        plain, rotary, latent = (self.config[n] for n in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank"))
        heads, rows = self.config["num_attention_heads"], x.shape[0]
        low = self._norm(x @ of("self_attn.q_a_proj").T, of("self_attn.q_a_layernorm"))
        q = (low @ of("self_attn.q_b_proj").T).view(rows, heads, plain + rotary).transpose(0, 1)
        both = x @ of("self_attn.kv_a_proj_with_mqa").T
        kept = self._norm(both[:, :latent], of("self_attn.kv_a_layernorm"))
        k_v = (kept @ of("self_attn.kv_b_proj").T).view(rows, heads, -1).transpose(0, 1)
        turn = self._turns(positions, rotary)
        shared = _pairs(both[None, :, latent:], turn).expand(heads, rows, rotary)
        q = torch.cat([q[..., :plain], _pairs(q[..., plain:], turn)], dim=-1)
        return q, torch.cat([k_v[..., :plain], shared], dim=-1), k_v[..., plain:]

    def _turns(self, positions: Any, size: int) -> tuple[Any, Any]:
        """Return cosines and sines [positions, size / 2] of plain rope."""
        import torch

        rope = {**self.config, **(self.config.get("rope_parameters") or {})}
        speeds = float(rope.get("rope_theta") or 10000.0) ** (-torch.arange(0, size, 2).float() / size)
        angles = positions.float()[:, None] * speeds
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
