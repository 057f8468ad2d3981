"""`eagle-contracts explain`: a contract with every value resolved, and where each was written. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eagle_contracts.catalog import SUFFIXES
from eagle_contracts.cli import FAILED, OK, USAGE
from eagle_contracts.cli.explained import Place, explained
from eagle_contracts.cli.head import head
from eagle_contracts.cli.interpreters import Interpreters
from eagle_contracts.cli.project import is_pipeline, planner_of, select
from eagle_contracts.cli.words import JSON_HELP, Complaint, Parser, say_json
from eagle_contracts.plan import Case, environments_of
from eagle_contracts.report.columns import COLUMNS
from eagle_contracts.spec.errors import SpecError, suggest
from eagle_contracts.spec.model import Pipeline
from eagle_contracts.spec.overrides import parse_overrides

_VALUES: Final = 44


def main(arguments: Sequence[str]) -> int:
    """Explain one contract; 1 where a value of it does not resolve."""
    options = _parser().parse_args(arguments)
    places = _explained(options)
    say_json(places) if options.json else print(_text(places))
    return FAILED if _has_errors(places) else OK


def _parser() -> argparse.ArgumentParser:
    what = (
        "Show every value of a contract as a run would resolve it, and where it was written: the environments and how\n"
        "their interpreters are found, the promises with both readings of their taps, the controls and the producers."
    )
    examples = (
        "contracts/qwen3/sglang_capture_offset.yaml",
        "kimi_k25/sglang_capture_offset --environment sglang-0.5.23",
        "train_serve_parity --set 'draft.layer_ids=[2,30,58]' --json",
    )
    codes = "0 explained, 1 a value does not resolve or a file has mistakes, 2 no such contract or environment"
    parser = Parser("explain", what, examples, codes)
    parser.add_argument("contract", metavar="CONTRACT", help="a file, or a contract's name, with its folder if needed")
    parser.add_argument("--environment", metavar="NAME", help="this environment or role only")
    parser.add_argument(
        "--set",
        "--contracts-set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value, as --contracts-set does in a run",
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _explained(options: argparse.Namespace) -> dict[str, object]:
    try:
        overrides = parse_overrides(options.overrides)
    except SpecError as error:
        raise Complaint(error.render(), USAGE) from error
    file = _file(options.contract)
    catalog = select([file]).catalog
    pipeline, contract = catalog.pipeline_beside(file), catalog.contract(file)
    interpreters = Interpreters(catalog.root)
    cases = planner_of(catalog, file, interpreters.labels(pipeline), overrides).cases(contract)
    places = list(_places(cases, _chosen(options.environment, pipeline, cases)))
    return {
        **head(pipeline, contract, overrides),
        "environments": [explained(place, interpreters, overrides) for place in places],
    }


def _file(word: str) -> Path:
    """Return the contract that a path or a name means; raises `Complaint` for none and for several."""
    path = Path(word)
    if path.is_file() and path.suffix in SUFFIXES:
        if is_pipeline(path):
            raise Complaint(f"{word} is a pipeline: name one of the contracts beside it", USAGE)
        return path.absolute()
    selection = select([path] if path.is_dir() else [])
    contracts = [file for file in selection.files if not is_pipeline(file)]
    parts = Path(word).with_suffix("").parts if path.suffix in SUFFIXES else Path(word).parts
    found = [file for file in contracts if file.with_suffix("").parts[-len(parts) :] == parts]
    if path.is_dir():
        found = contracts
    shown = [selection.catalog.shown(file) for file in found]
    if len(found) > 1:
        raise Complaint(f"{word} is the name of {len(found)} contracts: {', '.join(shown)}", USAGE)
    if not found:
        names = list(dict.fromkeys(file.stem for file in contracts))
        raise Complaint(f"no contract is called '{word}': {suggest(parts[-1], names, 'contracts')}", USAGE)
    return found[0]


def _chosen(name: str | None, pipeline: Pipeline, cases: Sequence[Case]) -> frozenset[str]:
    used = {case.environment.name for case in cases}
    if name is None:
        return frozenset(used)
    chosen = {environment.name for environment in environments_of([name], pipeline)}
    if not chosen:
        words = [
            *dict.fromkeys(role for e in pipeline.environments.values() for role in e.roles),
            *pipeline.environments,
        ]
        hint = suggest(name, words, "roles and environments")
        raise Complaint(f"'{name}' is neither a role nor an environment of {pipeline.document.shown}: {hint}", USAGE)
    if not chosen & used:
        where = ", ".join(one for one in pipeline.environments if one in used)
        raise Complaint(f"this contract does not run in {name}; it runs in: {where}", USAGE)
    return frozenset(chosen & used)


def _places(cases: Sequence[Case], chosen: frozenset[str]) -> Iterator[Place]:
    """Yield each environment with each choice of producers, and the cases that run there."""
    groups: dict[object, list[Case]] = {}
    for case in cases:
        producers = tuple((producer.contract.name, producer.environment.name) for producer in case.producers.values())
        groups.setdefault((case.environment.name, producers), []).append(case)
    for group in groups.values():
        if group[0].environment.name in chosen:
            yield Place(cases=tuple(group))


def _has_errors(data: object) -> bool:
    if isinstance(data, dict):
        return bool(data.get("error")) or any(map(_has_errors, data.values()))
    return isinstance(data, list) and any(map(_has_errors, data))


def _text(data: Mapping[str, object]) -> str:
    environments = data["environments"]
    assert isinstance(environments, list)
    parts = [[str(data["contract"]), *_lines(data["values"])]]
    parts += [[_title(one), *_lines(one["values"])] for one in environments]
    return "\n\n".join("\n".join(part) for part in parts)


def _title(place: Mapping[str, Any]) -> str:
    """Name an environment, and those of the producers where they run elsewhere."""
    others = [f"{name} from {at}" for name, at in place["producers"].items() if at != place["environment"]]
    reading = f", reading {' and '.join(others)}" if others else ""
    return f"in {place['environment']} ({place['position']}){reading}"


def _lines(rows: object) -> Iterator[str]:
    """Yield rows in columns: name, value, where it was written; then whatever else is to be said of the value."""
    assert isinstance(rows, list)
    names = max((len(row["name"]) for row in rows), default=0)
    values = min(_VALUES, max((len(row["value"]) for row in rows if row["position"]), default=0))
    for row in rows:
        lead, place = f"  {row['name'].ljust(names)}  ", row["position"] or ""
        one_line = f"{lead}{row['value'].ljust(values)}  {place}".rstrip()
        if len(one_line) <= COLUMNS:
            yield one_line
        else:
            yield from _wrapped(row["value"], lead)
            if place:
                yield f"{' ' * len(lead)}at {place}"
        for note in row["notes"]:
            yield from _wrapped(note, " " * len(lead))


def _wrapped(text: str, lead: str) -> list[str]:
    blank = " " * len(lead)
    return textwrap.wrap(
        text, COLUMNS, initial_indent=lead, subsequent_indent=blank, break_long_words=False, break_on_hyphens=False
    )
