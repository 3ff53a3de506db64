"""Requests of strangers: what a field of JSON costs grows no faster than its bytes."""

from __future__ import annotations

import contextlib
import cProfile
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mmroute import InexactError, Normalizer, Reason
from mmroute.requests.lines import json_object, request_of

_FEW, _MANY = 300, 1200
_CALLS: Final = 40_000  # of a request of any size
_CALLS_A_BYTE: Final = 4


def _chat(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts] or "Hi", **fields}]}


def _names(count: int, name: str = "name") -> dict[str, int]:
    return {f"{name}{number}": number for number in range(count)}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _called(*arguments: str) -> dict[str, Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    messages = _chat()["messages"]
    return {"messages": [*messages, {"role": "assistant", "tool_calls": calls}, *messages]}


_PICTURE: Final = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_SHAPES: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "fields": lambda n: {**_chat(), **_names(n)},
    "a long field": lambda n: {**_chat(), "messagez" * n: 1},
    "fields of items": lambda n: {**_chat(), "images": [{"width": 9, "height": 9, **_names(n)}]},
    "kwargs": lambda n: {**_chat(), "chat_template_kwargs": _names(n)},
    "similar kwargs": lambda n: {**_chat(), "chat_template_kwargs": _names(n, "enable_thinkin")},
    "nested kwargs": lambda n: {**_chat(), "chat_template_kwargs": {"a": _nested(n // 2)}},
    "long kwargs": lambda n: {**_chat(), "chat_template_kwargs": {"k" * 10 * n: 1}},
    "processor": lambda n: {**_chat(), "mm_processor_kwargs": _names(n, "max_pixel")},
    "media": lambda n: {**_chat(), "media_io_kwargs": _names(n)},
    "tools": lambda n: {**_chat(), "tools": [_tool(f"f{number}") for number in range(n)]},
    "properties": lambda n: {**_chat(), "tools": [_tool("f", **_names(n))]},
    "nested properties": lambda n: {**_chat(), "tools": [_tool("f", a=_nested(n // 2))]},
    "documents": lambda n: {**_chat(), "documents": [{"title": "a", "text": "b"}] * n},
    "messages": lambda n: {"messages": _chat()["messages"] * n},
    "systems": lambda n: {"messages": [{"role": "system", "content": "a"}] * n},
    "names of a message": lambda n: _chat(**_names(n)),
    "texts": lambda n: _chat(*[{"type": "text", "text": "a"}] * n),
    "types": lambda n: _chat(*[{"type": f"t{number}"} for number in range(n)]),
    "pictures": lambda n: _chat(*[{"type": "image"}] * n),
    "files": lambda n: _chat(*[_PICTURE] * n),
    "a long link": lambda n: _chat({"type": "image_url", "image_url": {"url": "http://a/" * n}}),
    "nested content": lambda n: _chat(_nested(n // 2)),
    "calls": lambda n: _called(*["{}"] * n),
    "arguments": lambda n: _called(json.dumps(_names(n))),
    "nested arguments": lambda n: _called("[" * n),
    "token IDs": lambda n: {"prompt_token_ids": [300] * n},
    "large token IDs": lambda n: {"prompt_token_ids": [2**70] * n},
}


def _calls(model: Normalizer, line: str) -> int:
    def answer() -> None:
        with contextlib.suppress(InexactError):
            model.answer(request_of(json_object(line)))

    model.normalize(**_chat())  # what is made once
    profile = cProfile.Profile()
    profile.runcall(answer)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_a_field_costs_no_more_than_it_weighs(
    backend: str, shape: str, small_model: Callable[[str], Path]
) -> None:
    model = Normalizer.from_pretrained(small_model("small-qwen3-vl"), backend=backend)
    few, many = (json.dumps(_SHAPES[shape](count)) for count in (_FEW, _MANY))
    calls_of_few, calls = _calls(model, few), _calls(model, many)
    assert calls <= _CALLS + _CALLS_A_BYTE * len(many)
    assert calls <= _CALLS // 4 + 5 * calls_of_few  # of four times as many


@pytest.mark.parametrize(
    "line",
    [
        {**_chat(), **_names(1001)},
        {**_chat(), "images": [{"width": 9, "height": 9, **_names(501)}] * 2},
    ],
)
def test_more_fields_than_are_compared_with_known_names_are_refused(line: dict[str, Any]) -> None:
    with pytest.raises(InexactError, match="more than 1000 fields") as caught:
        request_of(line)
    assert caught.value.reason is Reason.INVALID_REQUEST
