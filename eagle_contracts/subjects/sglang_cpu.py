"""How SGLang runs on a CPU with its published wheels: an out-of-tree platform, an attention backend, stand-ins.

Every workaround stands here, with the versions it is for. Nothing of SGLang is edited. Runs inside a worker.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

from eagle_contracts.workers import standins

PLATFORM = "eagle_contracts_reference"
_CHOSEN: dict[str, str] = {}


class _PlatformDistribution(importlib.metadata.Distribution):
    """Announces the platform below under the entry point group that SGLang reads, without installing anything."""

    def read_text(self, filename: str) -> str | None:
        """Return the two metadata files that importlib asks for."""
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: {PLATFORM}\nVersion: 1\n",
            "entry_points.txt": f"[sglang.srt.platforms]\n{PLATFORM} = {__name__}:activate\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Any:
        """There is no file."""
        raise FileNotFoundError(path)


class _PlatformFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Import nothing."""

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """Add the platform's distribution where all are asked for, or it by name."""
        if getattr(context, "name", None) in (None, PLATFORM):
            yield _PlatformDistribution()


def activate() -> str:
    """Name the platform class, as SGLang 0.5.23's `srt/platforms` asks an entry point to."""
    return _CHOSEN["class"]


def announce_platform(name: str) -> None:
    """Let SGLang find a platform class of ours by its entry points, and take it."""
    _CHOSEN["class"] = name
    os.environ["SGLANG_PLATFORM"] = PLATFORM
    sys.meta_path.append(_PlatformFinder())


def has_platform_plugins() -> bool:
    """Tell whether this SGLang discovers platforms by entry point (0.5.23 does, 0.5.9 does not)."""
    return _exists("sglang/srt/plugins/__init__.py")


def _exists(path: str) -> bool:
    return any(os.path.exists(os.path.join(entry, path)) for entry in sys.path)


def before_import() -> tuple[str, ...]:
    """Set what SGLang reads while it is imported; return the names of the packages stood in for.

    - every version: torchvision is imported by image processors that a text model never calls;
    - 0.5.5 to 0.5.14: `SGLANG_USE_CPU_ENGINE=1` selects the CPU paths, and sgl_kernel (which has no CPU build) is
      imported by quantization code; its `scalar_type` must stay absent, for which SGLang has its own branch;
    - 0.5.15 and newer: the platform above instead of that variable, which together would pull sgl_kernel in.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    _ask_transformers_first()
    if has_platform_plugins():
        os.environ.pop("SGLANG_USE_CPU_ENGINE", None)
        announce_platform("eagle_contracts.subjects.sglang_cpu_platform.ReferenceCpu")
        return standins.install(["torchvision"])
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    return standins.install(["torchvision", "sgl_kernel"], absent=["sgl_kernel.scalar_type"])


def _ask_transformers_first() -> None:
    """Let transformers find out that torchvision is absent before the stand-in exists; it keeps its answer."""
    from transformers.utils import import_utils

    import_utils.is_torchvision_available()


def after_import() -> None:
    """Leave out the warm-up of a triton kernel that needs a GPU and that a prefill never calls.

    With speculative decoding on, SGLang's pool for keys and values (mem_cache/memory_pool.py, 0.5.9 and 0.5.23)
    compiles the kernel that moves accepted tokens. Without its configuration the pool's own assertion refuses any later
    use.
    """
    from sglang.srt.mem_cache import memory_pool

    def without_kernel(pool: Any) -> None:
        pool._kv_copy_config = None

    memory_pool.MHATokenToKVPool._init_kv_copy_and_warmup = without_kernel
    _allow_rope_without_scaling()


def _allow_rope_without_scaling() -> None:
    """Give latent attention SGLang's plain rope where the config scales nothing (Moonlight's, for one).

    On a CPU `get_rope_cpu` asserts a `deepseek_yarn` scaling (0.5.9: layers/rotary_embedding.py; 0.5.23:
    rotary_embedding/factory.py); on other devices `get_rope_wrapper` takes `get_rope` for every kind.
    """
    from sglang.srt.layers.rotary_embedding import get_rope_wrapper

    scope = get_rope_wrapper.__globals__
    scaled, plain = scope["get_rope_cpu"], scope["get_rope"]
    names = tuple(inspect.signature(plain).parameters)

    def rope(*args: Any, **named: Any) -> Any:
        given = inspect.signature(scaled).bind(*args, **named).arguments
        if given.get("rope_scaling") is not None:
            return scaled(*args, **named)
        return plain(**{name: value for name, value in given.items() if name in names})

    scope["get_rope_cpu"] = rope


def attention_backend() -> str:
    """Register a plain attention over the keys and values given, and return the name to serve under.

    DeepSeek's latent attention does not run on SGLang's own `torch_native` backend in prefill (value and key widths
    differ). Up to 0.5.14 a new name would switch triton kernels on, so the entry of `torch_native` is replaced there.
    """
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    name = "eagle_contracts" if has_platform_plugins() else "torch_native"
    backend = prefill_attention()
    register_attention_backend(name)(lambda runner: backend(runner))
    return name


def prefill_attention() -> Any:
    """Return the class of a plain attention for prefill without a cached prefix."""
    import torch
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from torch.nn.functional import scaled_dot_product_attention

    class PrefillAttention(TorchNativeAttnBackend):  # type: ignore[misc]
        """Prefill without prefix: each request attends to itself, causally; no cache is read or written."""

        def forward_extend(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True, **rest: Any
        ) -> Any:
            if int(forward_batch.extend_prefix_lens.sum()) != 0:
                raise NotImplementedError("this backend serves prefill without a cached prefix")
            q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
            k = k.view(-1, layer.tp_k_head_num, layer.qk_head_dim)
            v = v.view(-1, layer.tp_v_head_num, layer.v_head_dim)
            outputs, start = [], 0
            for length in forward_batch.extend_seq_lens.tolist():
                one, two, three = (t[start : start + length].transpose(0, 1).unsqueeze(0) for t in (q, k, v))
                shared = one.shape[1] != two.shape[1]
                out = scaled_dot_product_attention(
                    one, two, three, is_causal=True, scale=layer.scaling, enable_gqa=shared
                )
                outputs.append(out.squeeze(0).transpose(0, 1).reshape(length, -1))
                start += length
            return torch.cat(outputs)

    return PrefillAttention
