"""Building environments with a real pip, from wheels made here, without a network."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle_contracts import cli
from eagle_contracts.cli.env import fitting
from eagle_contracts.workers import base, build
from eagle_contracts.workers.base import cuda_libraries
from eagle_contracts.workers.environments import Resolved, resolve
from eagle_contracts.workers.locks import lock_directories
from eagle_contracts.workers.manifest import Manifest, read_manifest, write_manifest
from eagle_contracts.workers.wanted import named_environments

from .processes import survivors, timeless

REPOSITORY = Path(__file__).resolve().parents[2]
PIPELINE = """\
spec: 1
target: {config: target.config.json}
draft: {config: target.config.json}
trained: {taps: {hidden_states: [3, 31, 59]}, final: final}
environments:
  engine-1.0: {role: serve, engine: engine==1.0}
  engine-2.0: {role: serve, engine: engine==2.0}
"""


def make_wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """Write the smallest wheel that pip installs: one module that knows its version."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def pristine_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pip and nothing else, made once and never changed."""
    path = tmp_path_factory.mktemp("pristine") / "venv"
    venv.create(path, with_pip=True, symlinks=True)
    return path


@pytest.fixture
def empty_venv(pristine_venv: Path, tmp_path: Path) -> Path:
    """A virtual environment of the test's own."""
    return shutil.copytree(pristine_venv, tmp_path / "venv", symlinks=True)


@pytest.fixture(scope="module")
def built_home(pristine_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a sync of the project leaves behind, made once and never changed."""
    folder = tmp_path_factory.mktemp("built")
    base_venv = shutil.copytree(pristine_venv, folder / "venv", symlinks=True)
    lay_project(folder)
    with pytest.MonkeyPatch.context() as patch:
        use_only(folder, patch)
        assert cli.main(["env", "sync", "--base", str(base_venv)]) == 0
    return folder / ".eagle_contracts"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two engines, their wheels, and a pip that sees nothing else."""
    lay_project(tmp_path)
    use_only(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def built(project: Path, built_home: Path) -> Path:
    """The project with everything built."""
    shutil.copytree(built_home, project / ".eagle_contracts", symlinks=True)
    return project


def lay_project(folder: Path) -> None:
    kimi, locks, wheels = folder / "contracts" / "kimi", folder / "contracts" / "locks", folder / "wheels"
    for new in (kimi, locks, wheels):
        new.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (kimi / "pipeline.yaml").write_text(PIPELINE)
    (kimi / "target.config.json").write_text("{}")
    (locks / "base.txt").write_text("common==1.0\nshared==1.0\n")
    (locks / "engine-1.0.txt").write_text("engine==1.0\n")
    (locks / "engine-2.0.txt").write_text("engine==2.0\nshared==2.0\n")
    for name, version in (
        ("common", "1.0"),
        ("shared", "1.0"),
        ("shared", "2.0"),
        ("engine", "1.0"),
        ("engine", "2.0"),
    ):
        make_wheel(wheels, name, version)
    make_wheel(wheels, "torch", "2.13.0")


def use_only(project: Path, patch: pytest.MonkeyPatch) -> None:
    """Stand in the project, on a machine without a GPU, with a pip that knows its wheels alone."""
    for variable in [name for name in os.environ if name.startswith(("PIP_", "EAGLE_CONTRACTS_"))]:
        patch.delenv(variable)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(project / "wheels"))
    patch.setattr(base, "has_gpu", lambda: False)
    patch.chdir(project)


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def sync(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of `env sync` and what it said, with every time written as T."""
    code = cli.main(["env", "sync", *arguments])
    return code, timeless(capsys.readouterr().err)


def resolved(project: Path, name: str) -> Resolved:
    named = next(named for named in named_environments(project) if named.environment.name == name)
    answer = resolve(named.environment, project / ".eagle_contracts", named.lock_dirs)
    assert isinstance(answer, Resolved), answer
    return answer


def run_in(answer: Resolved, code: str) -> str:
    """What a program prints that runs as a worker of that environment would."""
    done = subprocess.run(
        [*answer.command, "-c", code], env=dict(answer.env), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def start_sync(project: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    program = "import sys; from eagle_contracts import cli; sys.exit(cli.main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, "env", "sync", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environ},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(pattern: str, folder: Path) -> Path:
    """The first path of that pattern to appear."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for path in folder.glob(pattern):
            return path
        time.sleep(0.02)
    raise AssertionError(f"no {pattern} appeared in {folder}")


def leftovers(project: Path) -> list[str]:
    return sorted(path.name for path in (project / ".eagle_contracts" / "env").glob(".*.tmp"))


def test_first_sync_builds_and_second_does_nothing(
    project: Path, empty_venv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command builds the base and every lock; run again it starts no pip and is done in under a second."""
    assert sync(capsys, "--base", str(empty_venv)) == (
        0,
        "base: installing torch 2.13.0\n"
        "base: torch 2.13.0 installed in T\n"
        "base: installing 2 distributions\n"
        "base: built with torch 2.13.0 in T\n"
        "engine-1.0: installing 1 distribution (1 of 2)\n"
        "engine-1.0: built in T\n"
        "engine-2.0: installing 2 distributions (2 of 2)\n"
        "engine-2.0: built in T\n"
        "Environments are ready (T).\n",
    )
    monkeypatch.setattr(subprocess, "Popen", None)
    started = time.monotonic()
    assert sync(capsys) == (
        0,
        "base: up to date\nengine-1.0: up to date\nengine-2.0: up to date\nEnvironments are ready (T).\n",
    )
    assert time.monotonic() - started < 1
    assert leftovers(project) == []


def test_built_environments_differ_as_their_locks_do(built: Path) -> None:
    """Each environment imports its own engine, what its lock overrides, and the base for the rest."""
    program = (
        "import common, engine, shared, torch; print(engine.version, shared.version, common.version, torch.version)"
    )
    assert run_in(resolved(built, "engine-1.0"), program) == "1.0 1.0 1.0 2.13.0"
    assert run_in(resolved(built, "engine-2.0"), program) == "2.0 2.0 1.0 2.13.0"
    assert resolved(built, "engine-2.0").engine_version == "2.0"


def test_list_shows_what_is_ready_and_how_to_mend_the_rest(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list names every environment; below it stands what to do for those that cannot run."""
    (built / ".eagle_contracts" / "env" / "engine-2.0" / "environment.json").unlink()
    assert cli.main(["env", "list"]) == 0
    assert capsys.readouterr().out == (
        "PIPELINE        ENVIRONMENT  ENGINE       STATE\n"
        "contracts/kimi  engine-1.0   engine==1.0  ready, built from contracts/locks/engine-1.0.txt\n"
        "contracts/kimi  engine-2.0   engine==2.0  unavailable\n"
        "\n"
        ".eagle_contracts/env/engine-2.0 is only half built. Build it again: eagle-contracts env sync engine-2.0\n"
    )


def test_a_list_too_wide_for_a_terminal_has_sources_on_lines_of_their_own() -> None:
    """No line is wider than a hundred columns, and nothing of it is lost."""
    rows = [("PIPELINE", "STATE"), ("contracts/kimi", f"ready, built from {'x' * 80}"), ("b", "unavailable")]
    assert fitting(rows) == (
        f"PIPELINE        STATE\ncontracts/kimi  ready\n  built from {'x' * 80}\nb               unavailable"
    )


def test_half_built_is_built_again(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without its manifest is replaced, and what it held is gone."""
    folder = built / ".eagle_contracts" / "env" / "engine-2.0"
    (folder / "environment.json").unlink()
    (folder / "stray.py").write_text("")
    assert sync(capsys, "engine-2.0") == (
        0,
        "base: up to date\n"
        "engine-2.0: half built; installing again 2 distributions (1 of 1)\n"
        "engine-2.0: built in T\n"
        "Environments are ready (T).\n",
    )
    assert sorted(path.name for path in folder.iterdir()) == ["environment.json", "site"]


@pytest.mark.parametrize("change", ["lock", "files", "torch"])
def test_what_no_longer_fits_is_built_again(built: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    """A changed lock, a missing distribution and another torch in the base each make an overlay stale."""
    folder = built / ".eagle_contracts" / "env" / "engine-1.0"
    manifest = read_manifest(folder)
    assert manifest is not None
    if change == "lock":
        (built / "contracts" / "locks" / "engine-1.0.txt").write_text("engine==1.0\nshared==2.0\n")
    if change == "files":
        (folder / "site" / "engine-1.0.dist-info").rename(folder / "site" / "gone")
    if change == "torch":
        write_manifest(folder, Manifest(**{**{name: getattr(manifest, name) for name in FIELDS}, "torch": "2.12.0"}))
    code, said = sync(capsys, "engine-1.0")
    assert code == 0
    assert "engine-1.0: installing again" in said
    assert sync(capsys, "engine-1.0")[1] == "base: up to date\nengine-1.0: up to date\nEnvironments are ready (T).\n"


FIELDS = ("name", "python", "paths", "lock_digest", "torch", "versions", "complete")


def test_base_of_its_own_is_made_where_none_is_given(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --base the base is a virtual environment in the project's own folder."""
    assert sync(capsys, "base")[0] == 0
    manifest = read_manifest(project / ".eagle_contracts" / "env" / "base")
    assert manifest is not None
    assert manifest.python == str(project / ".eagle_contracts" / "env" / "base" / "venv" / "bin" / "python")
    assert manifest.versions == {"common": "1.0", "shared": "1.0", "torch": "2.13.0"}
    assert (project / ".eagle_contracts" / ".gitignore").read_text() == "*\n"


def test_installed_torch_of_the_right_version_is_kept(
    project: Path, empty_venv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A torch that is there already stays, whatever build it is: its user chose it."""
    next((project / "wheels").glob("torch-*")).unlink()
    site = next(empty_venv.glob("lib/python*/site-packages"))
    (site / "torch-2.13.0+cu130.dist-info").mkdir()
    code, said = sync(capsys, "base", "--base", str(empty_venv))
    assert code == 0
    assert "base: built with torch 2.13.0+cu130 in T\n" in said


def test_cuda_build_without_a_gpu_is_stopped_with_advice(
    project: Path, empty_venv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no GPU, gigabytes of CUDA libraries are not installed; the way to the CPU build is named."""
    needs = tuple(
        f"nvidia-{name}-cu13==1.0; platform_system == 'Linux'" for name in ("cublas", "cudnn", "nccl", "nvjitlink")
    )
    make_wheel(project / "wheels", "torch", "2.13.0", ("filelock", *needs, "nvidia-extra; extra == 'more'"))
    code, said = sync(capsys, "--base", str(empty_venv))
    assert (code, said) == (
        1,
        "base: installing torch 2.13.0\n"
        "eagle-contracts: The torch 2.13.0 that pip would install needs CUDA libraries (nvidia-cublas-cu13, "
        "nvidia-cudnn-cu13, nvidia-nccl-cu13 and 1 more), and this machine has no GPU.\n"
        "Take PyTorch's build for CPUs instead:\n"
        "  EAGLE_CONTRACTS_TORCH_INDEX=https://download.pytorch.org/whl/cpu eagle-contracts env sync\n"
        "To use the CUDA build all the same, install torch==2.13.0 into the base yourself first: it is then kept.\n",
    )
    manifest = read_manifest(project / ".eagle_contracts" / "env" / "base")
    assert manifest is not None
    assert (manifest.complete, manifest.torch) == (False, "")


def test_cuda_build_with_a_gpu_brings_its_libraries(
    project: Path, empty_venv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a GPU, the CUDA build is installed with the libraries that it needs, which no lock names."""
    monkeypatch.setattr(base, "has_gpu", lambda: True)
    make_wheel(project / "wheels", "nvidia_cublas", "1.0")
    make_wheel(project / "wheels", "torch", "2.13.0", ("nvidia-cublas==1.0",))
    assert sync(capsys, "base", "--base", str(empty_venv))[0] == 0
    assert (
        subprocess.run([empty_venv / "bin" / "python", "-c", "import nvidia_cublas, torch"], check=False).returncode
        == 0
    )


def test_only_cuda_libraries_of_the_wheel_itself_count() -> None:
    """Dependencies of extras and names that merely resemble CUDA libraries are no reason to stop."""
    requires = (
        "nvidia_cublas==1; platform_system == 'Linux'",
        "cuda-bindings>=13",
        "nvidia-x; extra == 'y'",
        "cudatext",
    )
    assert cuda_libraries(requires) == ("nvidia_cublas", "cuda-bindings")


def test_failing_pip_leaves_what_was_built(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When pip fails, its last words and the likely cause are shown, and the environment that was there still is."""
    lock = built / "contracts" / "locks" / "engine-1.0.txt"
    good = lock.read_text()
    lock.write_text("engine==1.0\nabsent==3.0\n")
    code, said = sync(capsys, "engine-1.0")
    assert code == 1
    assert said.startswith(
        "base: up to date\n"
        "engine-1.0: installing again 2 distributions (1 of 1)\n"
        "eagle-contracts: engine-1.0 was not built: the index has no such name, or was not reached.\n"
        "Check the network and the index in pip's own settings, then run the command again.\n"
        "pip's last lines:\n"
    )
    assert said.endswith("  ERROR: No matching distribution found for absent==3.0\n")
    lock.write_text(good)
    assert run_in(resolved(built, "engine-1.0"), "import engine; print(engine.version)") == "1.0"
    assert leftovers(built) == []


@pytest.mark.parametrize("retries", ["0", "1"])
def test_unreachable_index_is_told_apart(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], retries: str
) -> None:
    """Without a network the message speaks of the network, not of versions, also where pip is to try nothing twice."""
    (built / ".eagle_contracts" / "env" / "engine-1.0" / "environment.json").unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", retries)
    code, said = sync(capsys, "engine-1.0")
    assert code == 1
    assert said == (
        "base: up to date\n"
        "engine-1.0: half built; installing again 1 distribution (1 of 1)\n"
        "eagle-contracts: engine-1.0 was not built: the package index could not be reached.\n"
        "Check the network or pip's own settings, then run the command again.\n"
        "pip's last lines:\n"
        "  ERROR: Could not find a version that satisfies the requirement engine==1.0 (from versions: none)\n"
        "  ERROR: No matching distribution found for engine==1.0\n"
    )


def test_a_folder_that_cannot_be_written_to_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No permission, a read-only disk or a file in the way: where, why, and what to do."""
    monkeypatch.setenv("EAGLE_CONTRACTS_HOME", str(project / "pytest.ini"))
    assert sync(capsys, "base") == (
        1,
        f"eagle-contracts: Environments cannot be kept in {project}/pytest.ini/env "
        f"(Not a directory: {project}/pytest.ini/env).\n"
        "Make it writable, or name another folder: EAGLE_CONTRACTS_HOME=FOLDER eagle-contracts env sync\n",
    )


def test_a_disk_that_is_full_at_the_last_file_leaves_nothing(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that is written last does not fit: the environment is not there, and the sentence says why."""

    def full(folder: Path, manifest: Manifest) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (built / ".eagle_contracts" / "env" / "engine-1.0" / "environment.json").unlink()
    monkeypatch.setattr(build, "write_manifest", full)
    code, said = sync(capsys, "engine-1.0")
    assert code == 1
    assert said.endswith(
        f"eagle-contracts: There is no room for environments in {built}/.eagle_contracts/env "
        "(No space left on device).\nFree some space, then run the command again.\n"
    )
    assert leftovers(built) == []


def test_a_lock_without_its_engine_is_not_built(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty lock, and one of another version: the environment could never run, which is said before the build."""
    locks = built / "contracts" / "locks"
    (locks / "engine-1.0.txt").write_text("")
    (locks / "engine-2.0.txt").write_text("engine==2.1\n")
    assert sync(capsys) == (
        1,
        "eagle-contracts: contracts/kimi/pipeline.yaml:6:3: engine-1.0 asks for engine==1.0, and "
        "contracts/locks/engine-1.0.txt has no engine\n"
        "      engine-1.0: {role: serve, engine: engine==1.0}\n"
        "      ^\n"
        "  change one of the two, or give the environment another lock\n"
        "contracts/kimi/pipeline.yaml:7:3: engine-2.0 asks for engine==2.0, and contracts/locks/engine-2.0.txt has "
        "engine 2.1\n"
        "      engine-2.0: {role: serve, engine: engine==2.0}\n"
        "      ^\n"
        "  change one of the two, or give the environment another lock\n",
    )


def test_a_broken_lock_and_an_unknown_one_are_places_in_files(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that pins nothing is shown in its lock, and a lock that is not there in its pipeline, with the nearest."""
    lock = built / "contracts" / "locks" / "engine-1.0.txt"
    lock.write_text("engine>=1.0\n")
    assert sync(capsys, "engine-1.0") == (
        1,
        "eagle-contracts: contracts/locks/engine-1.0.txt:1:1: expected NAME==VERSION\n"
        "    engine>=1.0\n"
        "    ^\n"
        "  a lock pins every distribution exactly, one a line, without hashes, markers or options\n",
    )
    pipeline = built / "contracts" / "kimi" / "pipeline.yaml"
    pipeline.write_text(PIPELINE.replace("engine: engine==1.0", "engine: engine==1.0, lock: engine-1.O"))
    code, said = sync(capsys, "engine-1.0")
    assert code == 1
    assert said.startswith("eagle-contracts: contracts/kimi/pipeline.yaml:6:3: no lock file is called engine-1.O.txt\n")
    assert said.endswith("did you mean 'engine-1.0'?\n")


def test_a_folder_without_pipelines_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command in the wrong folder must not begin to install gigabytes."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    assert sync(capsys) == (
        1,
        "eagle-contracts: there is no pipeline.yaml below contracts, so there is nothing to build: "
        "name a lock to build it all the same\n",
    )
    assert cli.main(["env", "list"]) == 1
    assert capsys.readouterr().err == (
        "eagle-contracts: there is no pipeline.yaml below contracts: write one, or go to the folder of your project\n"
    )


def test_json_says_what_was_built(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json standard output is one document, progress stays where errors go, and a failure is JSON too."""
    (built / ".eagle_contracts" / "env" / "engine-1.0" / "environment.json").unlink()
    assert cli.main(["env", "sync", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "environments": [
            {"name": "base", "state": "up to date"},
            {"name": "engine-1.0", "state": "built"},
            {"name": "engine-2.0", "state": "up to date"},
        ],
        "notes": [],
    }
    assert "engine-1.0: built in" in err
    assert cli.main(["env", "sync", "engine-1.O", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "error": {
            "message": "no environment is called 'engine-1.O': did you mean 'engine-1.0'?",
            "exit_code": 2,
            "mistakes": [],
        }
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_build_leaves_nothing(built: Path, silent_index: str, number: signal.Signals) -> None:
    """Ctrl-C, a termination and a closed terminal end pip too; no scratch folder is left, nor what looks complete."""
    env = built / ".eagle_contracts" / "env"
    (env / "engine-1.0" / "environment.json").unlink()
    running = start_sync(built, "engine-1.0", PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=silent_index)
    wait_for(".engine-1.0.*.tmp", env)
    pip = child_of(running.pid)
    running.send_signal(number)
    _, said = running.communicate(timeout=20)
    assert running.returncode == 1
    assert survivors([pip]) == []
    assert said.endswith(
        "eagle-contracts: stopped. Nothing is left half built that looks complete; run it again to go on.\n"
    )
    assert leftovers(built) == []
    assert not (env / "engine-1.0" / "environment.json").exists()


def test_killed_build_is_cleared_away_by_the_next(
    built: Path, silent_index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pip that outlives a killed builder keeps the next one waiting, which then clears away what was left."""
    env = built / ".eagle_contracts" / "env"
    (env / "engine-1.0" / "environment.json").unlink()
    running = start_sync(built, "engine-1.0", PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=silent_index)
    wait_for(".engine-1.0.*.tmp", env)
    pip = child_of(running.pid)
    running.kill()
    running.communicate(timeout=20)
    assert len(leftovers(built)) == 1
    with (env / ".lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(pip, signal.SIGKILL)
    assert sync(capsys, "engine-1.0")[0] == 0
    assert leftovers(built) == []
    assert run_in(resolved(built, "engine-1.0"), "import engine; print(engine.version)") == "1.0"


def child_of(process: int) -> int:
    """The process that another one started; waits for it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"process {process} started nothing")


def test_second_builder_waits_and_says_for_whom(built: Path) -> None:
    """Two builders at once would spoil each other: the second one waits, and names the process it waits for."""
    with (built / ".eagle_contracts" / "env" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4242")
        lock.flush()
        waiting = start_sync(built, "engine-1.0")
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == (
            "Waiting: another `eagle-contracts env sync` (process 4242) is building here.\n"
        )
    said = waiting.communicate(timeout=20)[1]
    assert timeless(said) == "base: up to date\nengine-1.0: up to date\nEnvironments are ready (T).\n"


def test_unknown_name_is_wrong_usage(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that nothing has is answered with the nearest one, before anything is built."""
    assert sync(capsys, "engine-1.O") == (
        2,
        "eagle-contracts: no environment is called 'engine-1.O': did you mean 'engine-1.0'?\n",
    )
    assert not (project / ".eagle_contracts").exists()


def test_base_that_is_no_virtual_environment_is_wrong_usage(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A --base without an interpreter says how to make one."""
    assert sync(capsys, "--base", "nowhere") == (
        2,
        "eagle-contracts: no virtual environment at nowhere: make it with `python3.11 -m venv nowhere`\n",
    )


def test_base_of_another_python_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engines' wheels need Python 3.11; a base of another one is refused in words."""
    python = project / "old" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3 12 /somewhere/site-packages\n")
    python.chmod(0o755)
    code, said = sync(capsys, "--base", "old")
    assert (code, said) == (
        1,
        f"eagle-contracts: The engines' wheels are built for Python 3.11, and {python} is Python 3.12.\n"
        "Give a base made with `python3.11 -m venv`: eagle-contracts env sync --base VENV\n",
    )


def test_without_python_311_no_base_can_be_made(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where another Python runs and none of the right version is found, that is said in words."""
    monkeypatch.setattr(base, "ENGINE_PYTHON", (3, 2))
    code, said = sync(capsys)
    this = ".".join(map(str, sys.version_info[:2]))
    assert (code, said) == (
        1,
        f"eagle-contracts: The engines' wheels are built for Python 3.2; this is Python {this}, and there is no "
        "python3.2 on PATH.\n"
        "Install Python 3.2, or give a virtual environment made by one: eagle-contracts env sync --base VENV\n",
    )


def test_recorded_base_that_is_gone_is_not_replaced_silently(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A base that its user chose and that has vanished is reported, not exchanged for another one."""
    folder = built / ".eagle_contracts" / "env" / "base"
    manifest = read_manifest(folder)
    assert manifest is not None
    write_manifest(folder, Manifest(**{**{name: getattr(manifest, name) for name in FIELDS}, "python": "/gone/python"}))
    assert sync(capsys) == (
        1,
        "eagle-contracts: The base's interpreter is gone: /gone/python\n"
        f"Name another one (eagle-contracts env sync --base VENV), or remove {folder} to get a new one.\n",
    )


def test_environments_that_need_no_build_are_mentioned(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An interpreter named by hand and an engine without a lock are no failure, and are said."""
    pipeline = built / "contracts" / "kimi" / "pipeline.yaml"
    more = (
        "  mine: {role: serve, engine: engine>=1.0, python: /x/python}\n  other: {role: trainer, engine: other==3.0}\n"
    )
    pipeline.write_text(PIPELINE + more)
    assert sync(capsys) == (
        0,
        "base: up to date\n"
        "engine-1.0: up to date\n"
        "engine-2.0: up to date\n"
        "mine: nothing to build, its interpreter is named by hand.\n"
        "other: nothing to build, it has no lock (contracts/kimi/pipeline.yaml:9). "
        "To have it built, write other.txt into contracts/locks.\n"
        "Environments are ready (T).\n",
    )
    assert sync(capsys, "other") == (
        1,
        "eagle-contracts: other: nothing to build, it has no lock (contracts/kimi/pipeline.yaml:9). "
        "To have it built, write other.txt into contracts/locks.\n",
    )


def test_two_locks_of_one_name_must_be_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One name stands for one environment: two pipelines with different locks of that name are refused."""
    other = project / "contracts" / "qwen"
    (other / "locks").mkdir(parents=True)
    (other / "pipeline.yaml").write_text(PIPELINE)
    (other / "target.config.json").write_text("{}")
    (other / "locks" / "engine-1.0.txt").write_text("engine==1.0\nshared==2.0\n")
    assert sync(capsys) == (
        1,
        "eagle-contracts: Two different locks are called engine-1.0: contracts/locks/engine-1.0.txt and "
        "contracts/qwen/locks/engine-1.0.txt. Rename one of them, with its environments.\n",
    )


def test_mistake_in_a_pipeline_stops_with_its_place(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline with a mistake is shown as a place in a file, not as a traceback."""
    (project / "contracts" / "kimi" / "pipeline.yaml").write_text(PIPELINE.replace("role: serve", "rolle: serve"))
    code, said = sync(capsys)
    assert code == 1
    assert "contracts/kimi/pipeline.yaml:6:16: unknown key 'rolle'\n" in said
    assert "Traceback" not in said


def test_wheel_ships_the_locks(tmp_path: Path) -> None:
    """A built wheel holds the locks beside the package, the entry points, and the mark of its annotations."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(REPOSITORY)], check=True, stdin=subprocess.DEVNULL)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        entries = next(name for name in names if name.endswith("entry_points.txt"))
        text = wheel.read(entries).decode()
    locks = {f"eagle_contracts/locks/{path.name}" for path in (REPOSITORY / "contracts" / "locks").glob("*.txt")}
    assert locks == {name for name in names if "/locks/" in name}
    assert "eagle_contracts/py.typed" in names
    assert "eagle_contracts.plugin = eagle_contracts.plugin" in text
    assert lock_directories(tmp_path, tmp_path)[-1].name == "locks"
