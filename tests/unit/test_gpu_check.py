"""`make gpu-check` on a machine without a GPU, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import check


def test_without_a_gpu_it_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is checked on a CPU in place of a GPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check.main([]) == 2
    assert capsys.readouterr().out.startswith(
        "Nothing was checked: --contracts-device=cuda: there is no GPU here that can be asked (no nvidia-smi)\n"
    )


def test_the_table_names_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has contract, item, verdict and seconds; below stand the versions that workers told, each once."""
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = {"sglang": "0.5.23", "torch": "2.13.0+cu130", "gpu": "Test GPU", "overlays": []}
    row = check.Row(contract="kimi/capture", item="slots[one,cuda]", verdict="passed", seconds=2.25, engine=engine)
    assert check.line(row).split() == ["kimi/capture", "slots[one,cuda]", "passed", "2.2", "s"]
    assert check.machine([row, row]) == ["no GPU", "sglang 0.5.23, torch 2.13.0+cu130, gpu Test GPU"]
