"""An out-of-tree SGLang platform: torch-native code paths on a GPU, to tell a kernel's fault from one of wiring.

SGLang 0.5.23 loads this class by name through `srt/platforms`; it exists in versions with platform plugins only. It has
been imported and asked for its answers on a machine without a GPU, and not been run on one.
"""

from __future__ import annotations

from sglang.srt.platforms.cuda import CudaSRTPlatform
from sglang.srt.platforms.device_mixin import PlatformEnum


class ReferenceCuda(CudaSRTPlatform):  # type: ignore[misc]
    """SGLang's own CUDA platform, with every fused operation dispatched to its torch form."""

    _enum = PlatformEnum.OOT

    def get_default_attention_backend(self) -> str:
        """Name SGLang's torch backend; a subject asks for its own by argument."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Dispatch fused operations to `forward_native`."""
        return "native"

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        """Let the target side of EAGLE-3 be configured; SGLang asks before it reads the draft's config."""
        return algorithm == "EAGLE3"
