"""Taps: every list says how it counts, and every name means one state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_contracts.spec.document import parse_yaml
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.located import value_at
from eagle_contracts.spec.model import Value
from eagle_contracts.taps import Tap, as_hidden_states, describe, make_tap, parse_tap, parse_taps

LAYERS = 61


def written(text: str) -> Value:
    return value_at(parse_yaml(text, path=Path("pipeline.yaml"), shown="pipeline.yaml"))


def labels(text: str) -> list[str]:
    return [tap.label() for tap in parse_taps(written(text), LAYERS)]


def refused(text: str, one: bool = False) -> str:
    with pytest.raises(SpecError) as caught:
        (parse_tap if one else parse_taps)(written(text), LAYERS)
    return caught.value.render()


def test_both_conventions_name_the_same_states() -> None:
    """The output of layer k is the state that enters layer k + 1."""
    assert parse_taps(written("{hidden_states: [3, 31, 59]}"), LAYERS) == parse_taps(
        written("{layer_outputs: [2, 30, 58]}"), LAYERS
    )
    assert labels("{layer_outputs: [2, 30, 58]}") == ["h[3]", "h[31]", "h[59]"]


def test_names_stand_inside_the_lists() -> None:
    """embed, final and final_normed mean the same in both conventions."""
    expected = ["embedding h[0]", "h[61] (final)", "final_normed"]
    assert labels("{hidden_states: [embed, final, final_normed]}") == expected
    assert labels("{layer_outputs: [embed, final, final_normed]}") == expected


def test_numbers_and_names_of_one_state_are_the_same_tap() -> None:
    """h[0] is the embedding and the last layer's output is the final state, however they are written."""
    assert parse_tap(written("{hidden_states: 0}"), LAYERS) == parse_tap(written("embed"), LAYERS)
    assert parse_tap(written("{layer_outputs: 60}"), LAYERS) == parse_tap(written("final"), LAYERS)


def test_a_tap_knows_its_place_among_the_candidates() -> None:
    """Candidates are h[0] to h[n], then the normed final."""
    taps = parse_taps(written("{hidden_states: [embed, 3, final, final_normed]}"), LAYERS)
    assert [tap.index(LAYERS) for tap in taps] == [0, 3, 61, 62]
    assert taps[1] == Tap(k=3, name="h[3]")
    assert taps[3].k is None


def test_each_tap_knows_where_it_was_written() -> None:
    """A report can point at the one entry of the list that is wrong."""
    taps = parse_taps(written("hidden_states:\n  - 3\n  - 31\n"), LAYERS)
    assert [tap.position.full for tap in taps if tap.position] == ["pipeline.yaml:2:5", "pipeline.yaml:3:5"]


def test_a_bare_list_shows_both_readings() -> None:
    """A list without its convention is two different claims."""
    assert refused("[2, 30, 58]") == (
        "pipeline.yaml:1:1: a list of taps must say how it counts\n"
        "    [2, 30, 58]\n"
        "    ^\n"
        "  write {hidden_states: [2, 30, 58]} for h[2], h[30], h[58], or {layer_outputs: [2, 30, 58]} for\n"
        "  h[3], h[31], h[59]"
    )
    assert "write {hidden_states: [5]} for h[5], or {layer_outputs: [5]} for h[6]" in refused("5")


def test_a_bare_number_shows_both_readings() -> None:
    """One number has the same two meanings as a list; one of them may not exist."""
    assert refused("61", one=True) == (
        "pipeline.yaml:1:1: a tap must say how it counts\n"
        "    61\n"
        "    ^\n"
        "  write {hidden_states: 61} for h[61], or {layer_outputs: 61} for no state"
    )


def test_the_last_hidden_state_means_two_states() -> None:
    """HF norms hidden_states[n], the stream does not."""
    assert refused("{hidden_states: [3, 61]}") == (
        "pipeline.yaml:1:21: hidden_states: [61] means two states of a target with 61 layers\n"
        "    {hidden_states: [3, 61]}\n"
        "                        ^\n"
        "  write final (h[61], before the final norm) or final_normed (what HF puts at 61)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{hidden_states: [62]}", "hidden_states of a target with 61 layers are 0 to 60, not 62"),
        ("{layer_outputs: [61]}", "layer_outputs of a target with 61 layers are 0 to 60, not 61"),
        ("{hidden_states: [true]}", "true is not a state"),
        ("{hidden_states: [3.0]}", "3.0 is not a state"),
        ("{hidden_states: [[3]]}", "[3] is not a state"),
        ("{hidden_states: [null]}", "null is not a state"),
        ("{hidden_states: 3}", "hidden_states takes a list of states, not 3"),
        ("{hidden_states: []}", "hidden_states takes a list of states, not []"),
        ("{hidden_states: [1], layer_outputs: [2]}", "a list of taps is written {hidden_states: ...} or "),
        ("final", "a list of taps is written {hidden_states: ...} or {layer_outputs: ...}, not final"),
        ("true", "a list of taps is written {hidden_states: ...} or {layer_outputs: ...}, not true"),
    ],
)
def test_what_names_no_state_is_refused_with_the_valid_range(text: str, message: str) -> None:
    """Out of range, of another type, or not a list: the message says what would be right."""
    assert message in refused(text)


def test_a_negative_number_names_no_state() -> None:
    """-1 is the story's wrong fix: the message says how the embedding is written."""
    assert refused("{layer_outputs: [-1, 30, 58]}") == (
        "pipeline.yaml:1:18: -1 names no state: counting from the end is not done\n"
        "    {layer_outputs: [-1, 30, 58]}\n"
        "                     ^\n"
        "  for the embedding, write embed; for the last layer's output, write final"
    )


def test_misspelled_words_get_the_nearest_one() -> None:
    """Names and conventions are closed lists."""
    assert "'finale' names no state" in refused("{hidden_states: [finale]}")
    assert "did you mean 'final'?" in refused("finale", one=True)
    assert "unknown convention 'hidden_state'" in refused("{hidden_state: [3]}")
    assert "did you mean 'hidden_states'?" in refused("{hidden_state: [3]}")


def test_one_tap_is_not_a_list() -> None:
    """Where one state is wanted, a list of one is refused too."""
    assert "one state is wanted here, not the list [3]" in refused("{hidden_states: [3]}", one=True)


def test_all_wrong_entries_are_reported_at_once() -> None:
    """A user mends a list in one go."""
    assert refused("{hidden_states: [-1, 3, 99, foo]}").count("pipeline.yaml:1:") == 3


@pytest.mark.parametrize(
    ("k", "words"),
    [
        (0, "h[0] (the embedding)"),
        (3, "h[3] (output of layer 2)"),
        (61, "h[61] (output of layer 60, before the final norm)"),
    ],
)
def test_a_state_is_described_by_the_layer_that_wrote_it(k: int, words: str) -> None:
    """People know layers; the stream's index is one more."""
    assert describe(k, LAYERS) == words


@given(
    st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.none() | st.integers(0, n), min_size=1)))
)
def test_what_is_written_reads_back(case: tuple[int, list[int | None]]) -> None:
    """The text that a remedy prints means the taps it was made from."""
    layers, states = case
    taps = tuple(make_tap(k, layers) for k in states)
    assert parse_taps(written(as_hidden_states(taps, layers)), layers) == taps


def test_the_text_is_what_a_user_would_write() -> None:
    """Numbers below n, names where a number would mean two states."""
    taps = [make_tap(k, LAYERS) for k in (1, 30, 58, 61, None)]
    assert as_hidden_states(taps, LAYERS) == "hidden_states: [1, 30, 58, final, final_normed]"
