"""A repository with tests and YAML files of its own is not disturbed."""

from __future__ import annotations

import pytest

from .conftest import FOLDER, MAIN, Repository, shown

HEAVY = ("torch", "jsonschema", "yaml", "eagle_contracts.session")
TELL_IMPORTS = f"""
import sys

def pytest_unconfigure(config):
    print("imported:", *[name for name in {HEAVY} if name in sys.modules])
"""
OWN_CONFTEST = """
import pytest

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".yaml" and file_path.parent.name == "cases":
        return Cases.from_parent(parent, path=file_path)

class Cases(pytest.File):
    def collect(self):
        yield Case.from_parent(self, name=self.path.stem)

class Case(pytest.Item):
    def runtest(self):
        pass

@pytest.fixture(autouse=True)
def own():
    return 1
"""


def imported(result: pytest.RunResult) -> str:
    return next(line for line in result.outlines if line.startswith("imported:"))


def test_without_the_flag_yaml_is_left_alone(repository: Repository) -> None:
    """No contract is collected and nothing heavy imported, even where pytest walks through the contracts."""
    repository.write("conftest.py", TELL_IMPORTS)
    repository.write("test_own.py", "def test_own():\n    pass\n")
    result = repository.run_plain("-s", ".")
    result.assert_outcomes(passed=1)
    assert imported(result) == "imported:"


def test_with_the_flag_the_same_conftest_sees_imports(repository: Repository) -> None:
    """The test above can fail: a contracts run imports a YAML reader, and still no torch."""
    repository.write("conftest.py", TELL_IMPORTS)
    result = repository.run("-s")
    result.assert_outcomes(passed=6)
    assert imported(result) == "imported: jsonschema yaml eagle_contracts.session"


def test_own_testpaths_do_not_decide_what_is_a_contract(repository: Repository) -> None:
    """`--contracts` alone runs the contracts, not the repository's tests; a plain run is the repository's own."""
    repository.write("pytest.ini", "[pytest]\ntestpaths = checks\n")
    repository.write("checks/test_own.py", "def test_own(own):\n    assert own == 1\n")
    repository.write("checks/cases/one.yaml", "any: thing\n")
    repository.write("conftest.py", OWN_CONFTEST)
    repository.run_plain().assert_outcomes(passed=2)
    repository.run().assert_outcomes(passed=6)
    repository.run("checks", "contracts").assert_outcomes(passed=8)


def test_contracts_live_where_the_ini_says(repository: Repository) -> None:
    """`contracts_paths` moves the contracts, also with processes of pytest-xdist."""
    (repository.root / "contracts").rename(repository.root / "promises")
    repository.write("pytest.ini", "[pytest]\ncontracts_paths = promises\n")
    repository.run("-k", "toy-2", "-n", "1").assert_outcomes(passed=2)


def test_no_contracts_at_all_is_a_usage_error(repository: Repository) -> None:
    """Without contracts the flag says where it looked and what to do."""
    (repository.root / "contracts").rename(repository.root / "promises")
    result = repository.run()
    assert result.ret == 4
    assert (
        "--contracts found no contracts: there is no contracts (ini value contracts_paths); name a folder on the "
        "command line, or write a first contract there" in shown(result)
    )


def test_from_a_subfolder_that_folder_is_run(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rootdir above, only the contracts below the current folder run; places are shown from there."""
    other = repository.root / "contracts/other"
    other.mkdir()
    for name in ("target.config.json", "draft.config.json", "pipeline.yaml", "sglang_capture_offset.yaml"):
        (other / name).write_text((repository.root / FOLDER / name).read_text())
    monkeypatch.chdir(other)
    result = repository.run("--contracts-set", "draft.layer_ids=[3,5,9]", "-k", "toy-1")
    result.assert_outcomes(failed=1)
    assert f"rootdir: {repository.root}" in result.outlines
    assert "slot 0  declared h[3] (pipeline.yaml:4), holds h[4]" in result.outlines


def test_a_folder_named_outside_the_contracts_path_works(repository: Repository) -> None:
    """YAML beside a pipeline is a contract wherever it is; YAML elsewhere stays alone."""
    (repository.root / "contracts").rename(repository.root / "elsewhere")
    repository.write("deploy/values.yaml", "replicas: 2\n")
    repository.run("elsewhere", "deploy", "-k", "toy-2").assert_outcomes(passed=2)


def test_a_fixture_for_every_test_leaves_contracts_alone(repository: Repository) -> None:
    """An autouse fixture of the repository is for functions; contracts run beside it."""
    repository.write("conftest.py", OWN_CONFTEST)
    repository.run(MAIN, "-k", "toy-2").assert_outcomes(passed=2)
