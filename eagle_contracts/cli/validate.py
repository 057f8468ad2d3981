"""`eagle-contracts validate`: every mistake in every file, without an engine and without torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from eagle_contracts.checks.draft import unlike_real
from eagle_contracts.cli import FAILED, OK
from eagle_contracts.cli.project import Selection, is_pipeline, once, planned_in_parts, planner_of, select
from eagle_contracts.cli.words import JSON_HELP, Parser, issue_json, say_json
from eagle_contracts.plan import Case, break_of, parameters, widths_of
from eagle_contracts.promises import promise_issues
from eagle_contracts.spec.errors import SpecError, SpecIssue, in_order
from eagle_contracts.spec.model import Contract, Pipeline, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.taps import parse_taps
from eagle_contracts.targets import real_fc_of, twin_of


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
    layers: dict[Path, int | None] = {}
    for file in selection.files:
        try:
            pipeline = selection.catalog.pipeline_beside(file)
            if pipeline.folder not in layers:
                depth, found = _pipeline(pipeline)
                layers[pipeline.folder] = depth
                yield from found
            if file.name != pipeline.document.path.name:
                planner = planner_of(selection.catalog, file, {})
                contract = selection.catalog.contract(file)
                cases, issues = planned_in_parts(planner, contract)
                yield from issues
                yield from _values(contract, pipeline, cases, layers[pipeline.folder])
        except SpecError as error:
            yield from error.issues


def _pipeline(pipeline: Pipeline) -> tuple[int | None, list[SpecIssue]]:
    """Return the target's depth, if a twin can be made, and what is wrong with the configs and the claim."""
    try:
        layers = twin_of(pipeline).layers
    except SpecError as error:
        return None, list(error.issues)
    issues: list[SpecIssue] = []
    for environment in (None, *pipeline.environments.values()):
        claim = environment.set.get("trained.taps") if environment else pipeline.trained.get("taps")
        if claim is None:
            continue
        try:
            parse_taps(resolve(claim, Scope(pipeline=pipeline, environment=environment)), layers)
        except SpecError as error:
            issues += error.issues
    return layers, issues


def _values(contract: Contract, pipeline: Pipeline, cases: Sequence[Case], layers: int | None) -> Iterator[SpecIssue]:
    """Yield what is wrong with the values that the cases come to."""
    for case in cases:
        scope = Scope(pipeline=pipeline, environment=case.environment)
        try:
            parameters(case, {})
            break_of(case)
            if layers is None or case.is_control:
                continue
            for one in case.expectations:
                promise = resolve(one.value, scope)
                yield from promise_issues(one.kind, promise, layers)
                if one.kind == "fc_in":
                    yield from _real_widths(promise, scope, layers)
        except SpecError as error:
            yield from error.issues


def _real_widths(promise: Value, scope: Scope, layers: int) -> Iterator[SpecIssue]:
    """Yield what the real draft's files say against a promise of how wide `fc` reads."""
    claim = scope.pipeline.trained.get("taps")
    if claim is not None:
        slots = len(parse_taps(resolve(claim, scope), layers))
        unlike = unlike_real(promise, slots, widths_of(scope.pipeline), real_fc_of(scope.pipeline))
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
