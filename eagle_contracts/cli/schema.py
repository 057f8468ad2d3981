"""`eagle-contracts schema`: the JSON Schemas that editors and validate read. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from eagle_contracts.cli import OK, USAGE
from eagle_contracts.cli.words import Complaint, Parser, say_json
from eagle_contracts.spec.errors import suggest
from eagle_contracts.spec.validate import schema

_KINDS = ("contract", "pipeline")


def main(arguments: Sequence[str]) -> int:
    """Print a schema."""
    options = _parser().parse_args(arguments)
    if options.kind not in _KINDS:
        raise Complaint(f"no schema is called '{options.kind}': {suggest(options.kind, _KINDS, 'schemas')}", USAGE)
    say_json(schema("pipeline" if options.kind == "pipeline" else "contract"))
    return OK


def _parser() -> argparse.ArgumentParser:
    what = "Print the JSON Schema (draft-07) of contracts or of pipelines."
    parser = Parser("schema", what, ("", "pipeline", "contract > contract.v1.json"), "0 printed, 2 no such schema")
    parser.add_argument("kind", nargs="?", default="contract", metavar="KIND", help="contract (default) or pipeline")
    parser.add_argument("--json", action="store_true", help="the same: a schema is JSON")
    return parser
