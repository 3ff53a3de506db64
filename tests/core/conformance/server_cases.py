"""The HTTP requests of ``server/*.jsonl``: every route that is served, right and wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from media_files import png_url
from server_api_cases import api_cases
from server_edge_cases import edge_cases

SERVED_NAMES: Final = ("served", "alias")
CHAT: Final = "/v1/chat/completions/render"
COMPLETION: Final = "/v1/completions/render"
TOKENIZE: Final = "/tokenize"
DETOKENIZE: Final = "/detokenize"

_JSON: Final = {"content-type": "application/json"}
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True, slots=True)
class ServerCase:
    """One HTTP request; `body` is JSON, or bytes as they are."""

    name: str
    path: str
    body: Any = None
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: dict(_JSON))

    @property
    def raw(self) -> bytes | None:
        """The body as it is sent."""
        return self.body if isinstance(self.body, bytes | None) else json.dumps(self.body).encode()


# The picture of llm-d's warm-up (backend.go of its token producer): grey with alpha, and damaged.
WARM_UP_IMAGE: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)


def _image(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": png_url(width, height)}, **more}


def _link(url: Any) -> list[dict[str, Any]]:
    return _user([{"type": "image_url", "image_url": {"url": url}}])


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


_HI: Final = _user("Hi")
_WARM_UP: Final = _user([{"type": "text", "text": "warmup"}])
_LONG: Final = "a b " * 17000


def server_cases(placeholder: str) -> list[ServerCase]:
    """All requests, for a model whose placeholder is this text."""
    groups = (
        (TOKENIZE, _tokenize()),
        (DETOKENIZE, _detokenize()),
        (CHAT, _chat()),
        (CHAT, _chat_images(placeholder)),
        (CHAT, _chat_sampling()),
        (CHAT, _chat_refused()),
        (COMPLETION, _completion(placeholder)),
    )
    cases = [
        ServerCase(f"{path} {name}", path, body)
        for path, group in groups
        for name, body in group.items()
    ]
    edges = [ServerCase(*edge) for edge in edge_cases(png_url(32, 32))]
    return [*cases, *edges, *_raw(), *_others(), *_other_apis()]


def _other_apis() -> Iterator[ServerCase]:
    for name, path, body in api_cases(SERVED_NAMES[0]):
        yield ServerCase(name, path, body)


def _tokenize() -> dict[str, Any]:
    return {
        "prompt": {"prompt": "what is in this image? <|im_end|>", "return_token_strs": True},
        "without special tokens": {"prompt": "Hello wörld", "add_special_tokens": False},
        "chat": {"messages": _HI},
        "unknown model": {"model": "nope", "prompt": "a"},
        "empty model": {"model": "", "prompt": "a"},
        "null model": {"model": None, "prompt": "a"},
        "alias": {"model": "alias", "prompt": "a"},
        "model of another kind": {"model": 5, "prompt": "a"},
        "prompt and messages": {"prompt": "a", "messages": _HI},
        "prompt and no messages": {"prompt": "a", "messages": []},
        "prompt and bad messages": {"prompt": "a", "messages": 5},
        "bad prompt and messages": {"prompt": 5, "messages": _HI},
        "bad prompt and bad messages": {"prompt": 5, "messages": 5},
        "neither": {},
        "empty prompt": {"prompt": ""},
        "empty messages": {"messages": []},
        "null messages": {"messages": None},
        "null strings": {"prompt": "a", "return_token_strs": None},
        "continued": {
            "messages": _HI, "continue_final_message": True, "add_generation_prompt": False,
        },
        "continued and generation prompt": {"messages": _HI, "continue_final_message": True},
        "both set": {
            "messages": _HI, "continue_final_message": True, "add_generation_prompt": True,
        },
        "both set, and a prompt": {
            "prompt": "a", "messages": _HI, "continue_final_message": True,
            "add_generation_prompt": True,
        },
        "no generation prompt": {"messages": _HI, "add_generation_prompt": False},
        "null generation prompt": {"messages": _HI, "add_generation_prompt": None},
        "template": {"messages": _HI, "chat_template": "x"},
        "template in kwargs": {"messages": _HI, "chat_template_kwargs": {"chat_template": "x"}},
        "kwargs": {"messages": _HI, "chat_template_kwargs": {"x": 1}},
        "bad kwargs": {"messages": _HI, "chat_template_kwargs": 5},
        "processor kwargs": {"messages": _HI, "mm_processor_kwargs": {"max_pixels": 10000}},
        "empty processor kwargs": {"messages": _HI, "mm_processor_kwargs": {}},
        "media kwargs": {"messages": _HI, "media_io_kwargs": {"image": {"a": 1}}},
        "tools": {"messages": _HI, "tools": [_TOOL]},
        "empty tools": {"messages": _HI, "tools": []},
        "null special tokens": {"prompt": "a", "add_special_tokens": None},
        "lax yes": {"prompt": "a", "add_special_tokens": "yes"},
        "lax off": {"prompt": "a", "add_special_tokens": "off"},
        "lax 1": {"prompt": "a", "add_special_tokens": 1},
        "lax 2": {"prompt": "a", "add_special_tokens": 2},
        "unknown role": {"messages": [{"role": "alien", "content": "x"}]},
        "no role": {"messages": [{"content": "x"}]},
        "message of another kind": {"messages": ["x"]},
        "NUL": {"prompt": "a\u0000b"},
        "lone surrogate": {"prompt": "a\ud800"},
        "image": {"messages": _user([_image(64, 48), _text("What?")])},
        "image and strings": {"messages": _user([_image(32, 32)]), "return_token_strs": True},
        "link as a text": {"messages": _user([{"type": "image_url", "image_url": "x"}])},
        "unknown part": {"messages": _user([{"type": "zzz"}])},
        "bad image": {"messages": _link("data:image/png;base64,AAAA")},
        "list of prompts": {"prompt": ["a"]},
        "prompt of IDs": {"prompt": [1, 2]},
        "unknown field": {"prompt": "a", "zzz": 1},
        "bad salt, which is no field here": {"messages": _HI, "cache_salt": "@"},
    }  # fmt: skip


def _detokenize() -> dict[str, Any]:
    return {
        "IDs": {"tokens": [40, 41, 300, 299]},
        "empty": {"tokens": []},
        "outside the vocabulary": {"tokens": [999999]},
        "negative": {"tokens": [1, -1]},
        "2**32 - 1": {"tokens": [2**32 - 1]},
        "2**32": {"tokens": [2**32]},
        "2**63": {"tokens": [2**63]},
        "text": {"tokens": ["x"]},
        "number in a text": {"tokens": ["12"]},
        "whole float": {"tokens": [1.0]},
        "float": {"tokens": [1.5]},
        "boolean": {"tokens": [True]},
        "null": {"tokens": None},
        "absent": {},
        "a string": {"tokens": "abc"},
        "unknown model": {"tokens": [1], "model": "nope"},
        "30 digits": {"tokens": [123456789012345678901234567890]},
    }


def _chat() -> dict[str, Any]:
    return {
        "hi": {"model": "served", "messages": _HI},
        "no model": {"messages": _HI},
        "request ID": {"messages": _HI, "request_id": "abc"},
        "warm-up": {"messages": _WARM_UP},
        "warm-up without types": {"messages": _user([{"text": "warmup"}])},
        "salt": {"messages": _HI, "cache_salt": "s"},
        "priority": {"messages": _HI, "priority": 3},
        "return token IDs": {"messages": _HI, "return_token_ids": True},
        "tools, none chosen": {"messages": _HI, "tools": [_TOOL], "tool_choice": "none"},
        "tools, null chosen": {"messages": _HI, "tools": [_TOOL], "tool_choice": None},
        "tools, auto": {"messages": _HI, "tools": [_TOOL]},
        "tools, required": {"messages": _HI, "tools": [_TOOL], "tool_choice": "required"},
        "flags": {"messages": _HI, "parallel_tool_calls": False, "include_reasoning": False},
        "tool calls": {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "1", "content": "r"},
                {"role": "user", "content": "b"},
            ]
        },
        "kwargs": {
            "messages": _HI, "chat_template_kwargs": {"x": 1, "add_generation_prompt": False},
        },
        "continued": {
            "messages": _HI, "continue_final_message": True, "add_generation_prompt": False,
        },
        "prompt as well": {"prompt": "a", "messages": _HI},
        "unknown fields": {"messages": _HI, "user": "u", "zzz": 1},
        "developer": {"messages": [{"role": "developer", "content": "d"}, *_HI]},
        "transfer": {
            "messages": _HI, "kv_transfer_params": {"a": 1}, "ec_transfer_params": {"b": 1},
        },
        "effort": {"messages": _HI, "reasoning_effort": "low"},
        "documents": {"messages": _HI, "documents": [{"title": "a", "text": "b"}]},
        "cut": {"messages": _HI, "truncate_prompt_tokens": 5},
        "cut to the context": {"messages": _HI, "truncate_prompt_tokens": -1},
        "offsets": {"messages": _HI, "return_token_offsets": True},
    }  # fmt: skip


def _chat_images(placeholder: str) -> dict[str, Any]:
    none = {"mm_payload": "none"}
    return {
        "image": {"messages": _user([_image(64, 48), _text("What?")]), **none},
        "image, alias of the field": {
            "messages": _user([_image(64, 64)]), "return_mm_kwargs": False,
        },
        "1x1": {"messages": _user([_image(1, 1)]), **none},
        "warm-up with an image": {
            "messages": _user([
                {"type": "text", "text": "warmup"},
                {"type": "image_url", "image_url": {"url": WARM_UP_IMAGE}},
            ]),
            **none,
        },
        "uuid": {"messages": _user([_image(64, 64, uuid="u1")]), **none},
        "two images": {"messages": _user([_image(64, 64), _text("x"), _image(100, 64)]), **none},
        "placeholder typed": {"messages": _user([_image(64, 64), _text(placeholder)]), **none},
        "placeholder without an image": {"messages": _user(placeholder)},
        "image in a system message": {
            "messages": [{"role": "system", "content": [_image(32, 32)]}, *_HI], **none,
        },
        "cut image": {"messages": _link(png_url(64, 64)[:200])},
        "bad image": {"messages": _link("data:image/png;base64,AAAA")},
        "not base64": {"messages": _link("data:image/png,AAAA")},
        "spaces in base64": {"messages": _link("data:image/png;base64,AA AA")},
        "no comma": {"messages": _link("data:image/png;base64")},
        "ftp": {"messages": _link("ftp://x/x.png")},
        "file": {"messages": _link("file:///x.png")},
        "unreachable": {"messages": _link("http://127.0.0.1:1/x.png")},
        "null link": {"messages": _user([{"type": "image_url", "image_url": None, "uuid": "zz"}])},
        "link as a text": {"messages": _user([{"type": "image_url", "image_url": "x"}])},
        "aspect": {"messages": _user([_image(808, 4)]), **none},
        "part without an image": {"messages": _user([{"type": "image"}, _text("x")])},
        "audio": {
            "messages": _user([
                {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}},
            ]),
        },
        "video": {
            "messages": _user([
                {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
            ]),
        },
        "unknown part": {"messages": _user([{"type": "zzz"}])},
    }  # fmt: skip


def _chat_sampling() -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {
        "everything": {
            "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3,
            "stop": ["a", "bc"], "n": 2, "frequency_penalty": 0.5, "presence_penalty": -0.5,
            "logprobs": True, "top_logprobs": 3, "stream": True,
            "stream_options": {"include_usage": True}, "min_tokens": 2, "ignore_eos": True,
            "skip_special_tokens": False, "spaces_between_special_tokens": False,
            "include_stop_str_in_output": True, "stop_token_ids": [5, 5, 6], "bad_words": ["zz"],
            "logit_bias": {"5": 200, "7": -1}, "max_tokens": 30, "repetition_penalty": 1.2,
            "prompt_logprobs": None,
        },
        "greedy": {"temperature": 0, "top_p": 0.5, "top_k": 5, "min_p": 0.2},
        "tiny temperature": {"temperature": 0.001},
        "temperature in a text": {"temperature": "0.5"},
        "whole temperature": {"temperature": 1},
        "one stop": {"stop": "END"},
        "null stop": {"stop": None},
        "16 tokens": {"max_tokens": 16},
        "two spellings": {"max_completion_tokens": 7, "max_tokens": 9},
        "prompt logprobs": {"prompt_logprobs": 2},
        "echo": {"echo": True},
        "logprobs of IDs": {"logprobs": True, "logprob_token_ids": [1, 2]},
        "allowed": {"allowed_token_ids": [1, 2]},
        "watermark": {"watermarking": False},
        "budget": {"thinking_token_budget": 10},
        "arguments": {"vllm_xargs": {"a": 1}},
        "JSON": {"response_format": {"type": "json_object"}},
        "schema": {
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}},
            }
        },
        "text": {"response_format": {"type": "text"}},
        "regex": {"structured_outputs": {"regex": "a+"}},
        "choice": {"structured_outputs": {"choice": ["a", "b"]}},
        "interval": {"stream_interval": 2, "stream": True},
        "repetition": {"repetition_detection": {"max_pattern_size": 5, "min_count": 3}},
        "experts": {"routed_experts_prompt_start": 3},
        "null n": {"n": None},
        "seed -1": {"seed": -1},
        "null stream": {"stream": None},
    }  # fmt: skip
    return {f"sampling, {name}": {"messages": _HI, **more} for name, more in fields.items()}


def _chat_refused() -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {
        "payload": {"mm_payload": "zzz"},
        "null payload": {"mm_payload": None},
        "tokens in words": {"max_tokens": "x"},
        "fractional top_k": {"top_k": 1.5},
        "salt": {"cache_salt": "@"},
        "salt of another kind": {"cache_salt": 5},
        "empty salt": {"cache_salt": ""},
        "empty tools": {"tools": []},
        "bad tools": {"tools": [{"type": "zz"}], "tool_choice": "none"},
        "bad effort": {"reasoning_effort": "zz"},
        "template": {"chat_template": "x"},
        "processor kwargs": {"mm_processor_kwargs": {"a": 1}},
        "media kwargs": {"media_io_kwargs": {"image": {"a": 1}}},
        "unknown model": {"model": "nope"},
    }
    refused = {f"refused, {name}": {"messages": _HI, **more} for name, more in fields.items()}
    return {
        **refused,
        "refused, no messages": {},
        "refused, empty messages": {"messages": []},
        "refused, too long": {"messages": _user(_LONG)},
    }


def _completion(placeholder: str) -> dict[str, Any]:
    return {
        "text": {"model": "served", "prompt": "what is in this image"},
        "texts": {"prompt": ["a", "b c"]},
        "IDs": {"prompt": [1, 2, 3, 4, 5]},
        "lists of IDs": {"prompt": [[1, 2], [3]]},
        "IDs, cut": {"prompt": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 2},
        "IDs, cut on the right": {
            "prompt": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 2, "truncation_side": "right",
        },
        "text, cut": {"prompt": "what is in this image", "truncate_prompt_tokens": 2},
        "numbers in texts": {"prompt": ["1", "2"]},
        "booleans": {"prompt": [True, 2]},
        "whole floats": {"prompt": [1.0, 2.0]},
        "outside the vocabulary": {"prompt": [999999]},
        "negative": {"prompt": [-1]},
        "empty": {"prompt": ""},
        "empty list": {"prompt": []},
        "one of them empty": {"prompt": ["a", ""]},
        "empty list of IDs": {"prompt": [[]]},
        "absent": {},
        "null": {"prompt": None},
        "of another kind": {"prompt": 5},
        "mixed": {"prompt": ["a", 1]},
        "embeddings": {"prompt_embeds": "AAAA"},
        "suffix": {"prompt": "a", "suffix": "b"},
        "without special tokens": {"prompt": "a", "add_special_tokens": False},
        "offsets": {"prompt": "Hello wörld", "return_token_offsets": True},
        "offsets of IDs": {"prompt": [1], "return_token_offsets": True},
        "unknown model": {"prompt": "a", "model": "nope"},
        "request ID": {"prompt": ["a", "b"], "request_id": "q"},
        "stream": {"prompt": "a", "stream": True},
        "null tokens": {"prompt": "a", "max_tokens": None},
        "five tokens": {"prompt": "a", "max_tokens": 5},
        "no tokens, echo": {"prompt": "a", "max_tokens": 0, "echo": True},
        "logprobs": {"prompt": "a", "logprobs": 2},
        "placeholder": {"prompt": placeholder},
        "messages as well": {"prompt": "a", "messages": _HI},
        "salt": {"prompt": "a", "cache_salt": "s"},
        "too long": {"prompt": _LONG},
        "lone surrogate": {"prompt": "\ud800"},
    }  # fmt: skip


def _raw() -> Iterator[ServerCase]:
    depth = 500_000  # which no version of Python reads
    deep = b'{"prompt":"a","x":' + b"[" * depth + b"]" * depth + b"}"
    bodies = {
        "bad JSON": b'{"prompt": ',
        "empty": b"",
        "an array": b"[1]",
        "a string": b'"x"',
        "null": b"null",
        "not UTF-8": b'{"prompt":"\xff"}',
        "NaN": b'{"prompt":"a","x":NaN}',
        "twice": b'{"prompt":"a","prompt":"b"}',
        "byte order mark": b'\xef\xbb\xbf{"prompt":"a"}',
        "more behind it": b'{"prompt":"a"} x',
        "nested deeply": deep,
    }
    for name, body in bodies.items():
        yield ServerCase(f"{TOKENIZE} {name}", TOKENIZE, body)
    for media_type in ("text/plain", "application/json; charset=utf-8", "Application/JSON"):
        headers = {"content-type": media_type}
        yield ServerCase(
            f"{TOKENIZE} as {media_type}", TOKENIZE, b'{"prompt":"a"}', headers=headers
        )
    yield ServerCase(f"{TOKENIZE} of no type", TOKENIZE, b'{"prompt":"a"}', headers={})


def _others() -> Iterator[ServerCase]:
    for method, path in (
        ("GET", "/health"), ("HEAD", "/health"), ("POST", "/health"), ("GET", "/health/"),
        ("GET", "/version"), ("GET", "/v1/models"), ("DELETE", "/v1/models"),
        ("GET", "/v1/models/served"), ("GET", "/nope"), ("GET", "/tokenize"),
        ("OPTIONS", "/tokenize"), ("GET", "/tokenizer_info"),
    ):  # fmt: skip
        yield ServerCase(f"{method} {path}", path, None, method, {})
