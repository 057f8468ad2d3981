"""How SGLang 0.5.23's draft side runs on a CPU: its attention, and the kernels between prefill and the draft's steps.

Every workaround stands here; nothing of SGLang is edited. Applied in the forked child, so that the worker's other
observations run without it. Verification is no part of this: it is stopped before its first kernel.
"""

from __future__ import annotations

from typing import Any

BACKEND = "eagle_contracts_draft"
_KERNELS = "sglang.kernels.ops.speculative.cache_locs.assign_draft_cache_locs_contiguous_func"
_POOL = "sglang.srt.mem_cache.allocation.assign_req_to_token_pool_func"
_VERIFY = "sglang.srt.speculative.eagle_worker_common.build_eagle_verify_input"
_FACTORY = "sglang.srt.speculative.draft_utils.DraftBackendFactory"


class StopBeforeVerify(Exception):
    """The draft has drafted; what follows is the target's verification."""


def install(*, reference: bool) -> None:
    """Put everything in place; raises `LookupError` where this version has none of the places.

    Without `reference` the engine's own attention and kernels stay, and only verification is stopped.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    backend = _backend_class()
    stop = {_VERIFY: (_stop, HookType.REPLACE)}
    plain = {
        _KERNELS: (_draft_cache_locs, HookType.REPLACE),
        _POOL: (_assign_pool, HookType.REPLACE),
        f"{_FACTORY}.create_decode_backend": (_steps_of(backend), HookType.REPLACE),
        f"{_FACTORY}.create_draft_extend_backend": (_keep_own_backend, HookType.REPLACE),
    }
    hooks = {**stop, **plain} if reference else stop
    for place, (hook, kind) in hooks.items():
        HookRegistry.register(place, hook, kind)
    HookRegistry.apply_hooks()
    _assert_applied(hooks)
    if reference:
        _register(backend)
        _without_device_waits()


def _assert_applied(hooks: Any) -> None:
    """Refuse a hook that did not take: SGLang's registry only logs when a target is gone."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    missing = [place for place in hooks if place not in HookRegistry._patched]
    if missing:
        raise LookupError(f"this SGLang has no {', '.join(missing)}: its draft side cannot be run on a CPU")


def _without_device_waits() -> None:
    """Let the Kimi draft's `set_embed` pass: it waits for a GPU that is not there (models/kimi_k25_eagle3.py)."""
    import torch

    def nothing(device: Any = None) -> None:
        """There is no device to wait for."""

    if not torch.cuda.is_available():
        torch.cuda.synchronize = nothing


def _draft_cache_locs(
    req_pool_indices: Any,
    req_to_token: Any,
    seq_lens: Any,
    out_cache_loc: Any,
    topk: int,
    num_cols: int,
    positions: Any = None,
    mrope: Any = None,
) -> None:
    """Copy each request's next cache slots, as the triton kernel of the same name does."""
    import torch

    if positions is not None or mrope is not None:
        raise NotImplementedError("positions are written by the kernel on a GPU only")
    columns = seq_lens.long().view(-1, 1) + torch.arange(topk * num_cols, device=seq_lens.device)
    out_cache_loc.copy_(torch.gather(req_to_token[req_pool_indices.long()], 1, columns).reshape(-1))


def _assign_pool(
    req_pool_indices: Any, req_to_token: Any, start_offset: Any, end_offset: Any, out_cache_loc: Any, batch_size: int
) -> None:
    """Note each request's new cache slots in its row of the table."""
    taken = 0
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    for row, start, end in rows:
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def _stop(*args: Any, **named: Any) -> None:
    raise StopBeforeVerify


def _keep_own_backend(factory: Any) -> None:
    """Return nothing, so that the draft's runner extends with the attention it was given."""


def _steps_of(backend: Any) -> Any:
    def create(factory: Any) -> Any:
        """Return one attention for each of the draft's later steps."""
        return _Steps(backend, factory.draft_model_runner, factory.speculative_num_steps)

    return create


class _Steps:
    """What SGLang calls a multi-step backend: attention i sees i + 1 tokens beyond the prompt."""

    def __init__(self, backend: Any, runner: Any, steps: int) -> None:
        self.attn_backends = [backend(runner, ahead=i + 1) for i in range(steps - 1)]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare every step's attention."""
        for one in self.attn_backends:
            one.init_forward_metadata(forward_batch)


def _register(backend: Any) -> None:
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(BACKEND)(lambda runner: backend(runner))


def _backend_class() -> Any:
    from eagle_contracts.subjects import sglang_cpu

    base = sglang_cpu.prefill_attention()

    class DraftAttention(base):  # type: ignore[misc,valid-type]
        """Prefill that keeps keys and values, and decode over them, `ahead` tokens beyond what is committed."""

        def __init__(self, runner: Any, ahead: int = 0) -> None:
            super().__init__(runner)
            self._ahead = ahead

        def forward_extend(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **rest: Any
        ) -> Any:
            if save_kv_cache and layer.qk_head_dim == layer.v_head_dim:
                self._keep(layer, forward_batch, k, v)
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **rest)

        def forward_decode(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **rest: Any
        ) -> Any:
            if rest.get("q_rope") is not None:
                return self._latent_decode(q, k, v, layer, forward_batch, **rest)
            self._keep(layer, forward_batch, k, v)
            keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
            values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
            heads = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
            return self._attend(heads, keys, values, layer, forward_batch)

        def _keep(self, layer: Any, forward_batch: Any, k: Any, v: Any) -> None:
            from sglang.srt.mem_cache.memory_pool import KVWriteLoc

            place = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            k = k.view(-1, layer.tp_k_head_num, layer.qk_head_dim)
            v = v.view(-1, layer.tp_v_head_num, layer.v_head_dim)
            self.token_to_kv_pool.set_kv_buffer(layer, place, k, v)

        def _latent_decode(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, q_rope: Any, k_rope: Any, **rest: Any
        ) -> Any:
            """Absorbed MLA: the latent part stands for both keys and values, the rotary part is given apart."""
            import torch

            self.token_to_kv_pool.set_mla_kv_buffer(layer, forward_batch.out_cache_loc, k, k_rope)
            latent = q.view(-1, layer.tp_q_head_num, layer.v_head_dim)
            rotary = q_rope.view(-1, layer.tp_q_head_num, layer.qk_head_dim - layer.v_head_dim)
            kept = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
            keys = kept.view(kept.shape[0], 1, -1)
            values = keys[..., : layer.v_head_dim]
            return self._attend(torch.cat([latent, rotary], -1), keys, values, layer, forward_batch)

        def _attend(self, heads: Any, keys: Any, values: Any, layer: Any, forward_batch: Any) -> Any:
            import torch
            from torch.nn.functional import scaled_dot_product_attention

            table = self.req_to_token_pool.req_to_token
            out = []
            rows = zip(heads, forward_batch.req_pool_indices.tolist(), forward_batch.seq_lens.tolist(), strict=True)
            for head, request, length in rows:
                held = table[request, : length + self._ahead].long()
                k, v = (kept[held].transpose(0, 1).unsqueeze(0) for kept in (keys, values))
                shared = head.shape[0] != k.shape[1]
                seen = scaled_dot_product_attention(
                    head.view(1, -1, 1, head.shape[-1]), k, v, scale=layer.scaling, enable_gqa=shared
                )
                out.append(seen.reshape(1, -1))
            return torch.cat(out)

    return DraftAttention
