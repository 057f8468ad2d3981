"""Expectations as generators: an observation in, mismatches out; no I/O, no engine, no pytest. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from eagle_contracts.checks.slots import check_slots
from eagle_contracts.observation import Observation
from eagle_contracts.spec.model import Value
from eagle_contracts.verdict import Mismatch

Check = Callable[[Value, Observation, int], Iterator[Mismatch]]

CHECKS: Mapping[str, Check] = {"slots": check_slots}
"""Each expectation's name and its check: (the promise, resolved; the observation; the target's layers)."""
