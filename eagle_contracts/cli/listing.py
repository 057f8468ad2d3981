"""`eagle-contracts list`: the items of a contracts run, without running it. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from eagle_contracts.cli import FAILED, OK
from eagle_contracts.cli.interpreters import Interpreters
from eagle_contracts.cli.project import Selection, planner_of, select
from eagle_contracts.cli.words import JSON_HELP, Parser, complain, issue_json, say_json, table
from eagle_contracts.inspection import once
from eagle_contracts.plan import Case
from eagle_contracts.spec.errors import SpecError, SpecIssue, in_order

HEADER = ("ITEM", "CONTRACT", "ENVIRONMENTS", "ROLES")


def main(arguments: Sequence[str]) -> int:
    """List items; mistakes go to standard error and the other files' items are listed all the same."""
    options = _parser().parse_args(arguments)
    items, mistakes = _items(select(options.paths))
    if options.json:
        say_json({"items": items, "mistakes": [issue_json(issue) for issue in mistakes]})
    else:
        print(table((HEADER, *(_row(item) for item in items))))
        for issue in mistakes:
            complain(issue.render())
    return FAILED if mistakes else OK


def _parser() -> argparse.ArgumentParser:
    what = (
        "Show every item that `pytest --contracts` would collect, under the id that selects it there.\n"
        "A file with mistakes is one item, `specification`, as it is in a run."
    )
    codes = "0 listed, 1 a file has mistakes, 2 no such path"
    parser = Parser("list", what, ("", "contracts/kimi_k25", "--json"), codes)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a file or folder; else the project's own")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _items(selection: Selection) -> tuple[list[dict[str, object]], list[SpecIssue]]:
    catalog, interpreters = selection.catalog, Interpreters(selection.catalog.root)
    items: list[dict[str, object]] = []
    mistakes: list[SpecIssue] = []
    for file in selection.files:
        node = catalog.shown(file) if not file.is_relative_to(catalog.root) else str(file.relative_to(catalog.root))
        try:
            pipeline = catalog.pipeline_beside(file)
            if file.name == pipeline.document.path.name:
                continue
            planner = planner_of(catalog, file, interpreters.labels(pipeline))
            items += [_item(node, case) for case in planner.cases(catalog.contract(file))]
        except SpecError as error:
            mistakes += error.issues
            items.append(_entry(f"{node}::specification", file.stem, "mistake", [], [], None))
    return items, in_order(once(mistakes))


def _item(node: str, case: Case) -> dict[str, object]:
    own = [case.environment] if case.contract.in_ else []
    environments = {one.name: one for one in (*own, *(producer.environment for producer in case.producers.values()))}
    roles = dict.fromkeys(role for one in environments.values() for role in one.roles)
    kind = "control" if case.is_control else "promise"
    diagnosis = case.control.diagnosis if case.control else None
    return _entry(f"{node}::{case.name}", case.contract.name, kind, list(environments), list(roles), diagnosis)


def _entry(
    name: str, contract: str, kind: str, environments: list[str], roles: list[str], diagnosis: str | None
) -> dict[str, object]:
    return {
        "id": name,
        "contract": contract,
        "kind": kind,
        "environments": environments,
        "roles": roles,
        "diagnosis": diagnosis,
    }


def _row(item: dict[str, object]) -> tuple[str, ...]:
    lists = (item["environments"], item["roles"])
    return (
        str(item["id"]),
        str(item["contract"]),
        *(", ".join(words) or "-" for words in lists if isinstance(words, list)),
    )
