"""Contracts are selected like any test."""

from __future__ import annotations

from .conftest import MAIN, Repository, shown

IDS = [
    f"{MAIN}::slots[toy-1]",
    f"{MAIN}::slots[toy-2]",
    f"{MAIN}::catches-shifted[toy-1]",
    f"{MAIN}::catches-shifted[toy-2]",
    f"{MAIN}::catches-embedding_in_slot[toy-1]",
    f"{MAIN}::catches-shifted-2[toy-1]",
]


def test_a_right_repository_is_green(repository: Repository) -> None:
    """Every promise and every control is an item; environments with one interpreter share an engine."""
    result = repository.run("-v", "-W", "error", "--strict-markers")
    result.assert_outcomes(passed=6)
    assert result.ret == 0
    assert "contracts: starting toy-1, toy-2 (an import takes several seconds)" in result.outlines
    assert repository.starts() == 1
    assert sorted(repository.noted()) == [
        "gate",
        "observe [-1, 2, 4]",
        "observe [1, 3, 7]",
        "observe [2, 4, 8]",
        "observe [3, 5, 9]",
        "start",
    ]


def test_collecting_starts_no_engine(repository: Repository) -> None:
    """`--co` lists readable, stable ids, equal names told apart by a number, and exits 0."""
    result = repository.run("--co", "-q")
    assert result.ret == 0
    assert result.outlines[:6] == IDS
    assert repository.noted() == []


def test_one_case_is_selected_by_its_id(repository: Repository) -> None:
    """A full id runs that case alone, and only what it observes."""
    result = repository.run("-v", f"{MAIN}::catches-shifted-2[toy-1]")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"{MAIN}::catches-shifted-2[[]toy-1[]] PASSED*"])
    assert repository.noted() == ["start", "gate", "observe [1, 3, 7]"]


def test_an_unknown_id_is_told(repository: Repository) -> None:
    """An id that is not there is pytest's usage error, and nothing starts."""
    result = repository.run(f"{MAIN}::slots[toy-9]")
    assert result.ret == 4
    assert "ERROR: not found: " in shown(result)
    assert f"{MAIN}::slots" in shown(result)
    assert repository.noted() == []


def test_words_and_marks_select(repository: Repository) -> None:
    """`-k` sees names, `-m` sees `contract`, `control` and the file's own marks."""
    repository.write("pytest.ini", "[pytest]\nmarkers = nightly: not on every push\n")
    repository.edit(MAIN, {"in: serve\n": "in: serve\nmarks: [nightly]\n"})
    selected = {
        ("-k", "toy-2"): [IDS[1], IDS[3]],
        ("-m", "control"): IDS[2:],
        ("-m", "contract and nightly and not control"): IDS[:2],
    }
    for arguments, ids in selected.items():
        result = repository.run("--co", "-q", "--strict-markers", *arguments)
        assert [line for line in result.outlines if "::" in line] == ids, arguments


def test_last_failures_run_again(repository: Repository) -> None:
    """`--lf` runs what failed, violated or in error, and nothing else."""
    repository.write_faulty("raise")
    repository.edit(MAIN, {"as: embedding_in_slot": "as: permuted"})
    repository.run().assert_outcomes(passed=5, failed=1, errors=1)
    again = repository.run("--lf", "-v")
    again.assert_outcomes(failed=1, errors=1)
    again.stdout.fnmatch_lines(["*faulty.yaml::slots[[]toy-1[]] ERROR*", "*::catches-permuted[[]toy-1[]] FAILED*"])


def test_the_first_failure_stops(repository: Repository) -> None:
    """`-x` stops after the first failure."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    result = repository.run("-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_two_processes_share_the_work(repository: Repository) -> None:
    """With pytest-xdist nothing is lost, each process has its workers, and the checks of all processes count."""
    repository.edit(MAIN, {"as: embedding_in_slot": "as: permuted"})
    result = repository.run("-n", "2", "-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*FAILED*::catches-permuted[[]toy-1[]]*"])
    assert 1 <= repository.starts() <= 2
    junit = (repository.root / "junit.xml").read_text()
    assert junit.count('<property name="engine" value="toy 1.0"') == 6
    assert 'name="catches-permuted[toy-1]"' in junit


def test_a_violation_reaches_junit_with_its_properties(repository: Repository) -> None:
    """JUnit gets the contract, the environment, the diagnosis and what was observed, as properties of each case."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    repository.run("--junitxml=junit.xml", f"{MAIN}::slots[toy-2]").assert_outcomes(failed=1)
    junit = (repository.root / "junit.xml").read_text()
    for name, value in {
        "contract": "sglang_capture_offset",
        "environment": "toy-2",
        "engine": "toy 1.0",
        "diagnosis": "shifted",
        "observed": "h[2], h[4], h[8]",
    }.items():
        assert f'<property name="{name}" value="{value}" />' in junit
    assert 'failure message="shifted: ' in junit


def test_without_the_plugin_there_is_no_option(repository: Repository) -> None:
    """`-p no:eagle_contracts.plugin` leaves pytest as it was."""
    result = repository.run("-p", "no:eagle_contracts.plugin")
    assert result.ret == 4
    assert "unrecognized arguments: --contracts" in shown(result)


def test_naming_the_plugin_twice_is_no_clash(repository: Repository) -> None:
    """`-p eagle_contracts.plugin` is what pytest has loaded already."""
    repository.run("-p", "eagle_contracts.plugin", "--co").assert_outcomes()
