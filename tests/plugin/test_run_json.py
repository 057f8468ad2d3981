"""`eagle-contracts run --json`: a program reads standard output, a person standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from .conftest import FOLDER, MAIN, Repository

IDS = f"{MAIN}::"


def run_json(repository: Repository, *words: str) -> tuple[int, Any, str]:
    """The exit code, standard output as JSON, and standard error."""
    command = [sys.executable, "-m", "eagle_contracts", "run", "--json", "-p", "no:cacheprovider", *words]
    result = repository.pytester.run(*command, timeout=60)
    return int(result.ret), json.loads(result.stdout.str()), result.stderr.str()


def outcomes(found: Any) -> dict[str, str]:
    """Each item's outcome."""
    return {item["id"].removeprefix(IDS): item["outcome"] for item in found["items"]}


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_run_is_one_document_on_standard_output(repository: Repository, processes: tuple[str, ...]) -> None:
    """Items and outcomes are the same with pytest-xdist, and what pytest prints is on standard error."""
    code, found, said = run_json(repository, *processes)
    assert code == found["exit_code"] == 0
    assert set(outcomes(found).values()) == {"passed"}
    assert {item["kind"] for item in found["items"]} == {"promise", "control"}
    first = next(item for item in found["items"] if item["id"] == f"{IDS}slots[toy-1]")
    assert (first["contract"], first["environment"], first["engine"]) == ("sglang_capture_offset", "toy-1", "toy 1.0")
    assert (first["diagnosis"], first["observed"], first["message"]) == (None, "h[3], h[5], h[9]", None)
    assert 0 < first["seconds"] < 60
    assert (found["conclusions"], found["problems"]) == ([], [])  # the toy is no side of a pipeline
    assert "passed in" in said


def test_a_violation_carries_its_diagnosis_and_the_whole_text(repository: Repository) -> None:
    """What the terminal shows is in the item, and its first line alone too."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    code, found, _ = run_json(repository, f"{MAIN}::slots[toy-1]")
    [item] = found["items"]
    assert (code, found["exit_code"], item["outcome"], item["diagnosis"]) == (1, 1, "failed", "shifted")
    assert item["message"].startswith("shifted: every slot holds the state one layer earlier than declared")
    assert "\nslot 0  declared h[3]" in item["text"]


def test_what_could_not_run_is_told_apart(repository: Repository) -> None:
    """An environment that is not there, a file that is wrong, and wrong usage each have a place in the document."""
    repository.edit(f"{FOLDER}/pipeline.yaml", {f"python: {sys.executable}": "python: /no/such/python"})
    repository.write(f"{FOLDER}/wrong.yaml", "spec: 1\n")
    code, found, _ = run_json(repository)
    assert code == 1
    assert outcomes(found)["slots[toy-1]"] == "unavailable"
    assert found["items"][0]["message"].startswith("unavailable(environment): /no/such/python, named at ")
    assert outcomes(found)[f"{FOLDER}/wrong.yaml::specification"] == "error"
    code, found, said = run_json(repository, "--no-such-flag")
    assert (code, found["exit_code"], found["items"]) == (4, 4, [])
    assert "unrecognized arguments: --no-such-flag" in said
