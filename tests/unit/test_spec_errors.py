"""How a mistake is shown."""

from __future__ import annotations

from eagle_contracts.spec.errors import SpecError, SpecIssue, nearest, suggest
from eagle_contracts.spec.position import Position


def test_an_issue_shows_position_line_caret_and_hint() -> None:
    """One look says where and what to do."""
    position = Position(path="c.yaml", line=3, column=5, text="in: sevre\r\n")
    issue = SpecIssue(position=position, message="unknown role", hint="did you mean 'serve'?")
    assert issue.render() == "c.yaml:3:5: unknown role\n    in: sevre\n        ^\n  did you mean 'serve'?"


def test_a_given_source_line_comes_before_the_positions_own() -> None:
    """Whoever makes the issue may know the line better."""
    position = Position(path="c.yaml", line=1, column=1, text="old")
    assert SpecIssue(position=position, message="m", source_line="new").render() == "c.yaml:1:1: m\n    new\n    ^"


def test_a_value_from_the_command_line_names_its_option() -> None:
    """There is no file to point at."""
    position = Position(path="-", line=1, column=3, origin="--contracts-set trained.taps", text="trained.taps=x")
    assert str(position) == "--contracts-set trained.taps"
    assert SpecIssue(position=position, message="m").render().startswith("--contracts-set trained.taps: m\n")


def test_long_lines_are_cut_around_the_caret() -> None:
    """The caret stays under its place and the line within 100 columns."""
    position = Position(path="c.yaml", line=1, column=301, text="a" * 300 + "X" + "b" * 300)
    _, source, caret = SpecIssue(position=position, message="m").render().splitlines()
    assert source[caret.index("^")] == "X"
    assert len(source) <= 100


def test_control_characters_never_reach_the_terminal() -> None:
    """A file cannot colour or clear somebody's screen."""
    position = Position(path="c.yaml", line=1, column=1, text="a\x1b[2Jb\tc")
    assert SpecIssue(position=position, message="m").render() == "c.yaml:1:1: m\n    a [2Jb c\n    ^"


def test_long_hints_are_wrapped() -> None:
    """A list of all valid words fits 100 columns."""
    position = Position(path="c.yaml", line=1, column=1)
    hint = ", ".join(["some_long_word"] * 20)
    assert max(len(line) for line in SpecIssue(position=position, message="m", hint=hint).render().splitlines()) <= 100


def test_an_error_shows_all_its_issues() -> None:
    """str() and render() agree, so that no caller shows less."""
    position = Position(path="c.yaml", line=1, column=1)
    error = SpecError([SpecIssue(position=position, message="one"), SpecIssue(position=position, message="two")])
    assert error.render() == str(error) == "c.yaml:1:1: one\nc.yaml:1:1: two"


def test_the_nearest_word_is_close_or_none() -> None:
    """A suggestion that is not close is worse than the list."""
    assert nearest("shfited", ["shifted", "permuted"]) == "shifted"
    assert nearest("xyz", ["shifted", "permuted"]) is None
    assert suggest("xyz", ["shifted", "permuted"]) == "valid: shifted, permuted"
    assert suggest("xyz", []) is None
