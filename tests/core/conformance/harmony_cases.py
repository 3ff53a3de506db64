"""Requests to a model of Harmony: every kind of item and of earlier message, and mixtures."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chat_requests import CHAT, MESSAGES, RESPONSES
from server_cases import SERVED_NAMES, ServerCase
from small_models import FAMILY_MODELS, Files

HARMONY_MODEL: Final = "small-gpt-oss"
START_DATE: Final = "2026-01-02"
"""What vLLM writes for today into its chats."""
_RANDOM: Final = 40
_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_HI: Final = {"role": "user", "content": "Hi"}
_TEXT: Final = {"type": "input_text", "text": "What is <|end|>?"}
_IMAGE: Final = {"type": "input_image", "image_url": "data:,"}
_CALL: Final = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
_RESULT: Final = {"type": "function_call_output", "call_id": "c", "output": "42"}
_WRITTEN: Final = {"type": "output_text", "text": "A cat.", "annotations": []}
_THOUGHT: Final = {"type": "reasoning_text", "text": "hm"}
_ITEMS: Final[Sequence[Any]] = (
    {"role": "user", "content": [_TEXT, _IMAGE, _TEXT]}, {"role": "user", "content": []},
    {"role": "system", "content": "Be kind."}, {"role": "developer", "content": [_TEXT, _TEXT]},
    {"role": "system", "content": [_IMAGE]}, {"role": "assistant", "content": ""},
    {"role": "assistant", "content": "Yes, ", "status": "incomplete"},
    {"type": "message", "role": "assistant", "content": [_WRITTEN, _WRITTEN]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"type": "message", "role": "assistant", "content": []},
    {"type": "reasoning", "summary": [], "content": [_THOUGHT, _THOUGHT]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    _CALL, {**_CALL, "name": "g", "namespace": "ns"}, {**_CALL, "arguments": ""}, _RESULT,
    {**_RESULT, "call_id": "other"}, {**_RESULT, "output": [_TEXT]},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "raw"},
    {"type": "item_reference", "id": "x"},
)  # fmt: skip
_FUNCTION: Final = {"type": "function", "name": "f", "description": "d", "parameters": _SCHEMA}
_MCP: Final = {"type": "mcp", "server_label": "code_interpreter", "server_url": "http://x"}
_OPTIONS: Final[Mapping[str, Sequence[Any]]] = {
    "instructions": ("Be kind.", ""),
    "reasoning": ({"effort": "low"}, {"effort": "high"}, {"effort": "none"}, {"summary": "auto"}),
    "tools": (
        [_FUNCTION], [_FUNCTION, {"type": "function", "name": "g"}], [_MCP], [_FUNCTION, _MCP],
        [{"type": "code_interpreter", "container": "c"}],
        [{"type": "web_search_preview"}, _FUNCTION],
        [{"type": "web_search"}], [{"type": "custom", "name": "c"}],
    ),
    "previous_input_messages": (
        [_HI, {"role": "system", "content": "dropped"}, {"role": "assistant", "content": "Yes."}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
         {"role": "tool", "name": "f", "content": [{"type": "text", "text": "42"}]}],
        [{"author": {"role": "assistant"}, "content": "hm", "channel": "analysis"},
         {"author": {"role": "assistant"}, "content": [{"text": "{}"}], "channel": "commentary",
          "recipient": "functions.f", "content_type": "<|constrain|>json"},
         {"author": {"role": "tool", "name": "functions.f"}, "content": "42"},
         {"author": {"role": "developer"}, "content": "dropped"}],
        [{"content": "a"}], [{"author": {}, "content": "a"}], [{"role": "user", "content": None}],
    ),
    "text": ({"format": {"type": "json_object"}}, {"verbosity": "low"},
             {"format": {"type": "json_schema", "name": "s", "schema": _SCHEMA}}),
    "structured_outputs": ({"regex": "a+"}, {"choice": ["a", "b"]}, {"json": '{"type": "object"}'},
                           {"grammar": 'root ::= "a"'}),
    "truncation": ("auto",), "max_output_tokens": (5,), "cache_salt": ("s",),
    "include": (["message.output_text.logprobs"],),
    "chat_template_kwargs": ({"a": 1}, {"chat_template": "x"}), "previous_response_id": ("r",),
    "kv_transfer_params": ({"prompt_token_ids": [1]},),
}  # fmt: skip
_OF_CHATS: Final[Mapping[str, Sequence[Any]]] = {
    "reasoning_effort": ("high",), "truncate_prompt_tokens": (3,), "max_tokens": (10**6,),
    "chat_template": ("x",), "response_format": ({"type": "json_object"},),
    "kv_transfer_params": ({"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [10**9]}),
    "include_reasoning": (False,), "chat_template_kwargs": ({"a": 1},),
    "tools": ([{"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}],),
}  # fmt: skip


def harmony_model() -> Files:
    """The small model, with room for Harmony's vocabulary beside its own."""
    files = FAMILY_MODELS[HARMONY_MODEL]()
    return {**files, "config.json": {**files["config.json"], "vocab_size": 201088}}


def harmony_cases() -> list[ServerCase]:
    """All that are listed, and some at random; the names are unique."""
    bodies: list[tuple[str, dict[str, Any]]] = [(RESPONSES, {"input": "Hi"})]
    bodies += [(RESPONSES, {"input": [_HI, _CALL, item, _HI]}) for item in _ITEMS]
    bodies += [(RESPONSES, {"input": [item]}) for item in _ITEMS[2:4]]
    nothing: Sequence[Any] = ("", [])
    bodies += [(RESPONSES, {"input": n, "previous_input_messages": [_HI]}) for n in nothing]
    chat: dict[str, Any] = {"messages": [_HI]}
    for path, options, base in ((RESPONSES, _OPTIONS, {"input": "Hi"}), (CHAT, _OF_CHATS, chat)):
        bodies += [
            (path, {**base, name: value}) for name, values in options.items() for value in values
        ]
    bodies.append(
        (MESSAGES, {**chat, "model": SERVED_NAMES[0], "max_tokens": 9, "system": "Be kind."})
    )
    draw = random.Random(1)
    for _ in range(_RANDOM):
        chosen = draw.sample(["instructions", "reasoning", "tools", "previous_input_messages"], 2)
        items = [draw.choice(_ITEMS[:17]) for _ in range(draw.randint(1, 6))]
        options = {name: draw.choice(_OPTIONS[name][:2]) for name in chosen}
        bodies.append((RESPONSES, {"input": [_HI, _CALL, *items], **options}))
    number = itertools.count()
    return [ServerCase(f"{path} {next(number)}", path, body) for path, body in bodies]
