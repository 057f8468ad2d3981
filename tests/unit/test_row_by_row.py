"""What a median over all tokens does not show."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from eagle_contracts.subjects.row_by_row import by_request, first_strange, place_of

LENGTHS = (3, 5, 4)
HIDDEN = 8


def handed() -> Any:
    return torch.randn(sum(LENGTHS), 3 * HIDDEN, generator=torch.Generator().manual_seed(0))


def strange(read: Any) -> Any:
    return first_strange(read, handed(), LENGTHS, HIDDEN, 1e-4)


def test_rows_as_they_were_handed_over() -> None:
    """Rounding of one computation is no fault."""
    assert strange(handed()) is None
    assert strange(handed() * (1 + 1e-6)) is None


@pytest.mark.parametrize(
    ("row", "held"),
    [
        (lambda rows: rows[1], {"request": 0, "position": 1}),
        (lambda rows: rows[5], {"request": 1, "position": 2}),
        (lambda rows: torch.zeros_like(rows[0]), {"nothing": True}),
        (lambda rows: torch.cat([rows[4][HIDDEN : 2 * HIDDEN], rows[4][:HIDDEN], rows[4][2 * HIDDEN :]]), [1, 0, 2]),
        (lambda rows: rows[4] * 2, None),
    ],
)
def test_one_row_is_found_and_told(row: Any, held: Any) -> None:
    """Row 4 is position 1 of the second request: what stands there is looked for among all rows and orders."""
    read = handed()
    read[4] = row(handed())
    found = strange(read)
    assert (found["rows"], found["of"], found["request"], found["position"]) == (1, 12, 1, 1)
    assert found["requests"] == [1]
    assert found["holds"] == ({"order": held} if isinstance(held, list) else held)


def test_a_value_that_is_no_number() -> None:
    """JSON has none for its error."""
    read = handed()
    read[4, 2] = float("nan")
    assert strange(read)["error"] is None


def test_the_rows_of_one_request() -> None:
    """Its own median shows what one over all tokens hides."""
    state = handed()
    slot = state.clone()
    slot[3:8] = state.roll(5, 0)[3:8]
    errors = by_request(slot, state, LENGTHS)
    assert [error > 1e-4 for error in errors] == [False, True, False]
    slot[0] = float("nan")
    assert by_request(slot, state, LENGTHS)[0] == 1e30


def test_a_row_of_the_batch_has_a_place() -> None:
    """Requests follow each other."""
    assert [place_of(row, LENGTHS) for row in (0, 2, 3, 11)] == [(0, 0), (0, 2), (1, 0), (2, 3)]
    with pytest.raises(IndexError):
        place_of(12, LENGTHS)
