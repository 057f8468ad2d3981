"""What a contract says wherever it runs, and what its pipeline claims and runs on. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eagle_contracts.cli.explained import DEFAULT, Row, unresolved
from eagle_contracts.cli.written import through
from eagle_contracts.promises import both_readings
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.model import Contract, Pipeline, Value
from eagle_contracts.spec.references import Scope, lookup
from eagle_contracts.subjects.registry import subject_named
from eagle_contracts.taps import parse_taps
from eagle_contracts.targets import twin_of


def head(pipeline: Pipeline, contract: Contract, overrides: Mapping[str, Value]) -> dict[str, object]:
    """Return the rows that stand before those of each environment."""
    rows = [*_contract(contract, overrides), *_pipeline(pipeline, overrides)]
    return {"contract": contract.document.shown, "values": [row.to_json() for row in rows]}


def _contract(contract: Contract, overrides: Mapping[str, Value]) -> Iterator[Row]:
    document, subject = contract.document, subject_named(contract.run)
    name = contract.run if subject.engine == "here" else f"{contract.run} (engine: {subject.engine})"
    yield Row("why", contract.why, str(document.at("why")))
    yield Row("between", " -> ".join(contract.between), str(document.at("between")))
    yield Row("run", name, str(contract.run_position))
    if contract.in_:
        yield Row("in", ", ".join(contract.in_), str(contract.in_position))
    else:
        yield Row("in", "where its producers run", DEFAULT)
    if contract.marks:
        yield Row("marks", ", ".join(contract.marks), str(document.at("marks")))
    known = contract.known_violation
    if known is not None:
        yield Row("known violation", f"{known.diagnosis} of {known.engine}", str(known.position), (known.link,))
    if not contract.must_catch:
        yield Row("must_catch", "nothing: the contract is unproven", DEFAULT)
    elif overrides:
        yield Row("must_catch", "not run: a value is overridden", str(document.at("must_catch")))


def _pipeline(pipeline: Pipeline, overrides: Mapping[str, Value]) -> Iterator[Row]:
    """Yield the two configs, the twin that is made of them, and the claim."""
    document, part = pipeline.document, pipeline.target_part
    target = pipeline.target_config.name + (f", part {part}" if part is not None else "")
    yield Row("target", target, str(document.at("target", "config")))
    if pipeline.draft_config is None:
        yield Row("draft", "none named", DEFAULT)
    else:
        yield Row("draft", pipeline.draft_config.name, str(document.at("draft", "config")))
    try:
        twin = twin_of(pipeline)
    except SpecError as error:
        yield unresolved("twin", Value(data="none", position=document.at("target", "config")), error)
        return
    size = f"{twin.architecture}, {twin.layers} layers, {sum(map(len, twin.prompts))} tokens"
    yield Row("twin", size, "made of the two configs", (f"width {twin.target['hidden_size']}, random weights",))
    yield from _claim(pipeline, overrides, twin.layers)


def _claim(pipeline: Pipeline, overrides: Mapping[str, Value], layers: int) -> Iterator[Row]:
    written = overrides.get("trained.taps", pipeline.trained.get("taps"))
    if written is None:
        yield Row("trained.taps", "nothing claimed", DEFAULT)
        return
    try:
        found = lookup("trained.taps", Scope(pipeline=pipeline, overrides=overrides), written.position)
        taps = parse_taps(found, layers)
    except SpecError as error:
        yield unresolved("trained.taps", written, error)
        return
    yield Row(
        "trained.taps", show(found.data), str(found.position), (*through(written, found), both_readings(taps, layers))
    )
