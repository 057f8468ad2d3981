"""What engines of a run compute on: a CPU, or the GPU that has most room. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

AUTO: Final = "auto"
KINDS: Final = ("cpu", "cuda", "cuda-reference")
CHOICES: Final = (*KINDS, AUTO)
ENOUGH_MIB: Final = 8 * 1024
"""How much of a GPU has to be free before `auto` takes it: someone else may be working there."""

HIDDEN: Final[Mapping[str, str]] = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
"""What hides every GPU from a process. An engine on a CPU must not find one by itself."""

_ASK: Final = ("--query-gpu=index,uuid,name,memory.free,memory.total,driver_version", "--format=csv,noheader,nounits")


class NoGpu(Exception):
    """A GPU was asked for and cannot be had; the message ends with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as `nvidia-smi` lists it; memory in MiB."""

    index: str
    uuid: str
    name: str
    free: int
    total: int
    driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a run's engines compute on.

    `environ` is set for their workers. Twins are made `for_kernels` on a GPU. `why` is a line for the run's header;
    empty where nothing was chosen.
    """

    kind: str = "cpu"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(HIDDEN))
    for_kernels: bool = False
    why: str = ""

    @property
    def is_gpu(self) -> bool:
        """Tell whether engines run on a GPU."""
        return self.kind != CPU.kind

    def to_json(self) -> dict[str, Any]:
        """Return the device as plain data, for a process of pytest-xdist, which must not choose another one."""
        return {**asdict(self), "environ": dict(self.environ)}


CPU: Final = Device()


def gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Return the GPUs that a process with this environment may use, that with most free memory first."""
    command = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if command is None:
        return []
    try:
        done = subprocess.run([command, *_ASK], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    found = [gpu for line in done.stdout.splitlines() if (gpu := _read(line)) is not None]
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    visible = found if allowed is None else _visible(found, allowed.split(","))
    return sorted(visible, key=lambda gpu: -gpu.free)


def _read(line: str) -> Gpu | None:
    """Read a line of the list; None for a GPU that does not say how much memory it has."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 6 or not (fields[3].isdecimal() and fields[4].isdecimal()):
        return None
    index, uuid, name, free, total, driver = fields
    return Gpu(index=index, uuid=uuid, name=name, free=int(free), total=int(total), driver=driver)


def _visible(found: Sequence[Gpu], allowed: Sequence[str]) -> list[Gpu]:
    """Return the GPUs of a CUDA_VISIBLE_DEVICES, by index or the beginning of a UUID, up to the first wrong entry."""
    out = []
    for entry in (entry.strip() for entry in allowed):
        by_uuid = [gpu for gpu in found if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
        named = [gpu for gpu in found if gpu.index == entry] or by_uuid
        if not named:
            break
        out += named[:1]
    return out


def choose(asked: str, environ: Mapping[str, str] = os.environ) -> Device:
    """Return the device for `cpu`, `cuda`, `cuda-reference` or `auto`; raises `NoGpu` where a GPU is asked for by name.

    `auto` is a GPU with 8 GiB free, else the CPU.
    """
    if asked == CPU.kind:
        return CPU
    found = gpus(environ)
    if asked == AUTO:
        return _if_there_is_room(found)
    if not found:
        raise NoGpu(
            f"--contracts-device={asked}: {_nothing(environ)}\n"
            "  Leave the option out to run on the CPU, or make a GPU visible to this process:\n"
            "  nvidia-smi must list it, and CUDA_VISIBLE_DEVICES must not hide it."
        )
    return _on(found[0], asked, "asked for")


def _nothing(environ: Mapping[str, str]) -> str:
    if shutil.which("nvidia-smi", path=environ.get("PATH")) is None:
        return "there is no GPU here that can be asked (no nvidia-smi)"
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    return "nvidia-smi lists no GPU" if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden} leaves no GPU"


def _if_there_is_room(found: Sequence[Gpu]) -> Device:
    if not found:
        return Device(why="cpu (auto: no GPU)")
    if found[0].free < ENOUGH_MIB:
        free = f"{found[0].free / 1024:.1f} GiB"
        return Device(why=f"cpu (auto: {found[0].name} has {free} free, of the {ENOUGH_MIB // 1024} GiB needed)")
    return _on(found[0], "cuda", "auto")


def _on(gpu: Gpu, kind: str, how: str) -> Device:
    return Device(
        kind=kind,
        environ={"CUDA_VISIBLE_DEVICES": gpu.uuid},
        for_kernels=True,
        why=f"{kind} ({how}: {gpu.name}, {gpu.free / 1024:.1f} GiB free)",
    )
