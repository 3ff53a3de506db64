"""Requests of the Messages API and the Responses API: each block and each item in a chat."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from chat_requests import MESSAGES, RESPONSES
from media_files import png_url

_URL: Final = png_url(40, 30)
_OTHER_URL: Final = png_url(100, 60)
_HEADER: Final = "x-anthropic-billing-header: cch=1;"
_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}}
_TEXT: Final = {"type": "text", "text": "What is it?"}
_SOURCE: Final = {"type": "base64", "media_type": "image/png", "data": _URL.partition(",")[2]}
_IMAGE: Final = {"type": "image", "source": _SOURCE}
_USE: Final = {"type": "tool_use", "id": "toolu_12345", "name": "f", "input": {"a": "é", "b": 1}}
_BLOCKS: Final[Sequence[Any]] = (
    _TEXT, _IMAGE, _USE, {"type": "text", "text": ""}, {"type": "text"}, {"type": "image"},
    {"type": "image", "source": {"type": "url", "url": _OTHER_URL}},
    {"type": "image", "source": {"type": "url"}}, {"type": "image", "source": {"data": ""}},
    {"type": "image", "source": {"data": _OTHER_URL.partition(",")[2]}},
    {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "thinking", "thinking": ""},
    {"type": "thinking"}, {"type": "redacted_thinking", "data": "x"},
    {"type": "tool_use", "id": "toolu_2", "name": "g"}, {"type": "tool_use", "id": "a"},
    {"type": "tool_result", "tool_use_id": "toolu_12345", "content": "42"},
    {"type": "tool_result", "tool_use_id": "toolu_12345"},
    {"type": "tool_result", "content": [_TEXT, _TEXT], "is_error": True},
    {"type": "tool_result", "tool_use_id": "t", "content": [_TEXT, _IMAGE]},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text"}, {"type": "zzz"}]},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": 5}]},
    {"type": "tool_result", "tool_use_id": "t",
     "content": [{"type": "tool_reference", "tool_name": "f"}]},
    {"type": "tool_reference", "tool_name": "f"}, {"type": "zzz"}, {"text": "a"}, "a", 5,
    {"type": "text", "text": _HEADER}, {**_TEXT, "cache_control": {"type": "ephemeral"}},
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}},
)  # fmt: skip
_HI: Final = {"role": "user", "content": "Hi"}
_INPUT_TEXT: Final = {"type": "input_text", "text": "What is it?"}
_INPUT_IMAGE: Final = {"type": "input_image", "image_url": _URL}
_OUTPUT: Final = {"type": "output_text", "text": "It is a cat."}
_CALL: Final = {"type": "function_call", "call_id": "c12345678", "name": "f",
                "arguments": '{"a": 1}'}  # fmt: skip
_THOUGHT: Final = {"type": "reasoning", "summary": [],
                   "content": [{"type": "reasoning_text", "text": "hm"}]}  # fmt: skip
# Answered in another way than by vLLM, as docs/server-reference.md lists.
_DIFFERENT: Final[Sequence[Any]] = (
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"type": "message", "role": "assistant", "content": []},
    {"type": "web_search_call"},
)
_ITEMS: Final[Sequence[Any]] = (
    _HI, {**_HI, "type": "message", "id": "m", "status": "completed"},
    {"role": "user", "content": [_INPUT_TEXT]}, {"role": "user", "content": [_INPUT_IMAGE]},
    {"role": "user", "content": [_INPUT_TEXT, _INPUT_IMAGE, {**_INPUT_TEXT, "zzz": 1}]},
    {"role": "user", "content": [{**_INPUT_IMAGE, "detail": "low"}, _INPUT_TEXT]},
    {"role": "user", "content": [{**_INPUT_IMAGE, "detail": "zzz"}]},
    {"role": "user", "content": [{**_INPUT_IMAGE, "image_url": _OTHER_URL, "uuid": "other"}]},
    {"role": "user", "content": [{**_INPUT_IMAGE, "image_url": None}]},
    {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
    {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
    {"role": "user", "content": [_TEXT]}, {"role": "user", "content": []}, {"role": "user"},
    {"role": "user", "content": None}, {"role": "tool", "content": "a"}, {"content": "a"},
    {"role": "system", "content": "Be kind."}, {"role": "developer", "content": [_INPUT_TEXT]},
    {"role": "system", "content": [_INPUT_TEXT, _INPUT_TEXT]},
    {"role": "assistant", "content": "Yes."}, {"role": "assistant", "content": [_INPUT_TEXT]},
    {"role": "assistant", "content": "Yes, ", "status": "incomplete"},
    {"role": "assistant", "content": []}, {"role": "assistant", "content": [_OUTPUT]},
    {"type": "message", "role": "assistant", "content": [_OUTPUT, _OUTPUT]},
    {"type": "message", "role": "assistant", "content": [_OUTPUT], "status": "in_progress"},
    *_DIFFERENT,
    _CALL, {**_CALL, "namespace": "ns"}, {**_CALL, "arguments": "{bad"}, {**_CALL, "name": None},
    {"type": "function_call", "call_id": "c", "name": "g", "arguments": "", "status": "completed"},
    {"type": "function_call_output", "call_id": "c12345678", "output": "42"},
    {"type": "function_call_output", "call_id": "c12345678", "output": [_INPUT_TEXT, _INPUT_TEXT]},
    {"type": "function_call_output", "call_id": "c12345678", "output": [
        _INPUT_TEXT, {**_INPUT_IMAGE, "detail": "auto"}]},
    {"type": "function_call_output", "output": ""}, {"type": "function_call_output"},
    {"type": "custom_tool_call", "call_id": "c12345678", "name": "f", "input": "raw é"},
    {"type": "custom_tool_call_output", "call_id": "c12345678", "output": "42"},
    {"type": "custom_tool_call_output", "output": "42"},
    _THOUGHT, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "in short"}]},
    {"type": "reasoning", "summary": []}, {"type": "reasoning"},
    {**_THOUGHT, "encrypted_content": "x"}, {**_THOUGHT, "status": "in_progress"},
    {"type": "item_reference", "id": "x"}, {"type": "zzz"}, {}, 5, "a",
)  # fmt: skip


def api_cases(model: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, route and body; the names are unique.

    Args:
        model: a served name, which the Messages API wants.
    """
    found: list[tuple[str, str, dict[str, Any]]] = []
    body: dict[str, Any]
    for role, block in itertools.product(("user", "assistant"), _BLOCKS):
        messages = [_HI, {"role": role, "content": [block, _TEXT]}, _HI]
        body = {"model": model, "max_tokens": 9, "messages": messages, "mm_payload": "none"}
        found.append((f"{role} {_label(block)}", MESSAGES, body))
    for item in _ITEMS:
        body = {"input": [_HI, item, _HI], "mm_payload": "none"}
        found.append((_label(item), RESPONSES, body))
    for number, (name, path, body) in enumerate(found):
        if body.get("input", ())[1:2] not in ([one] for one in _DIFFERENT):
            yield f"{path} {number} {name}", path, body


def _label(value: Any) -> str:
    return json.dumps(value)[:60]
