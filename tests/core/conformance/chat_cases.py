"""Chats for the renderers that engines have in code.

`tools/generate.py` asks the Python frontend for the prompts, and `tools/generate_rust.py` the
Rust one.
"""

from __future__ import annotations

import json
from typing import Any, Final

from small_models import FAMILY_MODELS, Files

Message = dict[str, Any]

_DEEPSEEK: Final = ("small-deepseek-v3.2", "small-deepseek-v4", "small-deepseek-v4.1")
MODELS: Final = (*_DEEPSEEK, "small-inkling")
"""One of each renderer."""
RUST_MODELS: Final = (*_DEEPSEEK, "small-inkling", "small-kimi-k3")
"""The same of the Rust frontend."""


def _function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def _says(role: str, content: Any = "", **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def _parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _called(*calls: tuple[str, Any], **more: Any) -> Message:
    """An assistant's message that calls ``look`` once for each ID, with arguments."""
    listed = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": "look",
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for call_id, given in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed, **more}


def _result(call_id: str, content: Any) -> Message:
    return _says("tool", content, tool_call_id=call_id)


_SYSTEM: Final = _says("system", "Be brief.")
_HI: Final = _says("user", "Hi")
_MORE: Final = _says("user", "And \u00fc?")
_HELLO: Final = _says("assistant", "Hello.", reasoning="A greeting.")
_DEVELOPER: Final = _says("developer", "Use tools.")
_LOOK: Final = _function(
    "look",
    description='Looks "up" <a> thing.',
    parameters={
        "type": "object",
        "properties": {"w\u00f6rter": {"type": "string"}, "n": {"enum": [1, None, True]}},
        "required": ["n"],
    },
)
_ARGUMENTS: Final = {"text": 'a\n"b"', "n": 2, "list": [1, "\u00fc", None], "yes": True, "of": {}}
_TURN: Final = [_HI, _called(("a", _ARGUMENTS), reasoning="Look."), _result("a", "Found.")]
_TWO: Final = [_HI, _called(("a", {}), ("b", {"n": "1"}))]

CHATS: Final[dict[str, list[Message]]] = {
    "one": [_HI],
    "system": [_SYSTEM, _HI],
    "system-alone": [_SYSTEM],
    "system-late": [_HI, _HELLO, _SYSTEM],
    "system-in-the-middle": [_HI, _HELLO, _SYSTEM, _HELLO, _MORE],
    "system-before-assistant": [_SYSTEM, _HELLO, _HI],
    "two-systems": [_SYSTEM, _SYSTEM, _HI],
    "developer": [_DEVELOPER, _HI],
    "developer-late": [_HI, _HELLO, _DEVELOPER],
    "developer-empty": [_says("developer"), _HI],
    "developer-tools": [_HI, _says("developer", "d", tools=[_LOOK])],
    "developer-tools-early": [_says("developer", "d", tools=[_LOOK]), _HI, _HELLO, _MORE],
    "turns": [_SYSTEM, _HI, _HELLO, _MORE, _HELLO, _MORE],
    "assistant-last": [_HI, _HELLO],
    "assistant-alone": [_HELLO],
    "assistant-without-reasoning": [_HI, _says("assistant", "Hello.")],
    "assistant-null": [_HI, _says("assistant", None), _MORE],
    "two-assistants": [_HI, _HELLO, _HELLO, _MORE],
    "two-users": [_HI, _MORE],
    "empty": [_says("user")],
    "parts": [_says("system", _parts("a", "b")), _says("user", _parts("c", "", "d"))],
    "part-refusal": [_says("user", [{"type": "refusal", "refusal": "no"}])],
    "no-parts": [_says("user", [])],
    "tool-parts": [_HI, _called(("a", {})), _result("a", _parts("x", "y"))],
    "call": _TURN,
    "call-answered": [*_TURN, _HELLO, _MORE],
    "call-with-content": [_HI, _called(("a", {"n": 1}), content="Wait."), _result("a", "")],
    "calls-in-order": [*_TWO, _result("a", "1"), _result("b", "2")],
    "calls-out-of-order": [*_TWO, _result("b", "2"), _result("a", "1")],
    "calls-half-answered": [*_TWO, _result("b", "2"), _HI],
    "calls-answered-twice": [*_TWO, _result("b", "2"), _result("a", "1"), _result("a", "3")],
    "calls-between": [*_TWO, _result("b", "2"), _MORE, _result("a", "1")],
    "call-of-no-id": [_HI, _called(("", {})), _result("", "1")],
    "result-alone": [_result("a", "1"), _HI],
    "result-of-nothing": [_HI, _HELLO, _result("a", "1")],
    "arguments-empty": [_HI, _called(("a", "")), _result("a", "1")],
    "arguments-no-json": [_HI, _called(("a", '{"n": 1')), _result("a", "1")],
    "arguments-list": [_HI, _called(("a", "[1]")), _result("a", "1")],
    "arguments-null": [_HI, _called(("a", "null")), _result("a", "1")],
    "arguments-twice": [_HI, _called(("a", '{"a": 1, "b": 2.50, "a": 3}')), _result("a", "1")],
    "calls-none": [_HI, _says("assistant", "a", tool_calls=[]), _MORE],
    "reminder": [_HI, _says("latest_reminder", "r")],
    "reminder-early": [_says("latest_reminder", "r"), _HI, _HELLO, _MORE],
    "role-own": [_says("root", "a"), _HI],
    "task": [_HI, _says("user", "Title?", task="title")],
    "task-action": [_says("user", "Do", task="action"), _says("assistant", "x", reasoning="y")],
    "task-then-user": [_says("user", "a", task="query"), _MORE],
    "task-of-none": [_says("user", "a", task="nap")],
    "task-in-a-row": [_HI, _says("user", "a", task="query"), _says("assistant", "b"), _HI],
    "without-end": [_HI, _says("assistant", "It is", wo_eos=True)],
    "answer-format": [_says("system", "s", response_format={"type": "json", "n": [1.5]}), _HI],
    "marks": [_says("user", "<think> <\uff5cUser\uff5c> {x} %s </think>")],
    "billing-header": [_says("system", "x-anthropic-billing-header: 1\nreal"), _HI],
}  # fmt: skip
_KWARGS: Final[dict[str, dict[str, Any]]] = {
    "thinks": {"thinking": True},
    "does-not-think": {"thinking": False},
    "enabled": {"enable_thinking": True, "thinking": False},
    "keeps": {"drop_thinking": False, "thinking": True},
    "keeps-by-text": {"drop_thinking": "no", "thinking": True},
    "effort-by-number": {"reasoning_effort": 50},
    "effort-too-high": {"reasoning_effort": 101},
    "effort-of-none": {"reasoning_effort": "great"},
    "tools": {"tools": [_LOOK]},
    "unknown": {"unknown": 1, "add_generation_prompt": False},
}
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LONG: Final = [_SYSTEM, _HI, _HELLO, _DEVELOPER, _HELLO, *_TURN, _HELLO, _MORE]

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    **{name: {"messages": messages} for name, messages in CHATS.items()},
    **{
        f"{name}-thinking": {"messages": messages, "chat_template_kwargs": {"thinking": True}}
        for name, messages in CHATS.items()
    },
    **{
        f"kwargs-{name}": {"messages": _LONG, "chat_template_kwargs": kwargs}
        for name, kwargs in _KWARGS.items()
    },
    **{f"effort-{effort}": {"messages": _LONG, "reasoning_effort": effort} for effort in _EFFORTS},
    "effort-high-without-thinking": {
        "messages": _LONG,
        "reasoning_effort": "high",
        "chat_template_kwargs": {"thinking": False},
    },
    "tools": {"messages": [_HI], "tools": [_LOOK, _function("f")]},
    "tools-and-system": {"messages": [_SYSTEM, _HI], "tools": [_LOOK]},
    "tools-and-late-system": {"messages": [_HI, _HELLO, _SYSTEM, _MORE], "tools": [_LOOK]},
    "tools-and-turns": {"messages": _LONG, "tools": [_LOOK]},
    "tools-and-developer": {"messages": [_DEVELOPER, _HI, _HELLO, _MORE], "tools": [_LOOK]},
    "tools-strict": {"messages": [_HI], "tools": [_function("f", strict=True)]},
    "no-prompt": {"messages": [_HI], "add_generation_prompt": False},
    "no-prompt-after-results": {"messages": _TURN, "add_generation_prompt": False},
    "continued": {
        "messages": [_HI, _HELLO],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
}

_SCHEMA: Final = {"type": "object", "properties": {"b": {"const": "\u00fc"}, "a": {"maximum": 1.5}}}
RUST_REQUESTS: Final[dict[str, dict[str, Any]]] = {
    **REQUESTS,
    "format-object": {"messages": [_HI], "response_format": {"type": "json_object"}},
    "format-text": {"messages": [_HI], "response_format": {"type": "text"}},
    "format-schema": {
        "messages": [_HI],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}},
    },
    "choice-none": {"messages": [_HI], "tools": [_LOOK], "tool_choice": "none"},
    "choice-required": {"messages": [_HI], "tools": [_LOOK], "tool_choice": "required"},
    "choice-none-of-developer": {
        "messages": [_says("developer", "", tools=[_LOOK]), _HI], "tool_choice": "none"
    },
}  # fmt: skip


def rust_files(model: str) -> Files:
    """The files of a model, as the Rust frontend takes them for its renderer."""
    files = FAMILY_MODELS[model]()
    if model == "small-inkling":
        files["config.json"]["model_type"] = "inkling_mm_model"
        for token in files["tokenizer.json"]["added_tokens"]:
            if token["content"] == "<|unused_200024|>":
                token["content"] = "<|content_xml|>"
    return files
