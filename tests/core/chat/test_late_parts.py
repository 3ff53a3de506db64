"""Which messages vLLM's schema leaves to be checked where their parts are read.

The outcomes were asked of vLLM 0.33's ``ChatCompletionRequest``, with pydantic 2.14.
"""

from __future__ import annotations

from typing import Any

import pytest

from mmroute.engines.vllm.message_schema import check_message, schema_skips_parts

TEXT = {"type": "text", "text": "t"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}
OTHER = {"type": "output_text", "text": "t"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "f", "input": ""}}
UNSET = {"refusal": None, "audio": None, "function_call": None}
NAMED = {"function_call": {"name": "f", "arguments": "{}"}}

CASES: list[tuple[bool, str, list[Any], dict[str, Any]]] = [
    (True, "assistant", [], {}),
    (False, "assistant", [TEXT], {}),
    (True, "assistant", [OTHER], {}),
    (True, "assistant", ["t"], {}),
    (True, "assistant", [TEXT, 5], {}),
    (False, "assistant", [TEXT], {"refusal": None}),
    (True, "assistant", [TEXT], {"refusal": None, "audio": None}),
    (True, "assistant", [TEXT], UNSET),
    (False, "assistant", [TEXT, TEXT], UNSET),
    (False, "assistant", [TEXT], {**UNSET, "tool_calls": [CALL]}),
    (True, "assistant", [TEXT], {"tool_calls": [CUSTOM]}),
    (False, "assistant", [TEXT], {"tool_calls": None}),
    (True, "assistant", [TEXT], NAMED),
    (True, "assistant", [IMAGE], NAMED),
    (False, "assistant", [IMAGE], {"audio": {"id": "a"}}),
    (False, "assistant", [OTHER], {"reasoning": "r"}),
    (False, "assistant", [], {"refusal": 5}),
    (True, "user", [OTHER], {"name": "b"}),
    (False, "user", [OTHER], {"task": "b"}),
    (False, "user", [OTHER], {"tool_calls": [CALL]}),
    (True, "tool", [OTHER], {"tool_call_id": "c"}),
    (False, "tool", [OTHER], {}),
    (False, "function", [OTHER], {"name": "f"}),
]


@pytest.mark.parametrize(("late", "role", "parts", "more"), CASES)
def test_the_type_that_knows_more_of_a_message_is_taken(
    late: bool, role: str, parts: list[Any], more: dict[str, Any]
) -> None:
    message = {"role": role, "content": parts, **more}
    assert schema_skips_parts(check_message(message, 0)) is late
