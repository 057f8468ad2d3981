"""`--contracts-set KEY=VALUE` on the command line."""

from __future__ import annotations

import pytest

from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.model import Ref
from eagle_contracts.spec.overrides import parse_overrides


def refused(*texts: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_overrides(list(texts))
    return caught.value.render()


def test_values_are_yaml() -> None:
    """What stands in a file may stand on the command line, with or without blanks."""
    values = parse_overrides(["draft.layer_ids=[-1,2, 30]", "trained.taps={hidden_states: [0,3,31]}"])
    assert values["draft.layer_ids"].data == [-1, 2, 30]
    assert values["trained.taps"].data == {"hidden_states": [0, 3, 31]}
    assert parse_overrides([]) == {}


def test_positions_name_the_option() -> None:
    """A report says where an overridden value came from."""
    value = parse_overrides(["trained.taps={hidden_states: [0,3,31]}"])["trained.taps"]
    assert str(value.position) == "--contracts-set trained.taps"
    assert str(value.at("hidden_states", 1)) == "--contracts-set trained.taps"
    assert value.at("hidden_states", 1).column == 33


def test_a_reference_may_stand_on_the_command_line() -> None:
    """Where an environment variable holds the value."""
    value = parse_overrides(["trained.final=$env.FINAL"])["trained.final"]
    assert value.data == Ref(name="env.FINAL", position=value.position)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "draft.layer_id=[1]",
            "--contracts-set: unknown key 'draft.layer_id'\n    draft.layer_id=[1]\n    ^\n"
            "  did you mean 'draft.layer_ids'?",
        ),
        (
            "xyz=1",
            "--contracts-set: unknown key 'xyz'\n    xyz=1\n    ^\n"
            "  keys: trained.taps, trained.final, draft.layer_ids",
        ),
        (
            "draft.layer_ids",
            "--contracts-set: 'draft.layer_ids' is not KEY=VALUE\n    draft.layer_ids\n    ^\n"
            "  write draft.layer_ids=[2,30,58]",
        ),
        (
            "draft.layer_ids= ",
            "--contracts-set draft.layer_ids: has no value\n    draft.layer_ids=\n    ^\n  write draft.layer_ids=VALUE",
        ),
        (
            "draft.layer_ids=[1, 2",
            "--contracts-set draft.layer_ids: is not YAML: did not find expected ',' or ']', "
            "while parsing a flow sequence\n    draft.layer_ids=[1, 2\n",
        ),
        (
            "draft.layer_ids=!x [1]",
            "--contracts-set draft.layer_ids: the tag !x is not allowed\n    draft.layer_ids=!x [1]\n"
            "                    ^\n",
        ),
        (
            "trained.taps=$trained.tap",
            "--contracts-set trained.taps: the reference '$trained.tap' names nothing\n"
            "    trained.taps=$trained.tap\n                 ^\n  did you mean '$trained.taps'?",
        ),
        (
            "draft.layer_ids=2, 18,33",
            "--contracts-set draft.layer_ids: draft.layer_ids must be a list of whole numbers, not the text '2, "
            "18,33'\n    draft.layer_ids=2, 18,33\n                    ^\n  write 'draft.layer_ids=[2,18,33]'",
        ),
        (
            "draft.layer_ids=[2,x]",
            "--contracts-set draft.layer_ids: draft.layer_ids must be a list of whole numbers, not the text 'x'\n"
            "    draft.layer_ids=[2,x]\n",
        ),
        ("draft.layer_ids=\udcff", "--contracts-set draft.layer_ids: is not valid text"),
    ],
)
def test_a_mistake_is_shown_under_the_text_given(text: str, message: str) -> None:
    """The same shape as in a file: place, text, caret, next step."""
    assert refused(text).startswith(message)


def test_a_key_given_twice_is_refused() -> None:
    """Neither of two values is silently dropped."""
    assert refused("draft.layer_ids=[1]", "draft.layer_ids=[2]") == (
        "--contracts-set draft.layer_ids: 'draft.layer_ids' is set twice\n    draft.layer_ids=[2]\n"
        "                    ^\n  give it once"
    )


def test_all_wrong_texts_are_reported_at_once() -> None:
    """One run shows every mistake of the command line."""
    assert refused("a=1", "draft.layer_ids=[1]", "b").count("--contracts-set: ") == 2
