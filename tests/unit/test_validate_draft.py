"""validate on a draft's contract: its promises, and the real draft's files, without an engine and without torch."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from eagle_contracts.cli import main

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


def checkpoint(folder: Path, name: str, columns: int) -> None:
    """A checkpoint's header with one tensor of a real size, and none of its values."""
    text = json.dumps(
        {name: {"dtype": "BF16", "shape": [7168, columns], "data_offsets": [0, 14336 * columns]}}
    ).encode()
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(file, 8 + len(text) + 14336 * columns)


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
        "contracts/kimi/pipeline.yaml:4:17: model.safetensors is no safetensors file: its header would be "
        "18446744073709551615 bytes long"
    ) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("next_token", "same_token", "12:14: pairing takes next_token, not the text 'same_token'"),
        ("as_written", "written", "13:13: config takes as_written, not the text 'written'"),
        ("within: 1.0e-4", "within: 2", "14:25: within is a relative error such as 1.0e-4, not 2"),
        ("fc: never", "fc: no", "10:37: fc takes once or never, not the text 'no'"),
        ("fc_in: slots x target", "fc_in: slots x goal", "11:12: a width is a product such as slots x target, not the"),
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
