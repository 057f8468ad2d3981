"""The flags that decide what a run lets pass, each used rightly and wrongly."""

from __future__ import annotations

import pytest

from .conftest import FOLDER, MAIN, Repository, flat, has_our_traceback, shown

PIPELINE = f"{FOLDER}/pipeline.yaml"
CONTROLS = """\
must_catch:
  - {break: {shift: {with.layer_ids: +1}}, as: shifted}
  - {break: {with.layer_ids: [-1, 2, 4]}, in: toy-1, as: embedding_in_slot}
  - {break: {shift: {with.layer_ids: -1}}, in: toy-1, as: shifted}
"""
KNOWN = "known_violation: {as: shifted, engine: toy==1.0, link: https://example.org/1}\n"
SLOTS = ("-k", "slots and toy-1")


@pytest.fixture
def built(repository: Repository) -> Repository:
    """Both environments with an engine called toy, version 1.0."""
    repository.build("toy-1", "toy-2")
    return repository


def test_a_strict_run_fails_where_an_environment_is_missing(repository: Repository) -> None:
    """What is skipped otherwise is a failure that names the environment and what to do."""
    repository.edit(PIPELINE, {"toy-2: {role: serve, like: toy-1}": "gone-1: {role: serve, engine: toy==9.0}"})
    repository.run("-k", "slots").assert_outcomes(passed=1, skipped=1, deselected=4)
    strict = repository.run("-k", "slots", "--contracts-strict")
    strict.assert_outcomes(passed=1, failed=1, deselected=4)
    assert "unavailable(environment): The environment 'gone-1'" in flat(shown(strict))
    assert not has_our_traceback(shown(strict))


def test_a_strict_run_fails_where_a_contract_is_unproven(repository: Repository) -> None:
    """A contract without a control passes with a warning, and fails in a strict run."""
    repository.edit(MAIN, {CONTROLS: ""})
    repository.run(*SLOTS).assert_outcomes(passed=1, warnings=1, deselected=1)
    strict = repository.run(*SLOTS, "--contracts-strict")
    strict.assert_outcomes(failed=1, deselected=1)
    assert "unproven" in shown(strict)
    assert "must_catch" in shown(strict)


def test_a_strict_run_is_strict_in_every_process(repository: Repository) -> None:
    """With pytest-xdist as well."""
    repository.edit(MAIN, {CONTROLS: ""})
    repository.run("-n", "2", "--contracts-strict").assert_outcomes(failed=2)


def test_a_strict_run_lets_a_proven_contract_pass(repository: Repository) -> None:
    """It asks for nothing more than controls and environments."""
    result = repository.run("--contracts-strict", "--contracts-require", "toy-1,pytest")
    result.assert_outcomes(passed=6)
    assert result.ret == 0


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("gpu", "this machine has no GPU"),
        ("no-such-package", "no-such-package is no environment, engine or installed package"),
        ("toy-3", "toy-3 is no environment, engine or installed package; did you mean 'toy-2'?"),
        ("toy-1,gone-1", "toy==9.0 is not installed here"),
        ("gpux,pytest", "gpux is no environment, engine or installed package; did you mean 'gpu'?"),
        ("", "--contracts-require names nothing: write gpu, an environment, an engine or a package"),
        (" , ", "--contracts-require names nothing: write gpu, an environment, an engine or a package"),
        ("pytest>=2,<3", "pytest 9"),
        ("pytest=9", "'=9' is not a version clause"),
    ],
)
def test_a_run_that_lacks_what_it_requires_does_not_begin(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, names: str, problem: str
) -> None:
    """A usage error before anything is collected: a run that skips it all would look like a green one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    repository.edit(PIPELINE, {"toy-2:": "gone-1: {role: trainer, engine: toy==9.0}\n  toy-2:"})
    result = repository.run("--contracts-require", names)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--contracts-require: {problem}" in flat(shown(result)) or problem in flat(shown(result))
    assert repository.noted() == []
    assert not has_our_traceback(shown(result))


def test_a_required_version_is_that_of_the_engine(built: Repository) -> None:
    """A range is held against what the environments have, also where several processes run."""
    built.run("--contracts-require", "toy>=1,<2,pytest>=8", "-n", "2").assert_outcomes(passed=6)
    result = built.run("--contracts-require", "toy>=2", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "no environment has toy>=2 (toy-1 has 1.0, toy-2 has 1.0)" in flat(shown(result))


def test_an_override_of_the_wrong_type_is_one_error(built: Repository) -> None:
    """The position is the flag, the hint is what the flag takes, and it is said once, in every process."""
    for processes in ((), ("-n", "2")):
        result = built.run("--contracts-set", "trained.taps=5", *processes)
        result.assert_outcomes(errors=2)
        text = flat(shown(result))
        assert text.count("--contracts-set trained.taps: a list of taps must say how it counts") == 1
        assert "write {hidden_states: [5]} for h[5], or {layer_outputs: [5]} for h[6]" in text


def test_a_violation_that_is_known_is_expected(built: Repository) -> None:
    """An engine that is not mended yet keeps the run green, and is named."""
    built.edit(MAIN, {"offset: 1": "offset: 0", CONTROLS: KNOWN})
    result = built.run("-rx")
    result.assert_outcomes(xfailed=2)
    assert result.ret == 0
    assert "known violation shifted of toy==1.0 (https://example.org/1)" in shown(result)


def test_a_violation_that_is_known_and_gone_fails(built: Repository) -> None:
    """An entry that is no longer true must go: else it would hide the next fault."""
    built.edit(MAIN, {CONTROLS: KNOWN})
    result = built.run()
    result.assert_outcomes(failed=2)
    assert "known violation shifted of toy==1.0" in shown(result)
    assert f"{MAIN}:9" in shown(result)


def test_another_violation_than_the_known_one_fails(built: Repository) -> None:
    """What is known excuses its own diagnosis alone."""
    built.edit(MAIN, {"offset: 1": "offset: 0", CONTROLS: KNOWN.replace("shifted", "permuted")})
    result = built.run()
    result.assert_outcomes(failed=2)
    assert "\nshifted: every slot holds the state one layer earlier" in shown(result)


def test_a_violation_that_is_known_of_another_version_fails(built: Repository) -> None:
    """It excuses the engine's versions that it names."""
    built.edit(MAIN, {"offset: 1": "offset: 0", CONTROLS: KNOWN.replace("==1.0", ">=2,<3")})
    result = built.run()
    assert result.ret == 1
    assert result.parseoutcomes().get("xfailed", 0) == 0


def test_a_violation_that_is_known_of_no_engine_here_is_refused(built: Repository) -> None:
    """An entry that can never apply is a mistake, with the engines that there are."""
    built.edit(MAIN, {CONTROLS: KNOWN.replace("toy==1.0", "toi==1.0")})
    result = built.run()
    result.assert_outcomes(errors=1)
    assert f"{MAIN}:9:40: no environment of {PIPELINE} has the engine 'toi'" in flat(shown(result))
    assert "did you mean 'toy'?" in shown(result)


def test_a_violation_that_is_known_is_expected_in_every_process(built: Repository) -> None:
    """With pytest-xdist as well."""
    built.edit(MAIN, {"offset: 1": "offset: 0", CONTROLS: KNOWN})
    built.run("-n", "2").assert_outcomes(xfailed=2)


@pytest.mark.parametrize(
    "text",
    ["as: shifted, engine: toy==1.0", "as: shiftd, engine: toy==1.0, link: x", "as: shifted, engine: =1, link: x"],
)
def test_a_known_violation_that_is_written_wrongly_is_refused(built: Repository, text: str) -> None:
    """All three keys are needed, and each is checked."""
    built.edit(MAIN, {CONTROLS: f"known_violation: {{{text}}}\n"})
    result = built.run()
    result.assert_outcomes(errors=1)
    assert f"\n{MAIN}:9:" in shown(result)
    assert not has_our_traceback(shown(result))


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "inf", ""])
def test_a_time_limit_is_a_number_of_seconds(repository: Repository, seconds: str) -> None:
    """Anything else is a usage error that names the flag."""
    result = repository.run(f"--contracts-timeout={seconds}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--contracts-timeout: a number of seconds above 0 is wanted, not '{seconds}'" in flat(shown(result))


@pytest.mark.parametrize(
    "flag", ["--contracts-strict", "--contracts-fresh", "--contracts-require=gpu", "--contracts-timeout=5"]
)
def test_a_flag_without_the_run_that_it_changes_is_refused(repository: Repository, flag: str) -> None:
    """Alone it would do nothing."""
    result = repository.run_plain(flag)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"{flag.partition('=')[0]} changes a contracts run: give --contracts too" in flat(shown(result))


def test_a_fresh_run_observes_again(built: Repository) -> None:
    """Whatever is kept: once more, and then it is kept again."""
    built.run(*SLOTS).assert_outcomes(passed=1, deselected=5)
    built.news()
    built.run(*SLOTS, "--contracts-fresh").assert_outcomes(passed=1, deselected=5)
    assert built.news() == ["gate", "observe [2, 4, 8]", "start"]
    built.run(*SLOTS).assert_outcomes(passed=1, deselected=5)
    assert built.news() == []
