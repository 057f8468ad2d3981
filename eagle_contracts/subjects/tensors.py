"""An observation's tensors on disk, request by request; nothing is unpickled. Runs inside a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FILE = "tensors.safetensors"
SAMPLES = "samples.pt"


def save(folder: Path, tensors: dict[str, Any], prompts: list[list[int]]) -> None:
    """Write tensors [tokens of all requests, width], cut into requests, as `NUMBER/NAME`."""
    from safetensors.torch import save_file

    lengths = [len(prompt) for prompt in prompts]
    cut = {
        f"{number}/{name}": part.contiguous().clone()
        for name, tensor in tensors.items()
        if tensor.shape[0] == sum(lengths)
        for number, part in enumerate(tensor.split(lengths))
    }
    save_file(cut, folder / FILE)


def save_named(folder: Path, requests: list[dict[str, Any]]) -> None:
    """Write each request's named tensors."""
    from safetensors.torch import save_file

    flat = {f"{n}/{name}": t.contiguous().clone() for n, named in enumerate(requests) for name, t in named.items()}
    save_file(flat, folder / FILE)


def load(folder: Path) -> list[dict[str, Any]]:
    """Return each request's tensors by name."""
    from safetensors.torch import load_file

    out: dict[int, dict[str, Any]] = {}
    for key, tensor in load_file(folder / FILE).items():
        number, _, name = key.partition("/")
        out.setdefault(int(number), {})[name] = tensor
    return [out[number] for number in sorted(out)]
