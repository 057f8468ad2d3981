"""How wide a real draft's `fc` is, from its files alone."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.real_draft import fc_widths, read_header

IDS = "eagle_aux_hidden_state_layer_ids"


def draft(folder: Path, **config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"hidden_size": 7168, **config}))
    return path


def checkpoint(file: Path, **shapes: list[int]) -> None:
    """A checkpoint of the right header and no weights, as large as a header is."""
    named = {
        name.replace("_", "."): {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]}
        for name, shape in shapes.items()
    }
    header = json.dumps(named).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)


def widths(path: Path, hidden: int | None = 7168) -> list[tuple[int, str]]:
    return [(found.width, found.where) for found in fc_widths(path, hidden)]


def test_the_story_in_its_real_numbers(tmp_path: Path) -> None:
    """Three states of 7168 are 21504, by the config and by the checkpoint's header."""
    path = draft(tmp_path, eagle_config={IDS: [2, 30, 58]})
    checkpoint(tmp_path / "model.safetensors", fc_weight=[7168, 21504], norm_weight=[7168])
    assert widths(path) == [(21504, "config.json"), (21504, "model.safetensors (fc.weight)")]


def test_a_sharded_checkpoint_is_read_where_fc_is(tmp_path: Path) -> None:
    """One shard has it, under the name that a wrapped model gives it."""
    path = draft(tmp_path)
    checkpoint(tmp_path / "model-00001-of-00002.safetensors", norm_weight=[7168])
    checkpoint(tmp_path / "model-00002-of-00002.safetensors", model_fc_weight=[7168, 14336])
    assert widths(path)[1:] == [(14336, "model-00002-of-00002.safetensors (model.fc.weight)")]


@pytest.mark.parametrize(
    ("config", "width"),
    [
        ({"num_aux_hidden_states": 2, "eagle_config": {IDS: [2, 30, 58]}}, 2 * 7168),
        ({IDS: [2, 30, 58, 60]}, 4 * 7168),
        ({"eagle_config": None}, 3 * 7168),
        ({"hidden_size": 2048, "target_hidden_size": 4096}, 3 * 4096),
        ({"hidden_size": 2048}, 3 * 7168),
    ],
)
def test_the_count_is_found_wherever_configs_keep_it(tmp_path: Path, config: dict[str, Any], width: int) -> None:
    """A count, a list inside or at the top, else three; times the target's size."""
    assert widths(draft(tmp_path, **config)) == [(width, "config.json")]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]"])
def test_what_is_no_checkpoint_is_said(tmp_path: Path, data: bytes) -> None:
    """A damaged header is an error that names the file, and no more of it is read."""
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.safetensors is no safetensors file"):
        read_header(tmp_path / "model.safetensors")


def test_no_torch_is_imported() -> None:
    """Nothing heavy stands behind real numbers."""
    code = "import sys, eagle_contracts.real_draft; print('torch' in sys.modules, 'safetensors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
