"""Requests in which a value of another type stands somewhere: what no client sends on purpose."""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from media_files import media_files, png_url

from mmroute import AudioLength, ImageSize, VideoSize
from mmroute.requests.request import Lora

_Path: TypeAlias = tuple[Any, ...]


def _nested(make: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


JSON_VALUES: Final[Sequence[Any]] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**70), 10**400, 10**5000, 0.5, 1e300,
    float("nan"), float("inf"), "", "a", "1", "text", "image", "user", "tool", "\ud800", "a\udfffb",
    "\0", "{{", "data:,", "http://[", "<|image_pad|>",
    [], {}, [[1]], [None], [{}], [[], {}], {"a": []}, {"type": []}, {"type": "text"}, {"": {}},
    {"\ud800": "\ud800"}, ["a", ["b"]], [10**5000], _nested(lambda inner: [inner], 300),
    _nested(lambda inner: {"a": inner}, 300), _nested(lambda inner: [inner], 3000),
)  # fmt: skip
"""What JSON may hold."""

PYTHON_VALUES: Final[Sequence[Any]] = (
    *JSON_VALUES,
    (), set(), object(), bytearray(), b"a", (1, [2]), {1: 2}, {(): []}, {None: 1}, frozenset("a"),
    np.array([1, 2]), np.array(5), np.zeros((2, 2)), np.int64(3), np.float32(1), np.bool_(1),
    iter([1]), MappingProxyType({"a": 1}), range(3), date(2026, 1, 1), int, ImageSize(8, 8), 1j,
    memoryview(b"a"), _nested(lambda inner: (inner,), 3000),
)  # fmt: skip
"""What a caller in Python may hand on as well."""


def changed(request: Mapping[str, Any], draw: random.Random, values: Sequence[Any]) -> Any:
    """A copy of a request, one to three nodes of which are of another type."""
    paths = list(_paths(request))
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        request = _with(request, draw.choice(paths), draw.choice(values))
    return request


def fields_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `normalize` for a request line, as far as its items have their fields."""
    fields = dict(request)
    for name, kind in {"images": ImageSize, "videos": VideoSize, "audios": AudioLength}.items():
        if isinstance(listed := fields.get(name), list):
            fields[name] = [_made(kind, item) for item in listed]
    lora = fields.get("lora")
    if isinstance(lora, dict) and lora.keys() == {"lora_name", "lora_path"}:
        fields["lora"] = Lora(lora["lora_name"], lora["lora_path"])
    return fields


def _made(kind: type[Any], item: Any) -> Any:
    with contextlib.suppress(TypeError):
        return kind(**item)
    return item


def _paths(value: Any) -> Iterator[_Path]:
    """The ways to all nodes within a value, as keys and indices."""
    inner: Any = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        yield (key,)
        for path in _paths(each):
            yield (key, *path)


def _with(value: Any, path: _Path, new: Any) -> Any:
    """A copy with another value at the path, as far as there is one."""
    if not path:
        return new
    if not isinstance(value, dict | list):
        return value  # another change took its place
    copy = value.copy()
    with contextlib.suppress(LookupError, TypeError):
        copy[path[0]] = _with(copy[path[0]], path[1:], new)
    return copy


_CALL: Final = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
_PARAMETERS: Final = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"], "enum": ["b"], "items": {"type": "array"}}},
    "required": ["a"],
    "$defs": {"c": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/c"}]}},
}
_FUNCTION: Final = {"name": "f", "description": "d", "parameters": _PARAMETERS, "strict": True}
_TOOL: Final = {"type": "function", "function": _FUNCTION, "defer_loading": False}


def _text(text: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def _user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def requests() -> list[dict[str, Any]]:
    """Fields of requests that are all right for some models, of every kind of value."""
    picture = {"type": "image_url", "image_url": {"url": png_url(56, 56), "detail": "auto"}}
    video = next(file.data for file in media_files("videos").values() if file.engine)
    sound = next(file.data for file in media_files("audios").values() if file.engine)
    urls = {
        "video": f"data:video/mp4;base64,{base64.b64encode(video).decode()}",
        "audio": f"data:audio/wav;base64,{base64.b64encode(sound).decode()}",
    }
    parts = [{"type": f"{kind}_url", f"{kind}_url": {"url": url}} for kind, url in urls.items()]
    listened = {"type": "input_audio", "input_audio": {"data": urls["audio"][22:], "format": "wav"}}
    link = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, "uuid": "u"}
    sizes = {
        "images": [{"width": 56, "height": 56, "uuid": "u"}],
        "videos": [{"width": 56, "height": 56, "num_frames": 4, "fps": 2.0, "uuid": "v"}],
        "audios": [{"num_samples": 16000, "sampling_rate": 16000, "uuid": "a"}],
    }
    options: dict[str, Any] = {
        "add_special_tokens": False,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "chat_template_kwargs": {"enable_thinking": True, "a": ["b"], "tools": None},
        "reasoning_effort": "low",
        "documents": [{"title": "a", "text": "b"}],
        "truncate_prompt_tokens": -1,
        "cache_salt": "salt",
        "lora": {"lora_name": "a", "lora_path": "b"},
    }
    api = {
        "api_fields": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": _PARAMETERS},
            },
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "thinking": {"type": "enabled"},
        },
    }
    processor = {
        "mm_processor_kwargs": {
            "min_pixels": 3136, "max_pixels": 10**6, "images_kwargs": {"do_resize": True},
        },
        "media_io_kwargs": {
            "image": {"rgba_background_color": [1, 2, 3], "image_mode": "RGB"},
            "video": {"num_frames": 4, "fps": 2.0}, "audio": {},
        },
    }  # fmt: skip
    conversation = [
        {"role": "system", "content": [_text("Be kind."), "x-anthropic-billing-header: a\nb"]},
        {"role": "developer", "content": "d", "tools": [_TOOL]},
        {**_user(_text(cache_control={"type": "ephemeral"}), "and"), "name": "n"},
        {"role": "assistant", "content": "a", "tool_calls": [_CALL], "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "a", "content": [_text("42")]},
        {
            "role": "assistant",
            "content": [
                {"type": "refusal", "refusal": "no"},
                {"type": "thinking", "thinking": "t", "closed": True},
            ],
        },
        _user(_text()),
    ]
    return [
        {"prompt": "Hi", **options},
        {
            "prompt": "<|vision_start|><|image_pad|><|vision_end|>",
            "images": sizes["images"],
            **processor,
        },
        {"prompt": "<image><|image_1|>", "images": sizes["images"], "mm_hashes": ["ab" * 8]},
        {"prompt_token_ids": [1, 2, 3]},
        {"prompt_token_ids": [1, 2, 3], **options},
        {"messages": [_user(_text(), picture)]},
        {"messages": [_user({"type": "image"}, _text())], "images": sizes["images"], **processor},
        {"messages": [_user({"type": "image", "uuid": "u"}, link)], "images": sizes["images"] * 2},
        {"messages": [_user({**picture, "uuid": "u"}, _text())], "tools": [_TOOL], **processor},
        {"messages": [_user({"image_url": png_url(56, 56), "uuid": "u"}, _text())]},
        {"messages": [_user(_text(), *parts)], **processor},
        {"messages": [_user(listened, _text())], **processor},
        {"messages": [_user({"type": "video"}, {"type": "audio"})], **sizes, "images": []},
        {"messages": conversation, "tools": [_TOOL], **options},
        {"messages": conversation[2:5], "tools": [_TOOL], "documents": options["documents"]},
        {"messages": [_user(_text())], "tools": [_TOOL], **api},
        {"messages": [_user({"type": "tool_reference", "name": "f"}, _text())], **api},
        {"messages": [_user({"type": "file", "file": {}}), {"role": "user", "content": "a"}]},
        {
            "messages": [_user(_text()), {"role": "assistant", "content": "a"}],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
    ]
