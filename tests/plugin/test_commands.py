"""An engine that does not start, and a config that only the engine refuses: where that was written, and what to do."""

from __future__ import annotations

import sys

import pytest

from .conftest import FOLDER, HOME, MAIN, Repository, flat, has_our_traceback, shown

PIPELINE = f"{FOLDER}/pipeline.yaml"
ONE = ("-k", "slots and toy-1")
PYTHON = f"python: {sys.executable}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("[no-such-docker, exec]", "no-such-docker cannot be started: No such file or directory"),
        ("[sh, -c, 'exit 7']", "the worker ended by exit status 7"),
        (
            f"[sh, -c, 'echo Welcome; exec {sys.executable} \"$@\"', sh]",
            "it answered 'Welcome', which is not what a worker answers",
        ),
    ],
)
def test_a_command_that_starts_no_worker_is_named(repository: Repository, command: str, said: str) -> None:
    """The sentence of the system, the line that names the command, and a way to try it."""
    repository.edit(PIPELINE, {PYTHON: f"command: {command}"})
    result = repository.run(*ONE)
    result.assert_outcomes(errors=1, deselected=5)
    text = flat(shown(result))
    assert said in text
    assert f"started by the command at {PIPELINE}:6" in text
    assert "it must run a Python on what it reads; try it: " in text
    assert not has_our_traceback(shown(result))


def test_a_command_of_ones_own_file_is_named_there(repository: Repository) -> None:
    """The place is the file that has the word, not the pipeline."""
    repository.write(f"{HOME}/environments.yaml", "toy-2:\n  python: python3\ntoy-1:\n  command: [no-such-docker]\n")
    text = flat(shown(repository.run(*ONE)))
    assert f"started by the command at {HOME}/environments.yaml:3" in text
    assert "try it: no-such-docker -c 'print(1)'" in text


@pytest.mark.parametrize(
    ("python", "said"),
    [("/no/such/python", "does not exist"), ("/tmp", "is a folder"), ("/bin/true", "does not run as a Python")],
)
def test_an_interpreter_that_is_none_is_named(repository: Repository, python: str, said: str) -> None:
    """Its items are skipped with the place, and the run is not green."""
    repository.edit(PIPELINE, {PYTHON: f"python: {python}"})
    result = repository.run("-rs")
    assert result.ret == 1
    assert f"{python}, named at {PIPELINE}:6, {said}" in flat(shown(result))


def test_a_config_that_the_engine_refuses_is_named_with_its_line(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What transformers says is kept, its advice on its own installation is not, and the key is named."""
    said = (
        "The checkpoint you are trying to load has model type `toy` but Transformers does not recognize this "
        "architecture. This could be because of an issue with the checkpoint, or because your version is out of date."
    )
    monkeypatch.setenv("TOY_REFUSES", said)
    config = '{"architectures": ["ToyForCausalLM"],\n "model_type": "toyish", "hidden_size": 64,\n "num_hidden_layers"'
    repository.write(f"{FOLDER}/target.config.json", config + ": 10}\n")
    monkeypatch.setenv("TOY_REFUSES", said.replace("`toy`", "`toyish`"))
    result = repository.run(*ONE)
    result.assert_outcomes(errors=1, deselected=5)
    text = flat(shown(result))
    assert "has model type `toyish` but Transformers does not recognize this architecture." in text
    assert "version is out of date" not in text
    assert "Last lines printed" not in text
    assert f"the target's config has that at {FOLDER}/target.config.json:2:2: " in text
    assert "correct it there, or run an engine that knows it; toy-1 does not" in text


def test_a_config_without_a_twin_is_named_with_its_line(repository: Repository) -> None:
    """The key of the config that no twin can be made from, once; the contracts refer to it."""
    config = '{"architectures": ["ToyForCausalLM"], "model_type": "toy",\n "hidden_size": 64,\n "num_hidden_layers": '
    repository.write(f"{FOLDER}/target.config.json", f'{config}"ten"}}\n')
    result = repository.run()
    result.assert_outcomes(errors=2)
    text = shown(result)
    place = f"{FOLDER}/target.config.json:3:2"
    assert f"\n{place}: no twin can be made from target.config.json: num_hidden_layers" in text
    assert f"{MAIN}:1:1: not checked: {place} is wrong" in flat(text)
