"""Requests of the Anthropic Messages API and the OpenAI Responses API, right and odd.

Some are listed, and the others are mixtures of their messages, items and fields.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from chat_requests import MESSAGES, RESPONSES
from media_files import png_url
from odd_requests import ODD_VALUES, label
from replayed import Posted

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
_CHANGES: Final[Sequence[Any]] = (
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}},
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "nope"}},
    {"type": "tool_addition", "tool": {"type": "tool_definition",
                                       "definition": {"name": "h", "input_schema": _SCHEMA}}},
    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}},
    {"type": "tool_removal", "tool": {"type": "tool_definition",
                                      "definition": {"name": "h", "input_schema": {}}}},
    {"type": "tool_removal"},
)  # fmt: skip
_TOOLS: Final[Sequence[dict[str, Any]]] = [
    {"name": "f", "description": "d", "input_schema": _SCHEMA},
    {"name": "g", "input_schema": {"properties": {}}, "strict": True, "defer_loading": True},
]
_OF_MESSAGES: Final[Mapping[str, Sequence[Any]]] = {
    "system": ("Be kind.", "", _HEADER, [_TEXT], [_TEXT, _TEXT], [], [{"type": "text",
               "text": _HEADER}, _TEXT], [_IMAGE], [_CHANGES[0]]),
    "thinking": ({"type": "disabled"}, {"type": "adaptive", "display": "omitted"},
                 {"type": "enabled", "budget_tokens": 1024}, {"type": "enabled"},
                 {"type": "enabled", "budget_tokens": 5}),
    "output_config": ({"effort": "low"}, {"effort": "max"}, {"effort": "none"},
                      {"format": {"type": "json_schema", "schema": _SCHEMA}},
                      {"format": {"schema": {}}}, {"format": {"type": "zzz"}}),
    "tools": (_TOOLS, [_TOOLS[0]], [{"name": "f"}], [{**_TOOLS[0], "type": "custom"}],
              [{"type": "web_search_20250305", "name": "web_search"}]),
    "tool_choice": ({"type": "none"}, {"type": "auto"}, {"type": "any"}, {"type": "tool"},
                    {"type": "tool", "name": "f"},
                    {"type": "auto", "disable_parallel_tool_use": True}),
    "max_tokens": (1, 5, 10**9), "stop_sequences": (["a"], ["a"] * 5, [""]),
    "temperature": (0.0, 0.5, 3), "top_k": (5, -2), "top_p": (0.5, 2), "metadata": ({"a": 1},),
    "stream": (True,), "cache_salt": ("s", "a/b", "s" * 200, "s" * 2000),
    "mm_payload": ("none", "tensors", "x"), "return_mm_kwargs": (False,),
    "kv_transfer_params": ({"do_remote_decode": True}, {"prompt_token_ids": [1]}),
    "ec_transfer_params": ({"a": 1},), "vllm_xargs": ({"a": "b"}, {}, {"a": None}),
    "chat_template_kwargs": ({"enable_thinking": False}, {"chat_template": "x"}, {}),
    "watermarking": (True,), "service_tier": ("auto",), "model": ("nope",),
}  # fmt: skip

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
_FUNCTION: Final = {"type": "function", "name": "f", "description": "d", "parameters": _SCHEMA}
_NAMESPACE: Final = {"type": "namespace", "name": "ns", "description": "d", "tools": [
    {"type": "function", "name": "g"}, {"type": "custom", "name": "h"}]}  # fmt: skip
_OF_RESPONSES: Final[Mapping[str, Sequence[Any]]] = {
    "instructions": ("Be kind.", ""), "previous_response_id": ("resp_1",),
    "prompt": ({"id": "x"},), "background": (True,), "store": (False,),
    "tools": ([_FUNCTION], [_FUNCTION, {"type": "custom", "name": "c"}, _NAMESPACE],
              [{**_FUNCTION, "strict": True, "defer_loading": False, "output_schema": {}}],
              [{"type": "web_search"}], [{"type": "zzz"}], [{"type": "function"}],
              [{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark",
                                                          "definition": "x"}}],
              [{"type": "namespace", "name": "ns"}]),
    "tool_choice": ("none", "auto", "required", {"type": "function", "name": "f"},
                    {"type": "function", "name": "g"}, {"type": "custom", "name": "c"},
                    {"type": "function"}, {"type": "web_search_preview"}, {"type": "zzz"}),
    "reasoning": ({"effort": "none"}, {"effort": "high"}, {"effort": "zzz"}, {"summary": "auto"}),
    "text": ({"format": {"type": "text"}}, {"format": {"type": "json_object"}},
             {"format": {"type": "json_schema", "name": "s", "schema": _SCHEMA}},
             {"format": {"type": "json_schema", "name": "s"}}, {"verbosity": "low"}),
    "structured_outputs": ({"regex": "a"}, {"regex": "a", "json": {}}),
    "include": (["message.output_text.logprobs"], ["zzz"]), "top_logprobs": (5, -1, -5),
    "truncation": ("auto", "zzz"), "max_output_tokens": (0, 5, 10**9), "metadata": ({"a": "b"},),
    "temperature": (0.0, 0.5, 3), "top_p": (0.5, 2), "top_k": (5, -2), "stop": ("a", ["a"], [""]),
    "presence_penalty": (1, 3), "service_tier": ("flex",), "seed": (-1, 2**64), "stream": (True,),
    "cache_salt": ("s", "a/b", "s" * 200), "request_id": ("x", ""), "logit_bias": ({"1": 5},),
    "vllm_xargs": ({"a": "b"}, {}), "kv_transfer_params": ({"do_remote_decode": True},
                                                           {"prompt_token_ids": [1]}),
    "ec_transfer_params": ({"a": 1},), "mm_payload": ("none", "tensors"),
    "chat_template_kwargs": ({"enable_thinking": True}, {"chat_template": "x"}),
    "media_io_kwargs": ({"image": {}},), "mm_processor_kwargs": ({"a": None},),
    "prompt_cache_options": ({"mode": "explicit"}, {"mode": "x"}),
    "prompt_cache_retention": ("in-memory", "24h", "x"), "model": ("nope",),
    "previous_input_messages": ([{"role": "user", "content": "a"}], [5]),
    "user": ("u",), "max_tool_calls": (1,), "parallel_tool_calls": (False,), "priority": (3,),
}  # fmt: skip


def api_requests(model: str, count: int, seed: int) -> list[Posted]:
    """All that are listed, and some at random.

    Args:
        model: a served name, which the Messages API wants.
        count: of random ones, for each route.
        seed: of these.
    """
    draw = random.Random(seed)
    messages = {"model": model, "max_tokens": 2000, "messages": [_HI], "mm_payload": "none"}
    responses = {"input": "Hi", "mm_payload": "none"}
    return [
        *_fields(MESSAGES, messages, _OF_MESSAGES),
        *_fields(RESPONSES, responses, _OF_RESPONSES),
        *_conversations(MESSAGES, messages),
        *_inputs(RESPONSES, responses),
        *(_random_messages(draw, messages) for _ in range(count)),
        *(_random_responses(draw, responses) for _ in range(count)),
    ]


def api_cases(model: str) -> list[Posted]:
    """Each block and each item in the midst of a conversation; the names are unique."""
    requests: list[Posted] = []
    for role, block in itertools.product(("user", "assistant"), _BLOCKS):
        messages = [_HI, {"role": role, "content": [block, _TEXT]}, _HI]
        body = {"model": model, "max_tokens": 9, "messages": messages, "mm_payload": "none"}
        requests.append(Posted(f"{role} {label(block)}", MESSAGES, body))
    for item in _ITEMS:
        body = {"input": [_HI, item, _HI], "mm_payload": "none"}
        requests.append(Posted(label(item), RESPONSES, body))
    named = [replace(r, name=f"{r.path} {i} {r.name}") for i, r in enumerate(requests)]
    different = [{"input": [_HI, item, _HI], "mm_payload": "none"} for item in _DIFFERENT]
    return [request for request in named if request.body not in different]


def _fields(
    path: str, base: Mapping[str, Any], own: Mapping[str, Sequence[Any]]
) -> Iterator[Posted]:
    for name in (*own, *(base.keys() - own.keys())):
        for value in (*own.get(name, ()), *ODD_VALUES):
            yield Posted(f"{path} {name}={label(value)}", path, {**base, name: value})


def _conversations(path: str, base: Mapping[str, Any]) -> Iterator[Posted]:
    for role, block in itertools.product(("user", "assistant", "system"), (*_BLOCKS, *_CHANGES)):
        own = {"role": role, "content": [block]}
        name = f"{path} {role} {label(block)}"
        for messages in ([_HI, own, _HI], [own], [{**own, "content": [block, _TEXT, block]}]):
            yield Posted(name, path, {**base, "messages": messages, "tools": _TOOLS,
                                      "tool_choice": {"type": "none"}})  # fmt: skip


def _inputs(path: str, base: Mapping[str, Any]) -> Iterator[Posted]:
    for item in _ITEMS:
        for items in ([item], [_HI, item], [_HI, item, _HI], [_THOUGHT, item, _CALL, item]):
            yield Posted(f"{path} {label(item)}", path, {**base, "input": items})


def _random_messages(draw: random.Random, base: Mapping[str, Any]) -> Posted:
    body = {**base, **_drawn(draw, _OF_MESSAGES), "messages": []}
    for number in range(draw.randint(1, 6)):
        role = draw.choice((("user", "assistant")[number % 2], "user", "system"))
        blocks: Any = [draw.choice(_BLOCKS[:24]) for _ in range(draw.randint(1, 4))]
        body["messages"].append({"role": role, "content": draw.choice((blocks, blocks, "Well."))})
    return Posted("random messages", MESSAGES, body, several=True)


def _random_responses(draw: random.Random, base: Mapping[str, Any]) -> Posted:
    items = [draw.choice(_ITEMS) for _ in range(draw.randint(1, 7))]
    body = {**base, **_drawn(draw, _OF_RESPONSES), "input": [_HI, *items]}
    return Posted("random responses", RESPONSES, body, several=True)


def _drawn(draw: random.Random, own: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: draw.choice(own[name]) for name in draw.sample(sorted(own), draw.randint(0, 2))}
