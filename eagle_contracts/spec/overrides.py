"""`--contracts-set KEY=VALUE`: values from the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from eagle_contracts.spec.document import parse_yaml
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.located import check_references, value_at
from eagle_contracts.spec.model import SETTABLE, Ref, Value
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.references import check_ids

OPTION: Final = "--contracts-set"


def parse_overrides(texts: Sequence[str]) -> Mapping[str, Value]:
    """Read `KEY=VALUE` texts, VALUE as YAML; raises SpecError with every text that cannot be read.

    Positions of the values read `--contracts-set KEY`.
    """
    values: dict[str, Value] = {}
    issues: list[SpecIssue] = []
    for text in texts:
        try:
            key, value = _parse(text)
            if key in values:
                raise fail(value.position, f"'{key}' is set twice", "give it once")
            values[key] = value
        except SpecError as error:
            issues += error.issues
    if issues:
        raise SpecError(issues)
    return values


def _parse(text: str) -> tuple[str, Value]:
    key, equals, body = text.partition("=")
    origin = f"{OPTION} {clip(key)}"
    if not equals:
        raise fail(_start(text, OPTION), f"'{clip(text)}' is not KEY=VALUE", "write draft.layer_ids=[2,30,58]")
    if key not in SETTABLE:
        raise fail(_start(text, OPTION), f"unknown key '{clip(key)}'", suggest(key, SETTABLE, "keys"))
    if not body.strip():
        raise fail(_start(text, origin), "has no value", f"write {key}=VALUE")
    # Blanks in place of the key keep the columns right.
    padded = " " * (len(key) + 1) + body
    document = parse_yaml(
        padded, path=Path(OPTION), shown=OPTION, origin=origin, lines=(text,), empty=f"write {key}=VALUE"
    )
    issues = list(check_references(document, (), SETTABLE))
    if issues:
        raise SpecError(issues)
    value = value_at(document)
    if key == "draft.layer_ids" and not isinstance(value.data, Ref):
        _check_ids(value, body)
    return key, value


def _check_ids(value: Value, body: str) -> None:
    """Raise what is wrong with a list of ids, with the list that may have been meant."""
    try:
        check_ids(value)
    except SpecError as error:
        meant = re.fullmatch(r"[\s(]*(-?\d+(?:[\s,]+-?\d+)*)[\s)]*", body)
        if meant is None:
            raise
        listed = ",".join(re.findall(r"-?\d+", meant[1]))
        hint = f"write '{value.position.origin.partition(' ')[2]}=[{listed}]'" if value.position.origin else ""
        raise SpecError([replace(issue, hint=hint) for issue in error.issues]) from None


def _start(text: str, origin: str) -> Position:
    return Position(path=OPTION, line=1, column=1, origin=origin, text=text)
