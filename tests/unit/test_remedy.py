"""What to write instead, and whether it is the claim that is wrong: with engines that are functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagle_contracts.claim import doubt, in_layer_order, other_reading
from eagle_contracts.engines import Unrunnable
from eagle_contracts.observation import Observation
from eagle_contracts.plan import Case
from eagle_contracts.remedy import MOST_TRIES, candidates, captures, search
from eagle_contracts.session import Session
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.subjects.registry import subject_named
from eagle_contracts.taps import Tap, make_tap, parse_taps

from .observations import REFUSED, identified, observation, value

ROOT = Path(__file__).resolve().parents[2]
KIMI = ROOT / "contracts" / "kimi_k25"


def capture(*held: int | str | None) -> Observation:
    slots = [identified(one) for one in held]
    return observation(slots=slots, rows=32, total_width=64 * len(held), width=64)


def taps(*ks: int | None) -> list[Tap]:
    return [make_tap(k, 61) for k in ks]


def engine(offset: int) -> Callable[[list[int]], Observation | None]:
    """An engine that reads an id as the state that many layers later, in layer order."""
    return lambda ids: capture(*sorted(i + offset for i in ids))


def test_candidates_come_with_the_likely_ones_first() -> None:
    """Sorted lists of three offsets, then their rotations, then all other orders."""
    lists = list(candidates([59, 3, 31]))
    assert lists[:3] == [[3, 31, 59], [2, 30, 58], [4, 32, 60]]
    assert lists[3:5] == [[31, 59, 3], [59, 3, 31]]
    assert len(lists) == 18 == len({tuple(ids) for ids in lists})


@pytest.mark.parametrize(("offset", "ids", "tried"), [(0, [3, 31, 59], 1), (1, [2, 30, 58], 2), (-1, [4, 32, 60], 3)])
def test_the_list_that_works_is_found(offset: int, ids: list[int], tried: int) -> None:
    """No rule is known: lists are run until one gives the states."""
    assert search(taps(3, 31, 59), engine(offset)) == (ids, tried)


def test_an_engine_that_looks_at_the_first_id() -> None:
    """No sorted list works, a rotated one does."""

    def run(ids: list[int]) -> Observation | None:
        return capture(1, 30, 58) if ids == [30, 58, 1] else capture(2, 31, 59)

    assert search(taps(1, 30, 58), run) == ([30, 58, 1], 4)


def test_lists_that_are_known_to_fail_are_not_run() -> None:
    """The list that failed is not tried again."""
    run: list[list[int]] = []

    def refuse(ids: list[int]) -> Observation | None:
        run.append(ids)
        return None

    assert search(taps(3, 31, 59), refuse, skip=[[3, 31, 59]]) == (None, MOST_TRIES)
    assert [3, 31, 59] not in run
    assert len(run) == MOST_TRIES == len({tuple(ids) for ids in run})


def test_a_state_that_no_id_names_is_not_searched_for() -> None:
    """The normed final state is no layer's."""
    assert search(taps(3, None), engine(0)) == (None, 0)


@pytest.mark.parametrize(
    ("seen", "right"),
    [
        (capture(3, 31), True),
        (capture(3, 30), False),
        (capture(3), False),
        (capture(3, None), False),
        (capture(3, "mlp output"), False),
        (observation(refused=REFUSED), False),
        (None, False),
    ],
)
def test_only_identified_states_count(seen: Observation | None, right: bool) -> None:
    """A list is advised only if each of its slots was found to hold what is wanted."""
    assert captures(seen, [3, 31]) is right


def doubted(shown: Mapping[str, Observation | Unrunnable], claimed: Sequence[int | None] = (3, 31, 59)) -> Any:
    """Ask for doubt with a session that shows what is given for each environment."""
    pipeline = load_pipeline(KIMI / "pipeline.yaml", "contracts/kimi_k25/pipeline.yaml")
    contract = load_contract(KIMI / "sglang_capture_offset.yaml", pipeline, "contracts/kimi_k25/offset.yaml")
    case = Case(
        name="slots[sglang-0.5.9]",
        pipeline=pipeline,
        contract=contract,
        subject=subject_named(contract.run),
        environment=pipeline.environments["sglang-0.5.9"],
    )

    def observe(one: Case, given: Any) -> Any:
        seen = shown.get(one.environment.name, Unrunnable("unavailable", "environment", "not built"))
        if isinstance(seen, Unrunnable):
            raise seen
        return SimpleNamespace(observation=seen)

    session = SimpleNamespace(overrides={}, observe=observe, twin=lambda _: SimpleNamespace(layers=61))
    return doubt(case, cast("Session", session), taps(*claimed))


def test_a_claim_that_every_environment_contradicts() -> None:
    """Two environments with ids of their own show one and the same other list: look at the claim first."""
    claim = doubted({"sglang-0.5.9": capture(0, 3, 31), "sglang-0.5.23": capture(0, 3, 31)})
    assert claim.taps == "hidden_states: [0, 3, 31]"
    assert claim.sentences == (
        "The claim may be what is wrong, not serving: with the ids of its own `set`, every environment shows embedding "
        "h[0], h[3], h[31] (sglang-0.5.9, sglang-0.5.23).",
        "Look first at what was trained. If it was embedding h[0], h[3], h[31], write trained.taps: {hidden_states: "
        "[0, 3, 31]} at contracts/kimi_k25/pipeline.yaml:5 and change no id.",
    )


@pytest.mark.parametrize(
    ("claimed", "held", "words"),
    [
        (
            {"hidden_states": [2, 18, 33]},
            (3, 19, 34),
            "Did you mean layer_outputs: [2, 18, 33] at contracts/a.yaml:9? hidden_states: [2, 18, 33] names h[2], "
            "h[18], h[33]; counted the other way the list names exactly what the engine hands over.",
        ),
        (
            {"layer_outputs": [3, 19, 34]},
            (3, 19, 34),
            "Did you mean hidden_states: [3, 19, 34] at contracts/a.yaml:9? layer_outputs: [3, 19, 34] names h[4], "
            "h[20], h[35]; counted the other way the list names exactly what the engine hands over.",
        ),
        ({"hidden_states": [3, 19, 34]}, (2, 18, 33), None),
        ({"hidden_states": [2, 18, 33]}, (3, 19, None), None),
        ({"hidden_states": ["embed", 18, 33]}, (1, 19, 34), None),
        ({"hidden_states": [2, 18]}, (3, 19, 34), None),
    ],
)
def test_a_claim_that_is_right_counted_the_other_way(
    claimed: dict[str, Any], held: Sequence[int | None], words: str | None
) -> None:
    """It is offered only where the list, so counted, names exactly what was observed."""
    written = value(claimed)
    found = other_reading(written, parse_taps(written, 36), capture(*held))
    assert found == ((words,) if words else ())


def test_a_claim_in_an_order_that_no_list_gives() -> None:
    """Engines hand states over in layer order: the claim is written so, or fc's columns are."""
    written = value({"hidden_states": [19, 3, "final"]})
    assert in_layer_order(written, parse_taps(written, 36), 36) == (
        "The engine hands states over in layer order, whatever the order of the ids. If training joined them so, write "
        "{hidden_states: [3, 19, final]} at contracts/a.yaml:9. If it joined them as declared, no list serves "
        "this draft: put the columns of its fc in layer order.",
    )


@pytest.mark.parametrize(
    "shown",
    [
        {"sglang-0.5.9": capture(3, 31, 59), "sglang-0.5.23": capture(3, 31, 59)},
        {"sglang-0.5.9": capture(2, 30, 58), "sglang-0.5.23": capture(3, 31, 59)},
        {"sglang-0.5.9": capture(2, 30, 58)},
        {"sglang-0.5.9": capture(2, 30, 58), "sglang-0.5.23": Unrunnable("error", "crash", "it died")},
        {"sglang-0.5.9": capture(2, 30, None), "sglang-0.5.23": capture(2, 30, None)},
        {"sglang-0.5.9": observation(refused=REFUSED), "sglang-0.5.23": observation(refused=REFUSED)},
        {"sglang-0.5.9": capture("mlp output", 30, 58), "sglang-0.5.23": capture("mlp output", 30, 58)},
    ],
    ids=["as-claimed", "different", "alone", "crashed", "unknown", "refused", "sub-layer"],
)
def test_no_doubt_without_agreement(shown: Mapping[str, Observation | Unrunnable]) -> None:
    """One environment, two opinions, or states that cannot be declared cast no doubt on the claim."""
    assert doubted(shown) is None
