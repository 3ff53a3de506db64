"""What SGLang takes as the parameters of a tool: what jsonschema takes."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from mmroute import InexactError
from mmroute.engines.sglang.json_schema import check_schema

KEYWORDS = [
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor",
    "$recursiveRef", "$ref", "$schema", "$vocabulary", "additionalProperties", "allOf", "anyOf",
    "const", "contains", "contentEncoding", "contentMediaType", "contentSchema", "default",
    "definitions", "dependencies", "dependentRequired", "dependentSchemas", "deprecated",
    "description", "else", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format",
    "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
    "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not",
    "nullable", "oneOf", "pattern", "patternProperties", "prefixItems", "properties",
    "propertyNames", "readOnly", "required", "then", "title", "type", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems", "writeOnly",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 1.0, 1.5, math.inf, "", "a", "#a", "(", "string", "object", [],
    ["a"], ["a", "a"], [1], ["string", "null"], {}, {"a": {}}, {"a": True}, {"a": 1}, {"a": ["b"]},
    {"a": ["b", "b"]}, {"(": {}}, {"type": "string"}, {"required": "a"}, [{}], [True],
    [{"minLength": -1}], {"a": {"type": 1}},
]  # fmt: skip


def takes(schema: object) -> bool:
    try:
        check_schema(schema)
    except InexactError:
        return False
    return True


def is_schema(schema: object) -> bool:
    try:
        Draft202012Validator.check_schema(copy.deepcopy(schema))
    except SchemaError:
        return False
    return True


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_each_keyword_has_the_values_that_jsonschema_takes(keyword: str) -> None:
    for value in VALUES:
        schema = {keyword: value}
        assert takes(schema) == is_schema(schema), schema


def test_schemas_in_schemas_are_checked() -> None:
    choose = random.Random(20).choice
    for _ in range(2000):
        inner = {choose(KEYWORDS): choose(VALUES)}
        keyword = choose(KEYWORDS)
        schema = {keyword: choose([inner, [inner], {"a": inner}])}
        assert takes(schema) == is_schema(schema), schema


@pytest.mark.parametrize(
    "schema", [{"type": "varchar"}, {"items": {"type": "Object"}}, {"type": ["null", "null"]}]
)
def test_types_that_the_engine_rewrites_are_refused(schema: object) -> None:
    assert not takes(schema)


def test_schemas_that_fill_the_engines_stack_are_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    assert not takes(schema)
