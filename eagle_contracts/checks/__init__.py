"""Expectations as generators: an observation in, mismatches out; no I/O, no engine, no pytest. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from eagle_contracts.checks.context import Context as Context
from eagle_contracts.checks.draft import (
    check_config,
    check_fc_in,
    check_first_step,
    check_later_steps,
    check_pairing,
    check_reference,
)
from eagle_contracts.checks.outputs import check_concat, check_equals, check_order, check_width
from eagle_contracts.checks.parity import check_same
from eagle_contracts.checks.rows import check_rows
from eagle_contracts.checks.slots import check_slots
from eagle_contracts.checks.stability import check_unchanged_by
from eagle_contracts.observation import Observation
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

Check = Callable[[Value, Observation, Context], Iterator[Mismatch]]

CHECKS: Mapping[str, Check] = {
    "slots": check_slots,
    "rows": check_rows,
    "order": check_order,
    "unchanged_by": check_unchanged_by,
    "concat": check_concat,
    "equals": check_equals,
    "width": check_width,
    "same": check_same,
    "first_step": check_first_step,
    "later_steps": check_later_steps,
    "fc_in": check_fc_in,
    "pairing": check_pairing,
    "config": check_config,
    "reference": check_reference,
}
"""Each expectation's name and its check: the promise, resolved; the observation; what the pipeline is."""
