"""A checkpoint of two tensors, the states that a person may have saved, and how `identify` is asked of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle_contracts.cli import main

Captured = pytest.CaptureFixture[str]
HIDDEN = 64
TOKENS = list(range(5, 21))
CONFIG = {"hidden_size": HIDDEN, "num_hidden_layers": 10, "model_type": "llama"}


class Model:
    """A checkpoint of two tensors, and the states that a person may have saved."""

    def __init__(self, folder: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        self.folder = folder
        self.embedding = (torch.randn(100, HIDDEN, generator=generator) * 0.02).bfloat16()
        self.gain = (torch.rand(HIDDEN, generator=generator) + 0.5).bfloat16()
        self.state = torch.randn(len(TOKENS), HIDDEN, generator=generator) * 3
        folder.mkdir()
        self.configure({})
        self.save({"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.gain})

    def configure(self, more: dict[str, object]) -> None:
        """Write config.json."""
        (self.folder / "config.json").write_text(json.dumps({**CONFIG, **more}))

    def save(self, tensors: dict[str, Tensor], name: str = "model.safetensors") -> None:
        """Write a shard."""
        save_file(tensors, str(self.folder / name))

    @property
    def embedded(self) -> Tensor:
        """The tokens' rows."""
        return self.embedding[TOKENS]

    def normed(self, gain: Tensor) -> Tensor:
        """The state after an RMS norm of that gain, in bf16."""
        return (self.state / self.state.square().mean(1, keepdim=True).sqrt() * gain).bfloat16()


def ask(file: str, *words: str, tokens: str = ",".join(map(str, TOKENS))) -> int:
    """Ask for a file."""
    return main(["identify", file, "--checkpoint", "model", "--tokens", tokens, *words])


def answers(capsys: Captured, file: str, *words: str) -> list[str]:
    """Return the answers for all slots."""
    assert ask(file, "--json", *words) == 0
    return [slot["answer"] for slot in json.loads(capsys.readouterr().out)["slots"]]


def sparse(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """Write a safetensors file of BF16 tensors that takes no space; return where its values begin."""
    header: dict[str, object] = {}
    end = 0
    for name, (kind, shape) in tensors.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return 8 + len(text)
