"""Structured outputs of models that answer in Harmony's format: a structural tag for the answer.

Source: vLLM ``parser/harmony.py`` (`_adjust_output_format`) and
``parser/abstract_parser.py`` (`structured_outputs_to_format`); xgrammar's defaults as observed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mmroute.engines.vllm.bodies.errors import refused, unsupported_field
from mmroute.engines.vllm.bodies.fields import CONSTRAINTS

_JSON: Final = ("final json", "final <|constrain|>json")
_END: Final = ["<|end|>", ""]
_THOUGHT: Final = {
    "type": "tag",
    "begin": "<|channel|>analysis<|message|>",
    "content": {"type": "any_text", "excludes": [], "max_tokens": None, "max_chars": None},
    "end": "<|end|>",
}
_ANSWER: Final = {"type": "const_string", "value": "<|start|>assistant"}
_MAY_THINK: Final = {
    "type": "optional",
    "content": {"type": "sequence", "elements": [_THOUGHT, _ANSWER]},
}


def tagged(structured: Mapping[str, Any]) -> dict[str, Any]:
    """The `structured_outputs` of sampling parameters, each constraint a structural tag."""
    if structured["json_object"] is False:  # a constraint by its presence, and yet none
        return {**structured}
    content = _content(structured)
    if content["type"] == "json_schema":
        tags = [_tag(channel, content) for channel in _JSON]
        answer: dict[str, Any] = {"type": "or", "elements": tags}
    else:
        answer = _tag("final", content)
    tag = {
        "type": "structural_tag",
        "format": {"type": "sequence", "elements": [_MAY_THINK, answer]},
    }
    return {**structured, **dict.fromkeys(CONSTRAINTS), "structural_tag": json.dumps(tag)}


def _tag(channel: str, content: Mapping[str, Any]) -> dict[str, Any]:
    begin = f"<|channel|>{channel}<|message|>"
    return {"type": "tag", "begin": begin, "content": content, "end": _END}


def _content(structured: Mapping[str, Any]) -> dict[str, Any]:
    if structured["json_object"]:
        return _json_schema({"type": "object"})
    if (schema := structured["json"]) is not None:
        try:
            return _json_schema(json.loads(schema) if isinstance(schema, str) else schema)
        except (ValueError, RecursionError) as error:
            raise refused(f"structured_outputs.json: {error}") from None
    if (pattern := structured["regex"]) is not None:
        return {"type": "regex", "pattern": pattern}
    if (choices := structured["choice"]) is not None:
        texts = [{"type": "const_string", "value": text} for text in choices]
        return {"type": "or", "elements": texts}
    grammar = structured["grammar"]
    if grammar is not None and "::=" in grammar:
        return {"type": "grammar", "grammar": grammar}
    raise unsupported_field(
        "structured_outputs: for this model the engine rewrites structural tags and grammars that "
        "are not EBNF by xgrammar, which is not covered",
    )


def _json_schema(schema: object) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": schema,
        "style": "json",
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }
