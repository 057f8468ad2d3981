"""validate on a draft's contract: its promises, and the real draft's files, without an engine and without torch."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.cli import main
from eagle_contracts.subjects import draft_weights

Captured = pytest.CaptureFixture[str]
KIMI = Path(__file__).parents[2] / "contracts" / "kimi_k25"
CONTRACT = "contracts/kimi/draft_input_dims.yaml"


@pytest.fixture
def kimi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of Kimi's pipeline with the capture and the draft, and the command started above it."""
    folder = tmp_path / "contracts" / "kimi"
    folder.mkdir(parents=True)
    shutil.copytree(KIMI / "patches", folder / "patches")
    for name in ("pipeline.yaml", "target.config.json", "draft.config.json", "sglang_capture_offset.yaml"):
        shutil.copy(KIMI / name, folder)
    shutil.copy(KIMI / "draft_input_dims.yaml", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def checkpoint(folder: Path, name: str = "fc.weight", columns: int = 21504, **changes: list[int] | None) -> None:
    """A whole checkpoint of Kimi's draft, whose weights are a hole in the file; its `fc` under a name, so wide."""
    shapes: dict[str, Any] = dict(draft_weights.shapes(json.loads((KIMI / "draft.config.json").read_text()), 3))
    shapes |= {"fc.weight": None, name: [7168, columns], "d2t": [32000]}
    shapes |= {key.replace("__", "."): shape for key, shape in changes.items()}
    header, end = {}, 0
    for tensor, shape in shapes.items():
        if shape is not None:
            start, end = end, end + 2 * math.prod(shape)
            header[tensor] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    file = folder / "model.safetensors"
    file.unlink(missing_ok=True)
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(file, 8 + len(text) + end)


def test_the_real_width_in_the_checkpoint(kimi: Path, capsys: Captured) -> None:
    """21504 is right; 14336 is told at the promise, and so is a checkpoint without fc."""
    checkpoint(kimi, "fc.weight", 21504)
    assert main(["validate"]) == 0
    for name, columns, message in (
        (
            "fc.weight",
            14336,
            "fc reads 14336 values a token by model.safetensors (fc.weight), and slots x target is 21504 on the real "
            "model",
        ),
        (
            "fuse.weight",
            21504,
            "model.safetensors has no fc.weight: an engine runs with whatever its fc holds then, some",
        ),
    ):
        checkpoint(kimi, name, columns)
        capsys.readouterr()
        assert main(["validate"]) == 1
        assert f"{CONTRACT}:11:12: {message}" in " ".join(capsys.readouterr().out.split())


def test_a_damaged_checkpoint_is_told_at_the_draft(kimi: Path, capsys: Captured) -> None:
    """The file is beside the draft's config, and the pipeline names that."""
    (kimi / "model.safetensors").write_bytes(b"\xff" * 64)
    assert main(["validate"]) == 1
    assert (
        "contracts/kimi/pipeline.yaml:4:17: beside draft.config.json: model.safetensors is no safetensors file: its "
        "header would be 18446744073709551615 bytes long"
    ) in capsys.readouterr().out


def said(capsys: Captured) -> str:
    """What validate says of a pipeline that has a mistake, in one line."""
    assert main(["validate"]) == 1
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d2t": None}, "has no d2t: loaders go on with whatever stands there then, without a word"),
        (
            {"norm__weight": None, "midlayer__hidden_norm__weight": None},
            "has no norm.weight, layers.0.hidden_norm.weight:",
        ),
        ({"lm_head__weight": [163840, 7168]}, "has lm_head.weight as [163840, 7168], and by config.json it is [32000,"),
        ({"fc__weight": [4096, 21504]}, "has fc.weight as [4096, 21504], and by config.json it is [7168, 21504]"),
        (
            {"midlayer__self_attn__k_proj__weight": [1024, 14336]},
            "has layers.0.self_attn.k_proj.weight as [1024, 14336], and by config.json it is [8192, 14336]",
        ),
    ],
)
def test_a_checkpoint_that_is_not_of_its_config(
    kimi: Path, capsys: Captured, changes: dict[str, Any], message: str
) -> None:
    """Loaders drop and keep tensors without a word, and the twin has its own: the header alone tells."""
    checkpoint(kimi, **changes)
    assert f"contracts/kimi/pipeline.yaml:4:17: beside draft.config.json: model.safetensors {message}" in said(capsys)


@pytest.mark.parametrize("harmless", [{"embed_tokens__weight": None}, {"t2d": [163840]}, {"other": [3]}])
def test_a_checkpoint_may_leave_what_is_the_targets(kimi: Path, harmless: dict[str, Any]) -> None:
    """The embedding is shared, and loaders drop what they do not know."""
    checkpoint(kimi, **harmless)
    assert main(["validate"]) == 0


def test_what_stands_in_a_checkpoints_place(kimi: Path, capsys: Captured) -> None:
    """A pickle, a folder, a link to nothing, an index of one: each is told, none is read past."""
    file, head = kimi / "model.safetensors", "contracts/kimi/pipeline.yaml:4:17: beside draft.config.json: "
    (kimi / "pytorch_model.bin").write_bytes(b"PK")
    assert f"{head}the checkpoint is pytorch_model.bin alone, which is read by unpickling only" in said(capsys)
    file.mkdir()
    assert f"{head}model.safetensors is a folder, not a file" in said(capsys)
    file.rmdir()
    file.symlink_to("gone.safetensors")
    assert f"{head}model.safetensors is a link to gone.safetensors, and nothing is there" in said(capsys)
    file.unlink()
    (kimi / "model.safetensors.index.json").symlink_to("gone.json")
    assert f"{head}model.safetensors.index.json is a link to gone.json, and nothing is there" in said(capsys)


def test_what_stands_in_the_configs_place(kimi: Path, capsys: Captured) -> None:
    """A folder has a config.json in it, most likely; a link to nothing is called so."""
    config = kimi / "draft.config.json"
    config.unlink()
    config.symlink_to("gone.json")
    head = "contracts/kimi/pipeline.yaml:4:17: 'draft.config.json' is a "
    assert f"{head}link, and nothing is there" in said(capsys)
    config.unlink()
    config.mkdir()
    text = said(capsys)
    assert f"{head}folder, not a file" in text
    assert "write draft.config.json/config.json" in text


def test_a_checkpoint_that_is_cut_off(kimi: Path, capsys: Captured) -> None:
    """By one byte: the header alone would look right."""
    checkpoint(kimi)
    assert main(["validate"]) == 0
    os.truncate(kimi / "model.safetensors", (kimi / "model.safetensors").stat().st_size - 1)
    assert "model.safetensors is cut off: it has " in said(capsys)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "vocab_size",
            151936,
            "12:3: vocab_size is 151936, and the target's is 163840: the draft reads the target's tokens, and has no "
            "row for the rest",
        ),
        ("draft_vocab_size", 200000, "13:3: draft_vocab_size is 200000, more than vocab_size, 163840, of which it is"),
        ("num_key_value_heads", 5, "8:3: num_key_value_heads is 5, and num_attention_heads, 64, is no multiple of it"),
        ("num_attention_heads", 7, "8:3: num_key_value_heads is 64, and num_attention_heads, 7, is no multiple of it"),
        ("num_key_value_heads", 0, "8:3: num_key_value_heads is 0, and no size"),
        ("hidden_size", "7168", "6:3: hidden_size is the text '7168', and no size"),
        ("architectures", ["LlamaForCausalLM"], "2:3: the draft's class is LlamaForCausalLM, which is not known here"),
        ("use_aux_hidden_state", False, "use_aux_hidden_state is false at the top, where no reader looks; inside eag"),
    ],
)
def test_numbers_that_no_draft_can_have(kimi: Path, capsys: Captured, key: str, value: object, message: str) -> None:
    """At their line: the twin has numbers of its own, and would never meet them."""
    path = kimi / "draft.config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}, indent=2))
    text = said(capsys)
    assert "contracts/kimi/draft.config.json:" in text
    assert message in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("next_token", "same_token", "12:14: pairing takes next_token, not the text 'same_token'"),
        ("as_written", "written", "13:13: config takes as_written, not the text 'written'"),
        ("within: 1.0e-4", "within: 2", "14:25: within is a relative error such as 1.0e-4, not 2"),
        ("fc: never", "fc: no", "10:37: fc takes once or never, not the text 'no'"),
        ("fc_in: slots x target", "fc_in: slots x goal", "11:12: a width is a product such as slots x target, not the"),
        ("fc_in: slots x target", "fc_in: 21504", "11:12: 21504 is a number of the real model, and the twin has"),
        ("reads: draft", "reads: 7168", "10:26: 7168 is a number of the real model, and the twin has numbers of its"),
        (
            "reads: draft",
            "reads: own",
            "10:26: a width is a product such as slots x target, or draft, not the text 'own'",
        ),
        ("reads: slots x target, fc: once, ", "reads: slots x target, ", "9:17: fc is missing"),
        ("slots: $trained.taps", "slots: [3, 31, 59]", "9:58: a list of taps must say how it counts"),
    ],
)
def test_a_promise_about_a_draft_is_read_before_anything_runs(
    kimi: Path, capsys: Captured, old: str, new: str, message: str
) -> None:
    """With its place, as other promises are."""
    path = kimi / "draft_input_dims.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert main(["validate"]) == 1
    assert f"{CONTRACT}:{message}" in " ".join(capsys.readouterr().out.split())


def test_no_torch_is_imported(kimi: Path) -> None:
    """A header is all that is read of a checkpoint."""
    checkpoint(kimi, "fc.weight", 21504)
    code = (
        "import sys; from eagle_contracts.cli import main; code = main(['validate']); "
        "print(code, 'torch' in sys.modules, 'safetensors' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False False"
