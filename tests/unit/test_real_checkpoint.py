"""A real draft's checkpoint against its config.json, whatever stands in both."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.real_checkpoint import checkpoint_faults
from eagle_contracts.subjects.draft_weights import shapes

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 16,
    "draft_vocab_size": 8,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
}


def header(**changes: Any) -> dict[str, Any]:
    """The header of a whole checkpoint, with entries changed or, with None, left out."""
    out: dict[str, Any] = {}
    end = 0
    for name, shape in {**shapes(CONFIG, 3), "d2t": (8,)}.items():
        size = 2
        for side in shape:
            size *= side
        out[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    for name, change in changes.items():
        out[name.replace("__", ".")] |= change
    return out


def written(folder: Path, entries: dict[str, Any], config: dict[str, Any] | None = None) -> Path:
    """A config with a checkpoint beside it."""
    text = json.dumps(entries).encode()
    end = max(entry["data_offsets"][1] for entry in entries.values() if isinstance(entry["data_offsets"], list))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    path = folder / "config.json"
    path.write_text(json.dumps(config or CONFIG))
    return path


def test_a_whole_checkpoint_has_no_fault(tmp_path: Path) -> None:
    """Nor has a folder without one, nor a class that is not known here."""
    path = written(tmp_path, header())
    assert list(checkpoint_faults(path)) == []
    assert list(checkpoint_faults(written(tmp_path, header(), {**CONFIG, "architectures": ["FooEagle"]}))) == []
    (tmp_path / "model.safetensors").unlink()
    assert list(checkpoint_faults(path)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm__weight": {"dtype": "F32"}}, "keeps 8 bytes for norm.weight, and 4 F32 are 16"),
        ({"norm__weight": {"dtype": ["BF16"]}}, "gives norm.weight the type ['BF16'], which safetensors has not"),
        ({"norm__weight": {"shape": "4"}}, "gives norm.weight no shape of whole numbers"),
        ({"norm__weight": {"data_offsets": [0, 8]}}, "is no whole safetensors file: "),
        ({"norm__weight": {"shape": [2, 2]}}, "has norm.weight as [2, 2], and by config.json it is [4]"),
    ],
)
def test_an_entry_that_cannot_be_right(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Each with its file and its tensor."""
    [fault] = checkpoint_faults(written(tmp_path, header(**changes)))
    assert fault.startswith(f"model.safetensors {words}")


def test_an_index_that_names_what_its_file_has_not(tmp_path: Path) -> None:
    """A loader goes on without it."""
    path = written(tmp_path, header())
    places = {"weight_map": {"fc.weight": "model.safetensors", "fc.bias": "model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(places))
    [fault] = checkpoint_faults(path)
    assert fault == ("model.safetensors.index.json names fc.bias in model.safetensors, and no such tensor is in there")


def test_other_names_of_the_same_tensors(tmp_path: Path) -> None:
    """Published drafts spell the first layer in two ways, and may have projections joined."""
    entries = {f"model.{name.replace('midlayer.', 'layers.0.')}": entry for name, entry in header().items()}
    assert list(checkpoint_faults(written(tmp_path, entries))) == []


def test_damaged_checkpoints_are_sentences(tmp_path: Path) -> None:
    """A thousand files with bytes changed or cut off: faults that name the file, or none, and nothing else."""
    path = written(tmp_path, header())
    file = tmp_path / "model.safetensors"
    whole, dice, seen = file.read_bytes(), random.Random(7), set()
    for _ in range(1000):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        file.write_bytes(damaged[: dice.choice([len(damaged), dice.randrange(len(damaged))])])
        seen |= {fault.partition(" ")[0] for fault in checkpoint_faults(path)}
    assert seen == {"model.safetensors"}
