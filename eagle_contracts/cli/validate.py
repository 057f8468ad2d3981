"""`eagle-contracts validate`: every mistake in every file, without an engine and without torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from eagle_contracts.catalog import Catalog
from eagle_contracts.checks.draft import unlike_real
from eagle_contracts.cli import FAILED, OK
from eagle_contracts.cli.project import Selection, is_pipeline, planner_of, select
from eagle_contracts.cli.words import JSON_HELP, Parser, issue_json, say_json
from eagle_contracts.inspection import contract_issues, once
from eagle_contracts.plan import Case, widths_of
from eagle_contracts.spec.errors import SpecError, SpecIssue, in_order
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.taps import parse_taps
from eagle_contracts.targets import real_fc_of, unread_issues


def main(arguments: Sequence[str]) -> int:
    """Check files and say every mistake."""
    options = _parser().parse_args(arguments)
    selection = select(options.paths)
    mistakes = in_order(once(_mistakes(selection)))
    say_json(_json(selection, mistakes)) if options.json else print(_text(selection, mistakes))
    return FAILED if mistakes else OK


def _parser() -> argparse.ArgumentParser:
    what = (
        "Read every pipeline and contract, and show all mistakes at once, each with file, line and column.\n"
        "Nothing is run: engines, interpreters and torch are not needed."
    )
    codes = "0 all right, 1 mistakes, 2 no such path"
    parser = Parser("validate", what, ("", "contracts/kimi_k25", "contracts/qwen3/pipeline.yaml --json"), codes)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a file or folder; else the project's own")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _mistakes(selection: Selection) -> Iterator[SpecIssue]:
    for file in selection.files:
        try:
            if is_pipeline(file):
                selection.catalog.pipeline_beside(file)
            else:
                yield from _of_contract(selection.catalog, file)
        except SpecError as error:
            yield from error.issues


def _of_contract(catalog: Catalog, file: Path) -> Sequence[SpecIssue]:
    contract, pipeline = catalog.contract(file), catalog.pipeline_beside(file)
    planner, twin = planner_of(catalog, file, {}), catalog.twin(pipeline)
    issues = contract_issues(contract, planner.cases, twin, {})
    return issues or [issue for case in planner.cases(contract) for issue in _real_files(case, twin.layers)]


def _real_files(case: Case, layers: int) -> Iterator[SpecIssue]:
    """Yield what the real draft's files say against promises about them: a run calls that a violation."""
    scope = Scope(pipeline=case.pipeline, environment=case.environment)
    claim = case.pipeline.trained.get("taps")
    if not case.is_control and any(one.kind == "config" for one in case.expectations):
        yield from unread_issues(case.pipeline)
    for one in case.expectations if claim is not None and not case.is_control else ():
        if one.kind == "fc_in" and claim is not None:
            promise, slots = resolve(one.value, scope), len(parse_taps(resolve(claim, scope), layers))
            unlike = unlike_real(promise, slots, widths_of(case.pipeline), real_fc_of(case.pipeline))
            if unlike is not None:
                yield SpecIssue(position=promise.position, message=unlike[1])


def _counts(selection: Selection) -> tuple[int, int]:
    pipelines = len({file.parent for file in selection.files})
    return sum(not is_pipeline(file) for file in selection.files), pipelines


def _text(selection: Selection, mistakes: Sequence[SpecIssue]) -> str:
    contracts, pipelines = _counts(selection)
    read = f"{_many(contracts, 'contract')} and {_many(pipelines, 'pipeline')}"
    if not mistakes:
        return f"{read}: no mistake."
    files = len({issue.position.path for issue in mistakes})
    shown = "\n".join(issue.render() for issue in mistakes)
    return f"{shown}\n\n{read}: {_many(len(mistakes), 'mistake')} in {_many(files, 'file')}."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _json(selection: Selection, mistakes: Sequence[SpecIssue]) -> dict[str, object]:
    contracts, pipelines = _counts(selection)
    return {
        "ok": not mistakes,
        "contracts": contracts,
        "pipelines": pipelines,
        "mistakes": [issue_json(issue) for issue in mistakes],
    }
