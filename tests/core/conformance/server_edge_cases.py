"""Values at the edge of what vLLM's routes take, found by posting odd ones to both servers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chat_requests import CHAT, COMPLETION, HI, TOKENIZE

_ANY_FIELD: Final[Mapping[str, Sequence[Any]]] = {
    "user": (5,), "session_id": (5,), "length_penalty": (None, "2"),
    "return_tokens_as_token_ids": (5,),
    "return_mm_kwargs": (5,), "return_token_offsets": (5,),
    "n": ("2.0", "2.5", "", 1e300, 16384), "seed": ("1.0", " 7 ", "+3"), "top_k": ("1_0",),
    "thinking_token_budget": (-1,),
    "repetition_detection": ({"min_count": None},),
    "vllm_xargs": (
        {"a": True, "b": ["x", 1]}, {"a": None}, {"a": {}}, {"a": [[]]}, {},
    ),
    "kv_transfer_params": ({}, {"prompt_token_ids": None}),
    "structured_outputs": (
        {"json": 5}, {"choice": [1]}, {"regex": 5}, {"json": {}, "_backend": "x"},
        {"json_object": "yes"}, {"regex": "a", "disable_any_whitespace": "yes"},
    ),
    "response_format": (
        {"type": "structural_tag", "format": {"type": "any_text"}, "zzz": 1},
    ),
    "stop": ([1], ["a", 5]), "stream_options": (True, 5, {}),
    "prompt_logprobs": (1e300,),
    "logit_bias": ({"a": {}}, {" 3 ": 1}), "logprob_token_ids": (True,),
    "truncate_prompt_tokens": (0,), "truncation_side": ("middle",),
}  # fmt: skip
_CHAT_FIELD: Final[Mapping[str, Sequence[Any]]] = {
    "echo": (None,), "return_prompt_text": (5,), "messages": (None, 5, "x", [{}]),
    "kv_transfer_params": ({"prompt_token_ids": []}, {"prompt_token_ids": "x"}),
    "media_io_kwargs": ({"a": 1},), "documents": ([{"a": 1}], 5),
    "tools": ([{"function": {"name": "f", "parameters": 5}}], [{"function": {"name": 5}}]),
}  # fmt: skip
_COMPLETION_FIELD: Final[Mapping[str, Sequence[Any]]] = {
    "suffix": (5,), "prompt_embeds": ([], 5, [1], "x"), "echo": (None,), "logprobs": (1e300,),
    "prompt": ([[1], "a"], [["a"]], [[1, None]], ["a", 1], [1, "a"]),
}  # fmt: skip
# Messages beside another one.
_MESSAGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "an author of null": {"role": "user", "content": "a", "author": None},
    "an author without a role": {"role": "user", "content": "a", "author": {"a": 1}},
    "a function without a name": {"role": "function", "content": None},
    "a refusal and a null link": {
        "role": "user", "content": [{"type": "refusal", "text": "b", "image_url": None}],
    },
    "a tool reference with a breakpoint": {
        "role": "user",
        "content": [{"type": "tool_reference", "name": "f", "prompt_cache_breakpoint": 1}],
    },
    "texts of a tool without an ID": {"role": "tool", "content": ["a", "b"]},
    "texts of a tool": {"role": "tool", "content": ["a", "b"], "tool_call_id": "1"},
    "a typed text of a tool without an ID": {
        "role": "tool", "content": [{"type": "input_text", "text": "a"}],
    },
    "a user's tool calls": {
        "role": "user", "content": "a",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ],
    },
}  # fmt: skip


def edge_cases(picture: str) -> list[tuple[str, str, Any]]:
    """Name, route and body of each.

    Args:
        picture: a data URL.
    """
    tables = (
        (CHAT, {"messages": HI}, _ANY_FIELD), (CHAT, {"messages": HI}, _CHAT_FIELD),
        (COMPLETION, {"prompt": "a"}, _ANY_FIELD), (COMPLETION, {"prompt": "a"}, _COMPLETION_FIELD),
    )  # fmt: skip
    found = [
        (f"{path} {name} {value!r:.80}", path, {**base, name: value})
        for path, base, table in tables
        for name, values in table.items()
        for value in values
    ]
    messages = {
        **_MESSAGES,
        "a bare link": {"role": "user", "content": [{"image_url": picture}]},
        "a link, named by a number": {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": picture}, "uuid": 5}],
        },
        "an image of a tool without an ID": {
            "role": "tool", "content": [{"image_url": {"url": picture}}],
        },
        "a bare link, named": {
            "role": "user", "content": [{"type": "image_url", "image_url": picture, "uuid": "u"}],
        },
    }  # fmt: skip
    for path, (name, message) in itertools.product((CHAT, TOKENIZE), messages.items()):
        body = {"messages": [*HI, {"role": "assistant", "content": "b"}, message]}
        payload = {"mm_payload": "none"} if path == CHAT else {}
        found.append((f"{path} {name}", path, body | payload))
    texts: tuple[dict[str, Any], ...] = (
        {"messages": HI, "return_token_strs": 5}, {"messages": HI, "model": 5},
        {"messages": HI, "prompt": "a", "chat_template": 5},
        {"messages": HI, "prompt": "a", "tools": 5},
    )  # fmt: skip
    found += [(f"{TOKENIZE} {list(body)} {i}", TOKENIZE, body) for i, body in enumerate(texts)]
    return found
