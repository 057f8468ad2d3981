"""Which interpreter an environment gets, and what its user reads when there is none."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from eagle_contracts.project import contracts_paths, home_folder, pipeline_files, project_root
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.model import Environment
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.requirement import Requirement
from eagle_contracts.workers import interpreters
from eagle_contracts.workers.environments import Resolved, Unavailable, resolve
from eagle_contracts.workers.locks import SHIPPED, find_lock, lock_directories, read_lock
from eagle_contracts.workers.manifest import Manifest, environment_folder, write_manifest

PYTEST_VERSION = importlib.metadata.version("pytest")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two locks, no environment built, and nobody's settings."""
    locks = tmp_path / "contracts" / "locks"
    locks.mkdir(parents=True)
    (tmp_path / "contracts" / "kimi").mkdir()
    (locks / "base.txt").write_text("six==1.0\n")
    (locks / "engine-1.0.txt").write_text("# the engine\nengine==1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EAGLE_CONTRACTS_HOME", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def entry(name: str = "engine-1.0", engine: str | None = "engine==1.0", **more: object) -> Environment:
    return Environment(
        name=name,
        roles=("serve",),
        position=Position(path="contracts/kimi/pipeline.yaml", line=7, column=3),
        engine=Requirement.parse(engine) if engine else None,
        **more,  # type: ignore[arg-type]
    )


def found(project: Path, environment: Environment, **more: object) -> Resolved | Unavailable:
    directories = lock_directories(project / "contracts" / "kimi", project)
    return resolve(environment, home_folder(project), directories, **more)  # type: ignore[arg-type]


def refusal(project: Path, environment: Environment) -> str:
    answer = found(project, environment)
    assert isinstance(answer, Unavailable)
    assert answer.reason == "environment"
    return answer.message


def pretend_built(
    project: Path, name: str, *, complete: bool = True, torch: str = "2.13.0", version: str = "1.0"
) -> Path:
    """Lay what a build leaves behind, without building."""
    folder = environment_folder(home_folder(project), name)
    (folder / "site").mkdir(parents=True)
    manifest = Manifest(
        name=name,
        python=sys.executable,
        paths=("site",),
        lock_digest=read_lock(project / "contracts" / "locks" / f"{name}.txt").digest,
        torch=torch,
        versions={"engine": version},
        complete=complete,
    )
    write_manifest(folder, manifest)
    return folder


def own_file(project: Path, text: str) -> None:
    home_folder(project).mkdir(exist_ok=True)
    (home_folder(project) / "environments.yaml").write_text(text)


def test_built_environment_is_the_base_with_an_overlay(project: Path) -> None:
    """A built environment is the base's interpreter with the overlay ahead of it on the import path."""
    pretend_built(project, "base")
    folder = pretend_built(project, "engine-1.0")
    assert found(project, entry()) == Resolved(
        command=(sys.executable,),
        env={"PYTHONPATH": str(folder / "site")},
        label="engine-1.0",
        engine_version="1.0",
        source="built from contracts/locks/engine-1.0.txt",
        folders=(folder / "site",),
    )


def test_not_built_names_the_command(project: Path) -> None:
    """An environment with a lock that nobody built says which command builds it."""
    assert refusal(project, entry()) == (
        "The environment 'engine-1.0' is not built. Build it: eagle-contracts env sync engine-1.0"
    )


@pytest.mark.parametrize("spoil", ["nothing written", "interrupted", "cut short"])
def test_half_built_is_never_used(project: Path, spoil: str) -> None:
    """Without a complete manifest an environment is half built, whatever lies in its folder."""
    pretend_built(project, "base")
    folder = pretend_built(project, "engine-1.0", complete=spoil != "interrupted")
    if spoil == "nothing written":
        (folder / "environment.json").unlink()
    if spoil == "cut short":
        (folder / "environment.json").write_text('{"name": "engine-1.0", "python":')
    assert refusal(project, entry()) == (
        ".eagle_contracts/env/engine-1.0 is only half built. Build it again: eagle-contracts env sync engine-1.0"
    )


def test_changed_lock_makes_a_build_stale(project: Path) -> None:
    """A lock that changed since the build is not silently ignored."""
    pretend_built(project, "base")
    pretend_built(project, "engine-1.0")
    (project / "contracts" / "locks" / "engine-1.0.txt").write_text("engine==1.0\nother==2\n")
    assert refusal(project, entry()) == (
        "contracts/locks/engine-1.0.txt has changed since .eagle_contracts/env/engine-1.0 was built. "
        "Build it again: eagle-contracts env sync engine-1.0"
    )


def test_base_that_went_stale_stops_its_overlays(project: Path) -> None:
    """An overlay is not used on a base that its lock no longer describes, nor on another torch."""
    pretend_built(project, "base")
    pretend_built(project, "engine-1.0", torch="2.12.0")
    assert refusal(project, entry()) == (
        ".eagle_contracts/env/engine-1.0 was built on another base. Build it again: eagle-contracts env sync engine-1.0"
    )
    (project / "contracts" / "locks" / "base.txt").write_text("six==2.0\n")
    assert refusal(project, entry()) == (
        "contracts/locks/base.txt has changed since .eagle_contracts/env/base was built. "
        "Build it again: eagle-contracts env sync engine-1.0"
    )


def test_removed_import_folder_is_noticed(project: Path) -> None:
    """A manifest whose import folder is gone is not believed."""
    pretend_built(project, "base")
    (pretend_built(project, "engine-1.0") / "site").rmdir()
    assert refusal(project, entry()) == (
        ".eagle_contracts/env/engine-1.0 has lost files since it was built. "
        "Build it again: eagle-contracts env sync engine-1.0"
    )


def test_lock_and_pipeline_must_agree_on_the_version(project: Path) -> None:
    """A lock with another version than the pipeline asks for is refused, with both places."""
    pretend_built(project, "base")
    pretend_built(project, "engine-1.0", version="1.1")
    assert refusal(project, entry()) == (
        "contracts/kimi/pipeline.yaml:7 asks for engine==1.0, and contracts/locks/engine-1.0.txt has engine 1.1. "
        "Change one of the two, or give the environment another lock."
    )


def test_engine_installed_here_is_used_without_a_lock(project: Path) -> None:
    """An engine installed beside pytest runs there; an unpinned one carries the version found in its label."""
    assert found(project, entry("here", "pytest")) == Resolved(
        command=(sys.executable,),
        env={},
        label=f"here-{PYTEST_VERSION}",
        engine_version=PYTEST_VERSION,
        source="this interpreter",
    )
    pinned = found(project, entry("here", f"pytest=={PYTEST_VERSION}"))
    assert isinstance(pinned, Resolved)
    assert pinned.label == "here"


def test_here_keeps_its_import_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that an image has on PYTHONPATH is imported there too; its sources are not all known by that."""
    monkeypatch.setenv("PYTHONPATH", "/workspace/engine")
    answer = found(project, entry("here", "pytest"))
    assert isinstance(answer, Resolved)
    assert (answer.env, answer.folders) == ({"PYTHONPATH": "/workspace/engine"}, ())


def test_entry_without_engine_runs_here(project: Path) -> None:
    """An environment that names no engine needs nothing but an interpreter."""
    answer = found(project, entry("plain", None))
    assert isinstance(answer, Resolved)
    assert (answer.command, answer.engine_version) == ((sys.executable,), None)


def test_engine_out_of_range_here_is_unavailable(project: Path) -> None:
    """An engine of another version is no substitute; the message lists every way out."""
    assert refusal(project, entry("old", "pytest==1.0")).replace(_shipped(project), "LOCKS") == (
        "The environment 'old' (contracts/kimi/pipeline.yaml:7) has no interpreter: pytest==1.0 is not installed here, "
        "and no lock has its name (locks: LOCKS). Name an interpreter in .eagle_contracts/environments.yaml, or write "
        "old.txt beside the other locks and build it: eagle-contracts env sync old"
    )


def _shipped(project: Path) -> str:
    from eagle_contracts.workers.locks import engine_locks

    return ", ".join(engine_locks(lock_directories(project / "contracts" / "kimi", project)))


def test_users_own_file_comes_first(project: Path) -> None:
    """environments.yaml decides over the entry's own key and over what was built."""
    pretend_built(project, "base")
    pretend_built(project, "engine-1.0")
    own_file(project, "engine-1.0: {command: [docker, exec, -i, serve, python3]}\n")
    assert found(project, entry(python="/nowhere/python")) == Resolved(
        command=("docker", "exec", "-i", "serve", "python3"),
        env={},
        label="engine-1.0",
        engine_version=None,
        source="command at .eagle_contracts/environments.yaml:1",
    )


def test_entrys_own_interpreter_comes_before_the_lock(project: Path) -> None:
    """An interpreter named in the pipeline is asked for its engine; a relative path starts at the pipeline."""
    (project / "contracts" / "kimi" / "python").symlink_to(sys.executable)
    named = entry("mine", "pytest", python="./python")
    answer = found(project, named, folder=project / "contracts" / "kimi")
    assert isinstance(answer, Resolved)
    assert answer.command == (str(project / "contracts" / "kimi" / "python"),)
    assert answer.source == "interpreter at contracts/kimi/pipeline.yaml:7"


def test_interpreter_without_the_engine_is_refused(project: Path) -> None:
    """An interpreter that lacks the engine says what to install, and where."""
    assert refusal(project, entry(python=sys.executable)) == (
        f"{sys.executable}, named at contracts/kimi/pipeline.yaml:7, has no engine. Install engine==1.0 there."
    )


def test_missing_interpreter_is_refused(project: Path) -> None:
    """A path where nothing is says so, with the place that names it."""
    own_file(project, "other: {python: /bin/sh}\nengine-1.0:\n  python: /nowhere/bin/python3\n")
    assert refusal(project, entry()) == (
        "/nowhere/bin/python3, named at .eagle_contracts/environments.yaml:2, does not exist. Correct the path there."
    )


def test_what_is_no_interpreter_is_refused(project: Path) -> None:
    """A program that is not Python is told apart from a missing one."""
    assert refusal(project, entry(python="/bin/true")) == (
        "/bin/true, named at contracts/kimi/pipeline.yaml:7, does not run as a Python interpreter. "
        "Correct the path there."
    )


def test_interpreter_that_hangs_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for once, for a while, and named with the place; a folder is called a folder."""
    monkeypatch.setattr(interpreters, "_PATIENCE", 0.2)
    hangs = project / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 5\n")
    hangs.chmod(0o755)
    with pytest.raises(interpreters.Refused, match=r"hangs, named at p.yaml:3, gave no answer within 0\.2 seconds"):
        interpreters.ask(hangs, None, "p.yaml:3")
    with pytest.raises(interpreters.Refused, match=r"named at p.yaml:3, is a folder\. Correct the path there\."):
        interpreters.ask(project, None, "p.yaml:3")


def test_old_python_is_refused(project: Path) -> None:
    """Workers need Python 3.10; an older one is refused in words."""
    old = project / "python3.9"
    old.write_text('#!/bin/sh\necho \'{"python": [3, 9], "engine": "1.0"}\'\n')
    old.chmod(0o755)
    assert refusal(project, entry(python=str(old))) == (
        f"{old}, named at contracts/kimi/pipeline.yaml:7, is Python 3.9. Name one of Python 3.10 or newer there."
    )


def test_mistakes_in_users_own_file_are_all_shown(project: Path) -> None:
    """environments.yaml is read strictly: every mistake with its place, at once."""
    own_file(project, "a: {pyhton: /bin/x}\nb: /bin/x\nc: {command: docker exec}\nd: {python: x, command: [y]}\n")
    with pytest.raises(SpecError) as raised:
        found(project, entry())
    assert raised.value.render() == (
        ".eagle_contracts/environments.yaml:1:5: unknown key 'pyhton'\n"
        "    a: {pyhton: /bin/x}\n"
        "        ^\n"
        "  did you mean 'python'?\n"
        ".eagle_contracts/environments.yaml:2:1: 'b' needs one of python and command\n"
        "    b: /bin/x\n"
        "    ^\n"
        "  write `NAME: {python: PATH}` or `NAME: {command: [WORD, ...]}`\n"
        ".eagle_contracts/environments.yaml:3:14: expected a list of words\n"
        "    c: {command: docker exec}\n"
        "                 ^\n"
        "  write `NAME: {python: PATH}` or `NAME: {command: [WORD, ...]}`\n"
        ".eagle_contracts/environments.yaml:4:1: 'd' needs one of python and command\n"
        "    d: {python: x, command: [y]}\n"
        "    ^\n"
        "  write `NAME: {python: PATH}` or `NAME: {command: [WORD, ...]}`"
    )


def test_like_shares_the_parents_lock(project: Path) -> None:
    """An environment that is `like` another needs no lock of its own, over any number of generations."""
    directories = lock_directories(project / "contracts" / "kimi", project)
    parent, child = entry("engine-1.0"), entry("patched", None, like="engine-1.0")
    family = {"engine-1.0": parent, "patched": child}
    grandchild = entry("patched-twice", None, like="patched")
    assert find_lock(grandchild, directories, family) == project / "contracts" / "locks" / "engine-1.0.txt"


def test_pinned_engine_finds_its_lock_under_another_name(project: Path) -> None:
    """An environment called `prod` with a pinned engine finds the lock of that engine and version."""
    directories = lock_directories(project / "contracts" / "kimi", project)
    assert find_lock(entry("prod"), directories) == project / "contracts" / "locks" / "engine-1.0.txt"
    assert find_lock(entry("prod", "engine>=1.0"), directories) is None


def test_lock_that_names_no_file_is_an_error(project: Path) -> None:
    """A mistyped `lock` is an error at the entry, with the nearest name."""
    with pytest.raises(SpecError) as raised:
        found(project, entry(lock="engine-1.O"))
    assert raised.value.render() == (
        "contracts/kimi/pipeline.yaml:7:3: no lock file is called engine-1.O.txt\n  did you mean 'engine-1.0'?"
    )


def test_nearest_lock_wins(project: Path) -> None:
    """A lock beside the pipeline comes before those of the project, those before the ones shipped with the package."""
    beside = project / "contracts" / "kimi" / "locks"
    beside.mkdir()
    (beside / "engine-1.0.txt").write_text("engine==1.0\n")
    directories = lock_directories(project / "contracts" / "kimi", project)
    assert directories == (beside, project / "contracts" / "locks", SHIPPED)
    assert find_lock(entry(), directories) == beside / "engine-1.0.txt"


def test_lock_is_read_strictly(project: Path) -> None:
    """A line that pins nothing, a second pin and torch are errors with their places."""
    lock = project / "contracts" / "locks" / "bad.txt"
    lock.write_text("a==1  # fine\n  b>=2\ntorch==2.13.0\nA==2\n")
    with pytest.raises(SpecError) as raised:
        read_lock(lock)
    assert raised.value.render() == (
        "contracts/locks/bad.txt:2:3: expected NAME==VERSION\n"
        "      b>=2\n"
        "      ^\n"
        "  a lock pins every distribution exactly, one a line, without hashes, markers or options\n"
        "contracts/locks/bad.txt:3:1: torch does not belong in a lock\n"
        "    torch==2.13.0\n"
        "    ^\n"
        "  `eagle-contracts env sync` installs it into the base first\n"
        "contracts/locks/bad.txt:4:1: A is pinned twice, to 1 and 2\n"
        "    A==2\n"
        "    ^\n"
        "  keep one of the two lines"
    )


def test_shipped_locks_agree_where_they_meet() -> None:
    """The locks hold no torch, and the tools of developers never change a distribution of the base."""
    base, dev = read_lock(SHIPPED / "base.txt"), read_lock(SHIPPED / "dev.txt")
    both = base.pins.keys() & dev.pins.keys()
    assert both
    assert {name: base.pins[name] for name in both} == {name: dev.pins[name] for name in both}
    assert read_lock(SHIPPED / "sglang-0.5.9.txt").pins["sglang"] == "0.5.9"
    assert read_lock(SHIPPED / "sglang-0.5.23.txt").pins["sglang"] == "0.5.23"


def test_home_can_be_moved(project: Path) -> None:
    """EAGLE_CONTRACTS_HOME moves the project's own folder; without it the folder is in the root."""
    assert home_folder(project, {}) == project / ".eagle_contracts"
    assert home_folder(project, {"EAGLE_CONTRACTS_HOME": "/elsewhere"}) == Path("/elsewhere")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]\ncontracts_paths = ['checks']\n"),
        ("pyproject.toml", "[tool.pytest]\ncontracts_paths = ['checks']\n"),
        ("pytest.toml", "[pytest]\ncontracts_paths = ['checks']\n"),
        ("pytest.ini", "[pytest]\ncontracts_paths = checks\n"),
        ("tox.ini", "[pytest]\ncontracts_paths =\n    checks\n"),
        ("setup.cfg", "[tool:pytest]\ncontracts_paths = checks\n"),
    ],
)
def test_contracts_are_found_where_pytest_finds_them(tmp_path: Path, file: str, text: str) -> None:
    """The root and the contracts paths are those that pytest reads, from any folder of the project."""
    (tmp_path / file).write_text(text)
    pipeline = tmp_path / "checks" / "kimi" / "pipeline.yaml"
    pipeline.parent.mkdir(parents=True)
    pipeline.write_text("spec: 1\n")
    assert project_root(pipeline.parent) == tmp_path
    assert contracts_paths(tmp_path) == (tmp_path / "checks",)
    assert pipeline_files(tmp_path) == (pipeline,)


def test_contracts_folder_is_the_default(tmp_path: Path) -> None:
    """A project without settings keeps its contracts in `contracts`."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    inside = tmp_path / "src"
    inside.mkdir()
    assert project_root(inside) == tmp_path
    assert contracts_paths(tmp_path) == (tmp_path / "contracts",)


def test_where_nothing_marks_a_project_it_begins_where_the_command_was_started(tmp_path: Path) -> None:
    """As pytest has it for a path further down: an environment that was built there must be found."""
    inside = tmp_path / "contracts" / "mine"
    inside.mkdir(parents=True)
    assert project_root(inside, tmp_path) == tmp_path
    assert project_root(inside, inside) == inside
    assert project_root(inside, tmp_path / "elsewhere") == tmp_path
    assert project_root(inside, Path("/nowhere")) == inside
    assert project_root(inside) == inside
