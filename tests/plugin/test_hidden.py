"""No selection hides a mistake: a run that leaves a wrong file out is never green."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import CAPTURE, FOLDER, HOME, MAIN, Repository, has_our_traceback, shown

WRONG = f"{FOLDER}/wrong.yaml"
BROKEN = CAPTURE.replace("why: The", "whi: The")
SAID = f"{WRONG}:2:1: unknown key 'whi'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "toy-2 and slots"),
        ("-m", "control"),
        ("--deselect", f"{WRONG}::specification"),
        ("-k", "toy-2 and slots", "-n", "2"),
    ],
)
def test_a_wrong_file_is_in_every_selection(repository: Repository, arguments: tuple[str, ...]) -> None:
    """As with a module that fails to import, neither -k nor -m nor --deselect makes the run green."""
    repository.write(WRONG, BROKEN)
    result = repository.run(*arguments)
    assert result.ret == 1
    assert result.parseoutcomes()["errors"] == 1
    assert SAID in result.stdout.str()
    assert not has_our_traceback(result.stdout.str())


def test_listing_a_wrong_file_fails_and_says_what_is_wrong(repository: Repository) -> None:
    """`--collect-only` runs nothing, so the mistakes are said after the list."""
    repository.write(WRONG, BROKEN)
    result = repository.run("--collect-only", "-q")
    assert result.ret == 1
    assert f"{WRONG}::specification" in result.outlines
    assert SAID in result.stdout.str()


def test_an_id_in_a_wrong_file_ends_in_the_mistake(repository: Repository) -> None:
    """Whoever asks for one item of a wrong file reads what is wrong, not that there is no such item."""
    repository.write(WRONG, BROKEN)
    result = repository.run(f"{WRONG}::slots[toy-1]")
    result.assert_outcomes(errors=1)
    assert "ERROR at setup of wrong slots[toy-1]" in result.stdout.str()
    assert SAID in result.stdout.str()
    assert "not found" not in shown(result)


def test_a_mistake_in_environments_yaml_is_said_whatever_is_selected(repository: Repository) -> None:
    """A user's own file concerns every pipeline; it is told where it is wrong, and what it may hold if it is empty."""
    repository.write(f"{HOME}/environments.yaml", "toy-1: {pyton: /usr/bin/python3}\n")
    result = repository.run("-k", "toy-2")
    assert result.ret == 1
    assert f"{HOME}/environments.yaml:1:9: unknown key 'pyton'\n" in result.stdout.str()
    repository.write(f"{HOME}/environments.yaml", "# nothing yet\n")
    assert (
        f"{HOME}/environments.yaml:1:1: is empty\n    # nothing yet\n    ^\n"
        "  write `NAME: {python: PATH}` or `NAME: {command: [WORD, ...]}`\n" in repository.run().stdout.str()
    )


def test_a_mistake_of_a_pipeline_is_said_once(repository: Repository) -> None:
    """The first item tells it whole; the others say that they wait for it, and what is wrong with themselves."""
    repository.edit(f"{FOLDER}/pipeline.yaml", {"role: serve, like": "roll: serve, like"})
    repository.write(WRONG, BROKEN)
    result = repository.run()
    result.assert_outcomes(errors=3)
    text = result.stdout.str()
    assert text.count("contracts/toy/pipeline.yaml:7:11: unknown key 'roll'\n      toy-2") == 1
    assert (
        f"\n{MAIN}:1:1: not checked: {FOLDER}/pipeline.yaml:7:3 is wrong\n"
        f"  {FOLDER}/pipeline.yaml::specification says what is wrong there\n" in text
    )
    assert f"\n{SAID}" in text


def test_warnings_as_errors_do_not_hide_a_violation(repository: Repository) -> None:
    """A contract without controls that is violated fails as violated, not for having no controls."""
    repository.write(MAIN, CAPTURE.partition("must_catch")[0].replace("offset: 1", "offset: 0"))
    result = repository.run("-W", "error", "-k", "toy-1")
    result.assert_outcomes(failed=1)
    assert "\nshifted: every slot holds the state one layer earlier than declared" in result.stdout.str()


@pytest.mark.parametrize(
    ("mark", "hint"),
    [
        ("skip", "a contract that never runs looks like a green one"),
        ("xfail", "a violation that is expected is written known_violation"),
        ("control", "the items of must_catch have it already"),
    ],
)
def test_a_mark_that_would_hide_a_contract_is_refused(repository: Repository, mark: str, hint: str) -> None:
    """A skipped contract would be silent, and an expected failure would swallow every other one."""
    repository.edit(MAIN, {"in: serve\n": f"in: serve\nmarks: [{mark}]\n"})
    result = repository.run()
    result.assert_outcomes(errors=1)
    assert f"{MAIN}:6:9: the mark '{mark}' cannot stand here\n" in result.stdout.str()
    assert hint in result.stdout.str()


def test_a_link_back_to_its_folder_is_not_entered(repository: Repository) -> None:
    """Each contract is run once, however a folder is linked, and also where the link leads over another folder."""
    (repository.root / FOLDER / "again").symlink_to(repository.root / FOLDER)
    repository.write("contracts/other/readme.txt", "")
    (repository.root / "contracts/other/all").symlink_to(repository.root / "contracts")
    repository.run("--co", "-q").stdout.fnmatch_lines(["6 tests collected*"])


def test_what_only_looks_like_a_contract_is_an_error(repository: Repository) -> None:
    """A link to nothing beside a pipeline is passed by by pytest, and named by us."""
    Path(repository.root / WRONG).symlink_to("nowhere.yaml")
    result = repository.run("-k", "toy-2 and slots")
    assert result.ret == 1
    assert f"{WRONG}:1:1: is no file: a contract cannot be read from it" in result.stdout.str()


@pytest.mark.parametrize("named", [MAIN, f"{MAIN}::slots[toy-1]", FOLDER])
def test_a_contract_without_the_flag_is_hinted_at(repository: Repository, named: str) -> None:
    """Whoever names a contract and forgets the flag reads which flag it is."""
    result = repository.run_plain(named)
    assert result.ret in (4, 5)
    hint = f"{named.partition('::')[0]} holds contracts, which are run with --contracts: pytest --contracts '{named}'"
    assert hint in result.outlines


def test_other_yaml_gets_no_hint(repository: Repository) -> None:
    """A YAML file of somebody else's is none of ours."""
    repository.write("data/some.yaml", "a: 1\n")
    assert "--contracts" not in shown(repository.run_plain("data/some.yaml"))
