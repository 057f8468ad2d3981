"""What the package says of itself in pyproject.toml, and what is true."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

import conftest
from tests.compat import matrix, project, rooms

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "eagle_contracts"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORT_NAMES = {"PyYAML": "yaml"}
EXTRAS = {"torch", "safetensors"}
ENGINES = {"sglang", "transformers", "triton", "array"}


def imported() -> set[str]:
    """The top-level names that the package imports, but its own and the standard library's."""
    names = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"eagle_contracts"}


def test_what_is_declared_is_what_is_imported() -> None:
    """Every dependency is used, and everything used is declared, as an extra, or belongs to an engine."""
    declared = {requirement.partition(">")[0] for requirement in PYPROJECT["dependencies"]}
    assert {IMPORT_NAMES.get(name, name) for name in declared} == imported() - EXTRAS - ENGINES
    assert set(PYPROJECT["optional-dependencies"]["torch"]) == EXTRAS


def test_the_pythons_it_names_are_those_of_the_matrix() -> None:
    """A version in the classifiers is one that `make compat` runs, and the oldest is the one required."""
    named = [
        c.rpartition(" ")[2] for c in PYPROJECT["classifiers"] if c.startswith("Programming Language :: Python :: 3.")
    ]
    assert tuple(named) == matrix.PYTHONS
    assert PYPROJECT["requires-python"] == f">={matrix.PYTHONS[0]}"


def item(outcome: str, first: str = "") -> project.Item:
    return project.Item(outcome=outcome, first=first, text="")


def test_a_cell_that_differs_is_told() -> None:
    """An item that is missing, unknown, of another outcome or with another message is a difference; nothing else is."""
    wanted = {"a": ("passed", ""), "b": ("error", "error(died)")}
    assert matrix.compared({"a": item("passed"), "b": item("error", "error(died): it")}, wanted) == []
    assert matrix.compared({"b": item("failure", "error(died): it"), "c": item("passed")}, wanted) == [
        "a did not run",
        "c ran, and nobody knows it",
        "b is failure (error(died): it), and not error (error(died))",
    ]
    assert matrix.compared({"a": item("passed"), "b": item("error", "other")}, wanted) == [
        "b is error (other), and not error (error(died))"
    ]
    assert matrix.other_texts({"a": "one"}, {"a": "two"}) == ["a says something else than in the first cell"]


def test_a_python_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A cell without its interpreter is no cell that agrees: it is named, and counted as not run."""
    monkeypatch.setattr(rooms, "interpreter", lambda version: None)
    monkeypatch.setattr(rooms, "build_wheel", lambda folder: folder)
    assert matrix.run(matrix.reduced_cells()[2:], tmp_path) == (0, ["3.13"])
    assert "NOT RUN  Python 3.13, pytest 9.2, none: no Python 3.13 on PATH or among pyenv's" in capsys.readouterr().out


def test_another_checkout_than_this_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header tells where the package comes from only where that is not this repository."""
    monkeypatch.setattr(conftest, "HERE", PACKAGE.parent)
    assert conftest.pytest_report_header() is None
    monkeypatch.setattr(conftest, "HERE", ROOT / "tests")
    header = conftest.pytest_report_header()
    assert header is not None
    assert header.startswith(f"eagle-contracts: what runs is {PACKAGE}, not this checkout")
