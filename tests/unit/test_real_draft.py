"""How wide a real draft's `fc` is, from its files alone."""

from __future__ import annotations

import json
import math
import os
import random
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


def checkpoint(file: Path, **shapes: list[int] | None) -> None:
    """A checkpoint of the right header; its weights are a hole in the file, which takes no room."""
    named, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(size if type(size) is int and size > 0 else 1 for size in shape or ())
        named[name.replace("_", ".")] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    written(file, named, end)


def written(file: Path, header: dict[str, Any], size: int) -> None:
    """A file with this header and this many bytes of weights."""
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(file, 8 + len(text) + size)


def widths(path: Path, hidden: int | None = 7168) -> list[tuple[int | None, str]]:
    return [(found.width, found.where) for found in fc_widths(path, hidden)]


def test_the_story_in_its_real_numbers(tmp_path: Path) -> None:
    """Three states of 7168 are 21504, by the config and by the checkpoint's header."""
    path = draft(tmp_path, eagle_config={IDS: [2, 30, 58]})
    checkpoint(tmp_path / "model.safetensors", fc_weight=[7168, 21504], norm_weight=[7168])
    assert widths(path) == [
        (21504, f"config.json (eagle_config.{IDS})"),
        (21504, "model.safetensors (fc.weight)"),
    ]


def test_a_sharded_checkpoint_is_read_where_fc_is(tmp_path: Path) -> None:
    """One shard has it, under the name that a wrapped model gives it."""
    path = draft(tmp_path)
    checkpoint(tmp_path / "model-00001-of-00002.safetensors", norm_weight=[7168])
    checkpoint(tmp_path / "model-00002-of-00002.safetensors", model_fc_weight=[7168, 14336])
    assert widths(path)[1:] == [(14336, "model-00002-of-00002.safetensors (model.fc.weight)")]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (
            {"num_aux_hidden_states": 2, "eagle_config": {IDS: [2, 30, 58]}},
            [(2 * 7168, " (num_aux_hidden_states)"), (3 * 7168, f" (eagle_config.{IDS})")],
        ),
        ({IDS: [2, 30, 58, 60]}, [(4 * 7168, f" ({IDS})")]),
        ({"eagle_config": None}, [(3 * 7168, "")]),
        ({"eagle_config": "no map", "num_aux_hidden_states": True, IDS: "3"}, [(3 * 7168, "")]),
        ({"hidden_size": 2048, "target_hidden_size": 4096}, [(3 * 4096, "")]),
        ({"hidden_size": 2048}, [(3 * 2048, "")]),
        ({"hidden_size": None}, [(3 * 7168, "")]),
    ],
)
def test_the_count_is_found_wherever_configs_keep_it(
    tmp_path: Path, config: dict[str, Any], found: list[tuple[int, str]]
) -> None:
    """Every place that says how many states there are, with its key: they may contradict each other; else three."""
    assert widths(draft(tmp_path, **config)) == [(width, f"config.json{key}") for width, key in found]


def test_an_index_says_which_shard_has_fc(tmp_path: Path) -> None:
    """Only that one is read; one that is not there is an error, and so is an index of nothing."""
    path = draft(tmp_path)
    (tmp_path / "other.safetensors").write_bytes(b"no checkpoint")
    checkpoint(tmp_path / "model-2.safetensors", fc_weight=[7168, 21504])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"fc.weight": "model-2.safetensors", "norm.weight": "gone"}}))
    assert widths(path)[1:] == [(21504, "model-2.safetensors (fc.weight)")]
    for content, message in (
        ({"weight_map": {"fc.weight": "gone.safetensors"}}, "names gone.safetensors, and there is no such file"),
        ({"weight_map": {"fc.weight": "../x.safetensors"}}, "names ../x.safetensors, and there is no such file"),
        ({}, "has no weight_map"),
        ([], "holds no map"),
    ):
        index.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            widths(path)


def test_a_checkpoint_without_fc_is_told(tmp_path: Path) -> None:
    """A draft class drops names that it does not know, so a misnamed fc is no error of the engine's."""
    path = draft(tmp_path)
    checkpoint(tmp_path / "model.safetensors", fuse_weight=[7168, 21504])
    assert widths(path)[1:] == [(None, "model.safetensors has no fc.weight")]


@pytest.mark.parametrize("shape", [None, [21504], [7168, "21504"], [7168, -1], [7168, True], [7168, 3, 7168]])
def test_a_shape_that_is_none(tmp_path: Path, shape: Any) -> None:
    """It is told with the tensor and the file."""
    path = draft(tmp_path)
    checkpoint(tmp_path / "model.safetensors", fc_weight=shape)
    with pytest.raises(ValueError, match=r"model\.safetensors gives fc\.weight no shape of two whole numbers"):
        widths(path)


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000])
def test_a_config_that_is_no_map(tmp_path: Path, text: str) -> None:
    """A sentence that names the file."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json (holds no map|cannot be read as JSON)"):
        fc_widths(tmp_path / "config.json", 7168)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]"])
def test_what_is_no_checkpoint_is_said(tmp_path: Path, data: bytes) -> None:
    """A damaged header is an error that names the file, and no more of it is read."""
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.safetensors is no safetensors file"):
        read_header(tmp_path / "model.safetensors")


FC = {"dtype": "BF16", "shape": [8, 24], "data_offsets": [0, 384]}


@pytest.mark.parametrize(
    ("entry", "size", "words"),
    [
        ({}, 383, "model.safetensors is cut off: it has "),
        ({"shape": [9, 24], "data_offsets": [0, 432]}, 432, "gives fc.weight 9 rows, and the draft's hidden_size is 8"),
        ({"dtype": "F32"}, 384, "keeps 384 bytes for fc.weight, and 8 x 24 F32 are 768"),
        ({"data_offsets": "0, 384"}, 384, "keeps 0 bytes for fc.weight, and 8 x 24 BF16 are 384"),
        ({"dtype": "BF17"}, 384, "gives fc.weight the type BF17, which safetensors has not"),
    ],
)
def test_a_header_that_its_file_does_not_bear_out(tmp_path: Path, entry: dict[str, Any], size: int, words: str) -> None:
    """A download that broke off, or an fc of another draft: the width alone would look right."""
    path = draft(tmp_path, hidden_size=8)
    written(tmp_path / "model.safetensors", {"fc.weight": {**FC, **entry}}, size)
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        fc_widths(path, 8)
    assert words in str(caught.value)


def test_damaged_headers_are_sentences(tmp_path: Path) -> None:
    """A thousand small files with bytes changed or cut off: a width, or one sentence, and nothing else."""
    path, file = draft(tmp_path, hidden_size=8), tmp_path / "model.safetensors"
    checkpoint(file, fc_weight=[8, 24], norm_weight=[8])
    whole, dice = file.read_bytes(), random.Random(5)
    outcomes: set[int | str] = set()
    for _ in range(1000):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        file.write_bytes(damaged[: dice.choice([len(damaged), dice.randrange(len(damaged))])])
        try:
            outcomes.add(len(widths(path)))
        except ValueError as error:
            outcomes.add(str(error).partition(" ")[0])
    assert outcomes == {2, "model.safetensors"}


def test_a_pointer_to_large_file_storage_is_called_so(tmp_path: Path) -> None:
    """A clone without the files themselves."""
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(ValueError, match=r"model\.safetensors is a Git LFS pointer, not the file itself"):
        read_header(tmp_path / "model.safetensors")


def test_no_torch_is_imported() -> None:
    """Nothing heavy stands behind real numbers."""
    code = "import sys, eagle_contracts.real_draft; print('torch' in sys.modules, 'safetensors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
