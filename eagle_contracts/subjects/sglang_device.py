"""On which device SGLang runs in this worker, and what has to be set for it before and after it is imported.

`cpu` is a CPU with the reference paths of `sglang_cpu`. `cuda` is a GPU with the engine's own kernels, as serving has
them. `cuda-reference` is a GPU with SGLang's torch forms and a plain attention, which tells a kernel's fault from a
wrong wiring. Neither of the two has been run on a GPU yet. Runs inside a worker.
"""

from __future__ import annotations

import os
from typing import Any

from eagle_contracts.subjects import sglang_cpu

CPU, CUDA, REFERENCE = "cpu", "cuda", "cuda-reference"
_KIND: dict[str, str] = {}
"""What `before_import` leaves for the rest of the process and for the children that it forks."""


class NoDevice(RuntimeError):
    """This environment cannot use the device that the run asked for; the message says why."""


def before_import(kind: str) -> tuple[str, ...]:
    """Choose the device, and set what SGLang reads while it is imported; return the packages stood in for.

    Raises `NoDevice` where torch sees no GPU, or where this SGLang has no platforms to put a reference on.
    """
    _KIND["kind"] = kind
    if kind == CPU:
        return sglang_cpu.before_import()
    _assert_gpu()
    if kind == REFERENCE:
        if not sglang_cpu.has_platform_plugins():
            raise NoDevice("cuda-reference needs a SGLang with platform plugins, such as 0.5.23; use cuda")
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
        sglang_cpu.announce_platform("eagle_contracts.subjects.sglang_cuda_platform.ReferenceCuda")
    return ()


def _assert_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        build = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is a build for CPUs"
        raise NoDevice(f"torch {torch.__version__} in this environment sees no GPU: it {build}")


def after_import() -> None:
    """Leave out what the device cannot do."""
    if _kind() == CPU:
        sglang_cpu.after_import()


def is_reference() -> bool:
    """Tell whether fused operations and attention are the plain ones."""
    return _kind() != CUDA


def torch_device() -> str:
    """Return the device as torch names it."""
    return "cpu" if _kind() == CPU else "cuda"


def attention_backend() -> str | None:
    """Return the attention to serve under; None for the engine's own choice."""
    return sglang_cpu.attention_backend() if is_reference() else None


def memory(tokens: int) -> dict[str, Any]:
    """Return the arguments that bound memory: tokens, and a fraction on a CPU only, where it bounds nothing real.

    SGLang takes the fraction of what was free when it started, and refuses where other processes took more than that
    since (0.5.9: model_runner_kv_cache_mixin.py). Small fractions made it refuse beside a second engine.
    """
    bound = {"max_total_tokens": tokens, "max_running_requests": 16}
    return {**bound, "mem_fraction_static": 0.5} if _kind() == CPU else bound


def facts() -> dict[str, str]:
    """Return the device's name for the report, and the GPU's where there is one."""
    if _kind() == CPU:
        return {"device": CPU}
    import torch

    return {"device": _kind(), "gpu": str(torch.cuda.get_device_name(0)), "cuda": str(torch.version.cuda)}


def _kind() -> str:
    return _KIND.get("kind", CPU)
