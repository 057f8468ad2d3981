"""Which GPU a run takes, from what nvidia-smi lists."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from eagle_contracts.devices import CPU, HIDDEN, Device, NoGpu, choose, gpus

LISTED = "0, GPU-aa11, Small, 100, 1000, 1\n1, GPU-bb22, Large, 90000, 100000, 1\n2, GPU-cc33, Other, 9000, 10000, 1\n"


@pytest.fixture
def machine(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a machine with three GPUs."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!{sys.executable}\nprint({LISTED!r}, end='')\n")
    command.chmod(0o755)
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["Large", "Other", "Small"]),
        ("2,0", ["Other", "Small"]),
        ("GPU-bb", ["Large"]),
        ("0,9,1", ["Small"]),
        ("", []),
        ("-1", []),
    ],
)
def test_what_cuda_hides_is_not_taken(machine: Mapping[str, str], visible: str | None, names: list[str]) -> None:
    """CUDA_VISIBLE_DEVICES is read as CUDA reads it: by index or UUID, up to the first entry that is none."""
    environ = dict(machine) if visible is None else {**machine, "CUDA_VISIBLE_DEVICES": visible}
    assert [gpu.name for gpu in gpus(environ)] == names


@pytest.mark.parametrize("script", ["raise SystemExit(9)", "print('No devices were found')", ""])
def test_a_nvidia_smi_without_an_answer_is_no_gpu(tmp_path: Path, script: str) -> None:
    """Images have the command without a driver: it fails, or says that nothing was found."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!{sys.executable}\n{script}\n")
    command.chmod(0o755)
    assert gpus({"PATH": str(tmp_path)}) == []
    assert choose("auto", {"PATH": str(tmp_path)}).why == "cpu (auto: no GPU)"
    with pytest.raises(NoGpu, match="nvidia-smi lists no GPU"):
        choose("cuda", {"PATH": str(tmp_path)})


def test_a_cpu_asks_nothing_and_hides_all(machine: Mapping[str, str]) -> None:
    """The default needs no nvidia-smi; a device survives the way to another process as plain data."""
    assert choose("cpu", {}) is CPU
    assert CPU.environ == HIDDEN
    chosen = choose("cuda-reference", machine)
    assert (chosen.kind, chosen.environ, chosen.for_kernels) == (
        "cuda-reference",
        {"CUDA_VISIBLE_DEVICES": "GPU-bb22"},
        True,
    )
    assert Device(**chosen.to_json()) == chosen
