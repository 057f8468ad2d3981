"""The base: one virtual environment with torch and what all engines share. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eagle_contracts.workers.locks import BASE, Lock, normalized
from eagle_contracts.workers.manifest import (
    Manifest,
    environment_folder,
    installed_versions,
    is_intact,
    read_manifest,
    write_manifest,
)
from eagle_contracts.workers.pip import BuildError, Pip, index_options
from eagle_contracts.workers.progress import Progress

TORCH: Final = "2.13.0"
TORCH_INDEX_VARIABLE: Final = "EAGLE_CONTRACTS_TORCH_INDEX"
CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
ENGINE_PYTHON: Final = (3, 11)

_SITE: Final = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('purelib'))"
_CUDA: Final = re.compile(r"(?:nvidia|cuda)-")


def current_base(home: Path, lock: Lock, venv: Path | None) -> Manifest | None:
    """The base as it is recorded, if nothing has to be done: same lock, same torch, nothing missing."""
    folder = environment_folder(home, BASE)
    manifest = read_manifest(folder)
    if manifest is None or not manifest.complete or manifest.lock_digest != lock.digest:
        return None
    if venv is not None and manifest.python != str(interpreter_of(venv)):
        return None
    intact = _is_wanted(manifest.torch) and Path(manifest.python).exists() and is_intact(folder, manifest)
    return manifest if intact else None


def build_base(
    home: Path, lock: Lock, venv: Path | None, pip_of: Callable[[Path], Pip], progress: Progress
) -> Manifest:
    """Install torch, then the lock, into `venv`, the recorded base, or a new virtual environment.

    `pip_of` gives the pip of an interpreter. Until all is done the manifest says that the base is incomplete.
    Raises BuildError.
    """
    folder = environment_folder(home, BASE)
    python = _base_interpreter(folder, venv)
    site = _site_of(python)
    pip = pip_of(python)
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, _manifest(python, site, lock, complete=False))
    _install_torch(site, pip, progress)
    progress.start(BASE, len(lock.pins), f"installing {counted(len(lock.pins))}")
    pip.install(["--no-deps", "--requirement", str(lock.path)], progress.update)
    manifest = _manifest(python, site, lock, complete=True)
    write_manifest(folder, manifest)
    progress.finish(f"built with torch {manifest.torch}")
    return manifest


def counted(distributions: int) -> str:
    """A number of distributions in words."""
    return f"{distributions} distribution" + ("" if distributions == 1 else "s")


def interpreter_of(venv: Path) -> Path:
    """The interpreter of a virtual environment; its link is kept, since the link is what selects the environment."""
    return venv.absolute() / "bin" / "python"


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists()


def cuda_libraries(requires: Sequence[str]) -> tuple[str, ...]:
    """The CUDA libraries among a wheel's dependencies; those of its extras do not count."""
    needed = (entry for entry in requires if "extra ==" not in entry)
    return tuple(re.split(r"[^A-Za-z0-9._-]", entry)[0] for entry in needed if _CUDA.match(normalized(entry)))


def _base_interpreter(folder: Path, venv: Path | None) -> Path:
    own = folder / "venv"
    recorded = read_manifest(folder)
    if venv is not None:
        return interpreter_of(venv)
    if recorded is not None and recorded.python != str(interpreter_of(own)):
        if not Path(recorded.python).exists():
            raise BuildError(
                f"The base's interpreter is gone: {recorded.python}\n"
                f"Name another one (eagle-contracts env sync --base VENV), or remove {folder} to get a new one."
            )
        return Path(recorded.python)
    if recorded is None or not interpreter_of(own).exists():
        _create(own)
    return interpreter_of(own)


def _create(venv: Path) -> None:
    command = [str(_engine_python()), "-m", "venv", "--clear", str(venv)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"The virtual environment of the base could not be made:\n{done.stdout.strip()}")


def _engine_python() -> Path:
    if sys.version_info[:2] == ENGINE_PYTHON:
        return Path(sys.executable)
    wanted = ".".join(map(str, ENGINE_PYTHON))
    found = shutil.which(f"python{wanted}")
    if found is None:
        this = ".".join(map(str, sys.version_info[:2]))
        raise BuildError(
            f"The engines' wheels are built for Python {wanted}; this is Python {this}, and there is no python{wanted} "
            f"on PATH.\nInstall Python {wanted}, or give a virtual environment made by one: "
            "eagle-contracts env sync --base VENV"
        )
    return Path(found)


def _site_of(python: Path) -> Path:
    """The import folder of an interpreter for engines; raises BuildError if it is missing or of another version."""
    try:
        asked = [str(python), "-I", "-c", _SITE]
        major, minor, site = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split(maxsplit=2)
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise BuildError(f"The base's interpreter does not run: {python}") from None
    if (int(major), int(minor)) != ENGINE_PYTHON:
        wanted = ".".join(map(str, ENGINE_PYTHON))
        raise BuildError(
            f"The engines' wheels are built for Python {wanted}, and {python} is Python {major}.{minor}.\n"
            f"Give a base made with `python{wanted} -m venv`: eagle-contracts env sync --base VENV"
        )
    return Path(site.strip())


def _install_torch(site: Path, pip: Pip, progress: Progress) -> None:
    """Install torch, unless the right version is there; without a GPU, refuse a build that needs CUDA libraries."""
    if _is_wanted(installed_versions(site).get("torch", "")):
        return
    index = pip.environ.get(TORCH_INDEX_VARIABLE)
    progress.start(BASE, None, f"installing torch {TORCH}")
    cuda = cuda_libraries(pip.look(f"torch=={TORCH}", index)) if sys.platform == "linux" else ()
    if cuda and not has_gpu():
        raise BuildError(_cpu_advice(cuda))
    alone = [] if cuda else ["--no-deps"]
    pip.install([*alone, *index_options(index), f"torch=={TORCH}"], progress.update)
    progress.finish(f"torch {TORCH} installed")


def _cpu_advice(cuda: Sequence[str]) -> str:
    shown = ", ".join(cuda[:3]) + (f" and {len(cuda) - 3} more" if len(cuda) > 3 else "")
    return (
        f"The torch {TORCH} that pip would install needs CUDA libraries ({shown}), and this machine has no GPU.\n"
        "Take PyTorch's build for CPUs instead:\n"
        f"  {TORCH_INDEX_VARIABLE}={CPU_INDEX} eagle-contracts env sync\n"
        f"To use the CUDA build all the same, install torch=={TORCH} into the base yourself first: it is then kept."
    )


def _is_wanted(version: str) -> bool:
    """Whether a torch is the one wanted; `2.13.0+cpu` is."""
    return version.partition("+")[0] == TORCH


def _manifest(python: Path, site: Path, lock: Lock, *, complete: bool) -> Manifest:
    found = installed_versions(site)
    versions = {name: version for name, version in found.items() if name in lock.pins or name == "torch"}
    return Manifest(
        name=BASE,
        python=str(python),
        paths=(str(site),),
        lock_digest=lock.digest,
        torch=found.get("torch", ""),
        versions=versions,
        complete=complete,
    )
