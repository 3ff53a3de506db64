"""Requests nobody sends on purpose: every field with every kind of value, and random mixtures.

None of them names a model, so that they can be sent to any.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from chat_requests import CHAT, COMPLETION, DETOKENIZE, TOKENIZE
from media_files import png_url
from replayed import Posted

_Base: TypeAlias = tuple[str, Mapping[str, Any], tuple[str, ...]]
"""A route, a body that is all right, and its fields."""

_HI: Final = [{"role": "user", "content": "Hi"}]
_TEXT: Final = {"type": "text", "text": "a"}
_IMAGE: Final[dict[str, Any]] = {"type": "image_url", "image_url": {"url": png_url(40, 30)}}
_CALL: Final = {"id": "abcdef123", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TOOL: Final = {"type": "function", "function": {"name": "f"}}
_SCHEMA: Final = {"name": "s", "schema": {"type": "object"}}

ODD_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2, 16, 1.0, 1.5, -0.5, 2**31, 2**63 - 1, 2**63, 2**64, 10**30,
    1e300, float("inf"), float("nan"), "", " ", "a", "1", " 2 ", "1.0", "0.5", "1_0", "+3", "yes",
    "None", "\ud800", "e\u0301", [], [[]], [None], [1], ["a"], ["1"], [1.5], [{}], {}, {"a": 1},
    {"1": 1}, {"type": "text"}, {"a": {"b": []}},
)  # fmt: skip
_SAMPLING: Final = (
    "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty", "seed",
    "stop", "stream", "stream_options", "temperature", "top_p", "user", "use_beam_search", "top_k",
    "min_p", "repetition_penalty", "watermarking", "length_penalty", "stop_token_ids",
    "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "truncation_side",
    "allowed_token_ids", "prompt_logprobs", "logprob_token_ids", "bad_words", "add_special_tokens",
    "response_format", "structured_outputs", "priority", "request_id", "session_id", "echo",
    "return_tokens_as_token_ids", "return_token_ids", "return_weight_versions", "model",
    "routed_experts_prompt_start", "return_token_offsets", "mm_payload", "return_mm_kwargs",
    "cache_salt", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "repetition_detection",
    "thinking_token_budget", "stream_interval",
)  # fmt: skip
_CHAT_ONLY: Final = (
    "messages", "top_logprobs", "max_completion_tokens", "tools", "tool_choice", "documents",
    "reasoning_effort", "include_reasoning", "parallel_tool_calls", "add_generation_prompt",
    "continue_final_message", "chat_template", "chat_template_kwargs", "media_io_kwargs",
    "mm_processor_kwargs", "return_prompt_text",
)  # fmt: skip
_COMPLETION_ONLY: Final = ("prompt", "suffix", "prompt_embeds", "best_of", "messages")
_TOKENIZE_CHAT: Final = (
    "messages", "prompt", "add_generation_prompt", "return_token_strs", "continue_final_message",
    "add_special_tokens", "chat_template", "chat_template_kwargs", "media_io_kwargs",
    "mm_processor_kwargs", "tools", "model", "tool_choice",
)  # fmt: skip
_TOKENIZE_TEXT: Final = ("prompt", "add_special_tokens", "return_token_strs", "model", "messages")
# Field -> values that are right, or nearly.
_OWN: Final[Mapping[str, Sequence[Any]]] = {
    "logit_bias": ({"1": 5, "2": -200}, {"a": 1}, {"1": None}, {"1": "2"}, {" 3 ": 1}, {"-1": 1},
                   {"99999999": 1}, {"1.5": 1}),
    "temperature": (0.001, 1e-6, 2.0, 2.1, "0.0"),
    "top_p": (1e-9, 0.0, 1.1), "top_k": (-2, 5), "n": (3, 10**6), "max_tokens": (3, 4096, 10**5),
    "max_completion_tokens": (3, 10**5), "min_tokens": (3, 10**5),
    "seed": (-(2**63), -(2**63) - 1), "priority": (-(2**63), -(2**63) - 1),
    "stop": (["a", "b", "c", "d"], ["a"] * 5, ["a", ""], "\n", ["ab", "abc"], "ü"),
    "stop_token_ids": ([2, 1, 2], ["5"], [-1], [10**9]),
    "allowed_token_ids": ([1, 2], [10**9], [-1]),
    "bad_words": (["a", "a", " b"], [""]), "logprobs": (5, 25), "prompt_logprobs": (5, 25, -2),
    "top_logprobs": (5, -2), "logprob_token_ids": ([1, 2], [-1]),
    "stream_options": ({"include_usage": True}, {"include_usage": "x"}, {"zzz": 1}),
    "truncate_prompt_tokens": (-2, 3, 10**6), "truncation_side": ("left", "right", "middle"),
    "response_format": (
        {"type": "json_object"}, {"type": "json_schema", "json_schema": _SCHEMA},
        {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "s"}},
        {"type": "json_schema", "json_schema": {"name": "s", "schema": True}},
        {"type": "json_schema", "json_schema": {"name": "s", "strict": "x"}},
        {"type": "xml"}, {"type": "structural_tag"}, {"type": "text", "zzz": 1},
        {"type": "structural_tag", "format": {"type": "any_text"}},
        {"type": "structural_tag", "structures": [], "triggers": []},
        {"type": "json_object", "json_schema": _SCHEMA}, {"json_schema": _SCHEMA},
    ),
    "structured_outputs": (
        {"json": {}}, {"json": "{}"}, {"json": 5}, {"regex": "a"}, {"regex": ""}, {"regex": 5},
        {"choice": ["a"]}, {"choice": []}, {"choice": [1]}, {"grammar": "g"}, {"grammar": ""},
        {"json_object": True}, {"json_object": False}, {"json_object": "yes"},
        {"json": {}, "regex": "a"}, {"grammar": "g", "regex": "a"}, {"zzz": 1},
        {"json": {}, "disable_any_whitespace": True}, {"disable_any_whitespace": "yes"},
        {"whitespace_pattern": " "}, {"structural_tag": "{}"}, {"structural_tag": "x"},
        {"json": None}, {"json": None, "regex": "a"}, {"json": [1]},
        {"json": {}, "_backend": "xgrammar"}, {"json": {}, "_backend": 5},
    ),
    "repetition_detection": (
        {"max_pattern_size": 5, "min_count": 3}, {"max_pattern_size": 5}, {"min_count": 1},
        {"max_pattern_size": -1}, {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2},
        {"max_pattern_size": "5", "min_count": 2}, {"max_pattern_size": 3, "min_count": 1},
        {"max_pattern_size": 3, "min_pattern_size": -1, "min_count": 2}, {"min_count": None},
    ),
    "vllm_xargs": ({"a": "b"}, {"a": [1, "b"]}, {"a": None}, {"a": {}}, {"a": True}, {"a": [[]]}),
    "cache_salt": ("s", "s" * 128, "s" * 129, "a/b", "a@b", "a\\b", "a\0b", "é" * 128, "\n"),
    "mm_payload": ("none", "tensors", "NONE"), "request_id": ("x-y", "a" * 500, "ü", "a b"),
    "model": ("nope",), "thinking_token_budget": (-1, -2, 10),
    "kv_transfer_params": ({"prompt_token_ids": [1, 2]}, {"prompt_token_ids": []},
                           {"prompt_token_ids": "x"}, {"prompt_token_ids": None},
                           {"do_remote_prefill": True}),
    "tools": ([_TOOL], [_TOOL, _TOOL], [{**_TOOL, "defer_loading": True}],
              [{"type": "custom", "custom": {"name": "g"}}], [{"function": {"name": "f"}}],
              [{"type": "function", "function": {"name": "f", "strict": "yes"}}],
              [{"type": "function", "function": {"name": "f", "parameters": []}}],
              [{"type": "function", "function": {"name": "f", "zzz": 1}, "zzz": 1}]),
    "tool_choice": ("none", "auto", "required", "zzz",
                    {"type": "function", "function": {"name": "f"}},
                    {"function": {"name": "f"}}, {"type": "function"}, {"function": {}}),
    "documents": ([{"title": "t", "text": "x"}], [{"a": 1}]),
    "reasoning_effort": ("none", "low", "high", "max", "zzz"),
    "chat_template": ("{{ messages }}",),
    "chat_template_kwargs": (
        {"enable_thinking": False}, {"tools": []}, {"messages": []}, {"chat_template": None},
        {"add_generation_prompt": False}, {"continue_final_message": True}, {"tokenize": True},
        {"return_dict": True}, {"documents": []}, {"add_vision_id": True}, {"x": None},
        {"conversation": []}, {"padding": True}, {"reasoning_effort": "low"},
        {"tool_choice": "auto"},
    ),
    "media_io_kwargs": ({"image": {}}, {"image": {"image_mode": "L"}},
                        {"video": {"num_frames": 1}}),
    "mm_processor_kwargs": ({"min_pixels": 3136, "max_pixels": 3136}, {"a": None}, {"size": 5},
                            {"truncation": True}, {"num_crops": 1}),
    "prompt": ("Hello", ["a", "b"], ["a", ""], [1, "a"], ["a", 1], [[1], [2, 3]], [[1], []],
               [[1], "a"], [1, -1], [True, False], [10**9], [2**32], [2**32 - 1], [1.0], "</s>",
               "<s>", "a\0b", "\ufeff", "a" * 5000, " ", "\n", "<|im_start|>", "<image>", "[IMG]",
               "<|image_pad|>", [["a"]], [[1.5]], ["\ud800"], [[1, None]]),
    "suffix": ("a", ""), "return_token_strs": (), "stream_interval": (1, 0, 5),
    "routed_experts_prompt_start": (5,), "best_of": (2,),
    "messages": (_HI * 3, [], [[]], [None], "Hi", {"role": "user"}, [{}], [{"role": "user"}],
                 [{"content": "a"}]),
    "tokens": ([1, 2, 3], [0], [1, 10**9], [-1], ["3", " 4"], [2**32], [2**62], [1e3], [None]),
}  # fmt: skip
_ROLES: Final = ("user", "assistant", "system", "tool", "developer", "function", "alien", "")
_MESSAGE_FIELDS: Final = (
    "role", "content", "name", "tool_call_id", "tool_calls", "refusal", "audio", "function_call",
    "reasoning", "reasoning_content", "tools", "task", "author", "thinking", "prefix", "recipient",
)  # fmt: skip
_OWN_OF_MESSAGE: Final[Mapping[str, Sequence[Any]]] = {
    "tool_calls": ([_CALL], [_CALL, _CALL], [{**_CALL, "id": None}], [{**_CALL, "type": "x"}],
                   [{**_CALL, "function": {"name": "f", "arguments": {}}}],
                   [{**_CALL, "function": {"name": "f", "arguments": "[]"}}],
                   [{**_CALL, "function": {"name": "f", "arguments": "{bad"}}],
                   [{**_CALL, "function": {"name": "f", "arguments": ""}}],
                   [{**_CALL, "function": {"name": "f"}}], [{**_CALL, "index": 0}],
                   [{**_CALL, "function": {"name": None, "arguments": "{}"}}]),
    "content": ([_TEXT], [_IMAGE], [_TEXT, _IMAGE], [_IMAGE, _TEXT, _IMAGE], ["a", "b"],
                ["a", _TEXT], [[_TEXT]], [_TEXT, None], [_TEXT, {}], [{}, _TEXT], [_TEXT, 5],
                [{"type": "text"}], [{"text": "a"}], [{"type": "text", "text": None}, _TEXT],
                [{"type": "refusal", "refusal": "no"}], [{"type": "thinking", "thinking": "hm"}],
                [{"type": "thinking", "thinking": "hm", "closed": False}, _TEXT],
                [{"type": "input_text", "text": "a"}], [{"type": "output_text", "text": "a"}],
                [{"type": "input_image", "image_url": _IMAGE["image_url"]["url"]}],
                [{"type": "tool_reference", "name": "f"}], [{**_IMAGE, "uuid": "u"}],
                [{**_IMAGE, "uuid": ""}], [{**_IMAGE, "uuid": None}], [{**_IMAGE, "uuid": 5}],
                [{**_TEXT, "uuid": "u"}], [{**_TEXT, "cache_control": {"type": "ephemeral"}}],
                [{**_IMAGE, "cache_control": {"type": "ephemeral"}}], [{"image_url": None}],
                [{"image_url": _IMAGE["image_url"]["url"]}], [{"image_url": _IMAGE["image_url"]}],
                [{"type": "image_url", "image_url": {**_IMAGE["image_url"], "detail": "low"}}],
                [{"type": "image_url", "image_url": {**_IMAGE["image_url"], "detail": "x"}}],
                [{"type": "image_url", "image_url": {}}], [{"type": "image_url"}],
                [{"type": "file", "file": {"file_id": "x"}}], [{"type": None, "text": "a"}],
                "<image>", "<|image_pad|>", "[IMG]", [_IMAGE, {"type": "text", "text": "<image>"}],
                [_IMAGE, {"type": "text", "text": "<|image_pad|>"}], "\u2028", "a\0b", "\ufeff",
                "x-anthropic-billing-header: 1\nx", "</s>", "<|im_end|>", "  a  ", "👩\u200d👧"),
    "tools": ([_TOOL],), "audio": ({"id": "x"},), "function_call": (_CALL["function"],),
}  # fmt: skip
_PART_TYPES: Final = (
    "text", "image_url", "refusal", "thinking", "input_text", "tool_reference", "audio_url",
    "input_audio", "video_url", "image_embeds", "image_pil", "file", None,
)  # fmt: skip
_PART_FIELDS: Final = (
    "type", "text", "refusal", "thinking", "image_url", "uuid", "name", "audio_url", "closed",
    "prompt_cache_breakpoint", "zzz",
)  # fmt: skip
# Of what is written by hand because `json.dumps` cannot: keys twice, and what is no JSON.
_RAW: Final = (
    b'{"prompt": "a", "prompt": "b"}',
    b'{"messages": [], "messages": [{"role": "user", "content": "a"}]}',
    b'{"messages": [{"role": "user", "role": "system", "content": "a"}]}',
    b'{"prompt": "a", "max_tokens": 5, "max_tokens": null}', b'{"prompt": "a"} x', b"{}", b"[]",
    b"null", b"true", b'"a"', b"5", b"", b" ", b"{", b'{"prompt": "a",}', b"{'prompt': 'a'}",
    b'{"prompt": "\xff"}', b'\xef\xbb\xbf{"prompt": "a"}', b'{"prompt": "a"}\n\n',
    '{"prompt": "a"}'.encode("utf-16"), b'{"prompt": "\\ud83d\\ude00"}', b'{"prompt": "\\u0000"}',
    b'{"prompt": "a", "n": 1e0}', b'{"prompt": "a", "n": 01}', b'{"prompt": "a", "n": 1E400}',
    b'{"prompt": "a", "n": -0}', b'{"prompt": "a\tb"}', b'{"prompt": "a", "temperature": -0.0}',
    b'{"prompt": "a", "": 1}', b'{"PROMPT": "a"}', b'{"prompt": "a", "temperature": .5}',
    b'{"tokens": [1, 1.0, 1e1]}', b'{"tokens": [1], "tokens": [2]}',
)  # fmt: skip


def odd_requests(count: int, seed: int) -> list[Posted]:
    """All that are listed, and some at random.

    Args:
        count: of random ones.
        seed: of these.
    """
    requests = [*_fields(), *_messages(), *_parts(), *_raw(), *random_requests(count, seed)]
    return [replace(request, name=f"odd {i} {request.name}") for i, request in enumerate(requests)]


def random_requests(count: int, seed: int) -> list[Posted]:
    """Requests with several odd fields; the same ones for one seed."""
    draw = random.Random(seed)
    return [_random(draw) for _ in range(count)]


def _fields() -> Iterator[Posted]:
    bases: tuple[_Base, ...] = (
        (CHAT, {"messages": _HI}, _SAMPLING + _CHAT_ONLY),
        (COMPLETION, {"prompt": "Hello there"}, _SAMPLING + _COMPLETION_ONLY),
        (TOKENIZE, {"messages": _HI}, _TOKENIZE_CHAT),
        (TOKENIZE, {"prompt": "Hello there"}, _TOKENIZE_TEXT),
        (DETOKENIZE, {"tokens": [1, 2]}, ("tokens", "model")),
    )
    for path, base, names in bases:
        for name in names:
            for value in (*_OWN.get(name, ()), *ODD_VALUES):
                yield Posted(f"{name}={label(value)}", path, {**base, name: value})


def _messages() -> Iterator[Posted]:
    for role, name in itertools.product(_ROLES, _MESSAGE_FIELDS):
        for value in (*_OWN_OF_MESSAGE.get(name, ()), *ODD_VALUES):
            message = {"role": role, "content": "a", name: value}
            yield _chat(f"{role}.{name}={label(value)}", [*_HI, message, *_HI])


def _parts() -> Iterator[Posted]:
    for kind, name in itertools.product(_PART_TYPES, _PART_FIELDS):
        for value in ODD_VALUES:
            part = {"type": kind, "text": "b", name: value}
            yield _chat(f"part {kind}.{name}={label(value)}", [{"role": "user", "content": [part]}])


def _raw() -> Iterator[Posted]:
    for path, raw in itertools.product((CHAT, COMPLETION, TOKENIZE, DETOKENIZE), _RAW):
        yield Posted(f"raw {raw[:60]!r}", path, raw)


def _random(draw: random.Random) -> Posted:
    """Several odd fields at once, and several odd messages."""
    bases: tuple[_Base, ...] = (
        (CHAT, {"messages": _HI}, _SAMPLING + _CHAT_ONLY),
        (COMPLETION, {"prompt": "Hello there"}, _SAMPLING),
        (TOKENIZE, {"messages": _HI}, _TOKENIZE_CHAT),
    )
    path, base, names = draw.choice(bases)
    body: dict[str, Any] = dict(base)
    for name in draw.sample(names, draw.randint(1, 3)):
        body[name] = draw.choice([*_OWN.get(name, ()), *ODD_VALUES] if draw.random() < 0.5 else
                                 [*_OWN.get(name, (1,))] or [1])  # fmt: skip
    if "messages" in base and draw.random() < 0.7:
        body["messages"] = [_random_message(draw) for _ in range(draw.randint(1, 5))]
    return Posted("random", path, body, several=True)


def _random_message(draw: random.Random) -> dict[str, Any]:
    role = draw.choice(_ROLES[:5])
    message: dict[str, Any] = {"role": role, "content": "a"}
    if draw.random() < 0.7:
        parts = [draw.choice(_OWN_OF_MESSAGE["content"]) for _ in range(draw.randint(1, 3))]
        listed = [part if isinstance(part, list) else [part] for part in parts]
        message["content"] = [part for part in itertools.chain(*listed) if isinstance(part, dict)]
    if role == "assistant" and draw.random() < 0.5:
        message["tool_calls"] = draw.choice(_OWN_OF_MESSAGE["tool_calls"])
    if draw.random() < 0.2:
        name = draw.choice(_MESSAGE_FIELDS[2:])
        message[name] = draw.choice((*_OWN_OF_MESSAGE.get(name, ()), *ODD_VALUES))
    return message


def _chat(name: str, messages: Sequence[Any]) -> Posted:
    return Posted(name, CHAT, {"messages": messages, "mm_payload": "none"})


def label(value: Any) -> str:
    """A value as the name of a request has it."""
    return json.dumps(value)[:60]
