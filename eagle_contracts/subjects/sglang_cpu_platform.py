"""An out-of-tree SGLang platform: torch-native code paths on a CPU, without sgl_kernel.

SGLang 0.5.23 loads this class by name through `srt/platforms`; it exists in versions with platform plugins only.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.platforms.cpu import CpuSRTPlatform
from sglang.srt.platforms.device_mixin import PlatformEnum


class ReferenceCpu(CpuSRTPlatform):  # type: ignore[misc]
    """SGLang's own CPU platform, with every fused operation dispatched to its torch form."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_default_attention_backend(self) -> str:
        """Name SGLang's torch backend; a subject asks for its own by argument."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Dispatch fused operations to `forward_native`."""
        return "native"

    def is_pin_memory_available(self, device: Any = None) -> bool:
        """There is no device to pin memory for."""
        return False

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        """Let the target side of EAGLE-3 be configured; SGLang asks before it reads the draft's config."""
        return algorithm == "EAGLE3"
