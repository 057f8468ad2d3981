"""The schemas serve editors, and agree with the code."""

from __future__ import annotations

import pytest
from jsonschema import Draft7Validator

from eagle_contracts.spec import validate
from eagle_contracts.spec.model import DIAGNOSES, ROLES, SETTABLE
from eagle_contracts.spec.validate import schema


def described(node: object) -> list[bool]:
    """Return, for every property in a schema, whether an editor can show what it means."""
    if isinstance(node, list):
        return [each for item in node for each in described(item)]
    if not isinstance(node, dict):
        return []
    properties = node.get("properties", {})
    return ["description" in each for each in properties.values()] + described(list(node.values()))


@pytest.mark.parametrize("kind", ["pipeline", "contract"])
def test_editors_can_explain_every_key(kind: str) -> None:
    """The schemas are draft-07 and describe each key, which editors show."""
    content = schema("pipeline" if kind == "pipeline" else "contract")
    Draft7Validator.check_schema(content)
    assert content["$schema"] == "http://json-schema.org/draft-07/schema#"
    keys = described(content)
    assert len(keys) > 10 and all(keys)


def test_the_schemas_lists_are_the_codes_lists() -> None:
    """Diagnoses, roles and settable keys are closed lists, written once for people and once for editors."""
    contract, pipeline = schema("contract"), schema("pipeline")
    assert tuple(contract["definitions"]["diagnosis"]["enum"]) == DIAGNOSES
    assert tuple(pipeline["definitions"]["role"]["enum"]) == ROLES
    assert tuple(pipeline["definitions"]["environment"]["properties"]["set"]["properties"]) == SETTABLE


def keywords(node: object) -> set[str]:
    if isinstance(node, list):
        return {word for item in node for word in keywords(item)}
    if not isinstance(node, dict):
        return set()
    inner = {key: value for key, value in node.items() if key not in ("properties", "patternProperties", "definitions")}
    named = [each for key in ("properties", "patternProperties", "definitions") for each in node.get(key, {}).values()]
    return set(inner) | keywords(named) | keywords(list(inner.values()))


def test_every_keyword_that_can_fail_has_words_of_its_own() -> None:
    """No message of the library's own reaches a user."""
    silent = {"$schema", "title", "description", "items", "allOf", "if", "then", "$ref"}
    structural = {"properties", "patternProperties", "definitions"}
    used = (keywords(schema("pipeline")) | keywords(schema("contract"))) - silent - structural
    assert used == set(validate._FORMATTERS)
