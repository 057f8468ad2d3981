"""From a path to a checked Pipeline or Contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from eagle_contracts.spec.contracts import build_contract, check_contract
from eagle_contracts.spec.document import Document, load_yaml
from eagle_contracts.spec.errors import SpecError, SpecIssue, in_order
from eagle_contracts.spec.model import Contract, Pipeline
from eagle_contracts.spec.paths import is_spec_file as is_spec_file
from eagle_contracts.spec.paths import kind_of as kind_of
from eagle_contracts.spec.paths import pipeline_beside as pipeline_beside
from eagle_contracts.spec.pipelines import build_pipeline, check_pipeline
from eagle_contracts.spec.validate import validate

Check = Callable[[Document], Iterable[SpecIssue]]


def load_pipeline(path: Path, shown: str | None = None) -> Pipeline:
    """Read and check a pipeline file and the configs it names; raises SpecError with every mistake."""
    document = load_yaml(path, shown)
    _stop_on([*validate(document, "pipeline"), *check_pipeline(document)])
    return build_pipeline(document)


def load_contract(
    path: Path, pipeline: Pipeline | None, shown: str | None = None, *, more: Check | None = None
) -> Contract:
    """Read a contract file and check it against its pipeline; raises SpecError with every mistake.

    Without a pipeline, because that is wrong itself, what needs none is checked. `more` yields further issues of the
    document, whether or not its shape is right.
    """
    document = load_yaml(path, shown)
    against = check_contract(document, pipeline) if pipeline is not None else ()
    _stop_on([*validate(document, "contract"), *against, *(more(document) if more else ())])
    return build_contract(document)


def _stop_on(issues: Iterable[SpecIssue]) -> None:
    found = in_order(issues)
    if found:
        raise SpecError(found)
