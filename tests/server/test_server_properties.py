"""Whatever a client sends: an answer, or an error of the one shape; never a 500."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION, DETOKENIZE, HI, MESSAGES, RESPONSES, TOKENIZE, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_files import png_url
from odd_types import JSON_VALUES, changed, requests
from server_helpers import answers_to, error_of, posted, serving
from starlette.testclient import TestClient

from mmroute.server import ModelSource, ServerSettings
from mmroute.server.openapi import openapi

_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
_SAID: Final = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
_RIGHT: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    *((path, body) for body in requests() for path in (
        (CHAT, TOKENIZE) if "messages" in body else (COMPLETION, TOKENIZE)
    )),
    *((MESSAGES, body) for body in (
        {"model": "a", "max_tokens": 5, "messages": [_SAID], "system": _SAID["content"],
         "tools": [{"name": "f", "description": "d", "input_schema": _SCHEMA}],
         "tool_choice": {"type": "tool", "name": "f"}, "thinking": {"type": "disabled"}},
        {"model": "a", "max_tokens": 5, "messages": [
            _SAID,
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "42"},
                {"type": "image", "source": {"type": "url", "url": png_url(8, 8)}}]}]},
    )),
    *((RESPONSES, body) for body in (
        {"input": "Hi", "instructions": "Be kind.", "reasoning": {"effort": "low"},
         "text": {"format": {"type": "json_schema", "name": "s", "schema": _SCHEMA}},
         "tools": [{"type": "function", "name": "f", "parameters": _SCHEMA, "strict": True}]},
        {"input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]}]},
    )),
)  # fmt: skip
_SCALARS: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
_ANYTHING: Final = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
_PARTS: Final = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image_url", "image", "refusal", "video_url", "x"]),
        "text": _SCALARS,
        "image_url": st.sampled_from([{"url": png_url(8, 8)}, {"url": "data:,"}, None, 5]),
        "uuid": _SCALARS,
    },
)
_MESSAGES: Final = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "tool", "x"])},
        optional={
            "content": st.text(max_size=20) | st.lists(_PARTS, max_size=3) | _SCALARS,
            "tool_calls": _ANYTHING,
            "name": _SCALARS,
        },
    ),
    max_size=3,
)
_ITEMS: Final = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning", "function_call_output"])},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "x"]),
        "content": st.text(max_size=20) | st.lists(_ANYTHING, max_size=3),
        "output": st.text(max_size=20) | _ANYTHING,
        "tool_calls": _ANYTHING,
        "call_id": _SCALARS,
        "name": _SCALARS,
        "arguments": _SCALARS,
        "summary": st.just([]) | _ANYTHING,
        "status": st.sampled_from(["completed", "incomplete", None]),
    },
)
_FIELDS: Final = sorted(
    {
        name
        for schema in openapi(ServerSettings(), ())["components"]["schemas"].values()
        for name in schema.get("properties", ())
    }
)
_LIKELY: Final[dict[str, st.SearchStrategy[Any]]] = {
    "messages": _MESSAGES | st.just(HI) | _ANYTHING,
    "prompt": st.text(max_size=20) | st.lists(st.integers(-1, 700), max_size=5) | _ANYTHING,
    "tokens": st.lists(st.integers(-1, 700), max_size=5) | _ANYTHING,
    "model": st.sampled_from(["", "a", None, 5, "nope"]),
    "max_tokens": st.just(5) | _ANYTHING,
    "input": st.text(max_size=20) | st.lists(_ITEMS, max_size=3) | _ANYTHING,
}
# Few fields beside those that decide which form a body has: else hardly any gets past the checks.
_NEARLY_RIGHT: Final = st.builds(
    lambda body, more: {**more, **body},
    st.fixed_dictionaries({
        "messages": _LIKELY["messages"], "prompt": _LIKELY["prompt"], "tokens": _LIKELY["tokens"],
        "input": _LIKELY["input"], "max_tokens": _LIKELY["max_tokens"],
    }),
    st.dictionaries(st.sampled_from(_FIELDS), _ANYTHING, max_size=2),
)  # fmt: skip


@pytest.fixture(scope="module")
def client(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    source = ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))
    with serving([source], ServerSettings(trust_request_mm_kwargs=True)) as found:
        yield found


@settings(suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from([TOKENIZE, DETOKENIZE, CHAT, COMPLETION, MESSAGES, RESPONSES]),
    body=_NEARLY_RIGHT | _ANYTHING,
)
def test_any_json_gets_an_answer_or_an_error(client: TestClient, path: str, body: Any) -> None:
    (answer,) = answers_to(client, [posted(path, body)])
    if answer.status_code == 200:
        answer.json()
    else:
        assert error_of(answer)[0] in (400, 404, 422, 501)


def test_values_of_other_types(client: TestClient) -> None:
    draw = random.Random(6)
    bodies = [posted(CHAT, {"messages": user({"type": [], "uuid": "u"}, {"type": "text"})})]
    while len(bodies) < 300:
        path, body = draw.choice(_RIGHT)
        with contextlib.suppress(ValueError, RecursionError):  # too long or too deep for JSON
            bodies.append(posted(path, changed(body, draw, JSON_VALUES)))
    for answer in answers_to(client, bodies):
        assert answer.status_code == 200 or error_of(answer)[0] in (400, 404, 413, 422, 501)


@settings(suppress_health_check=list(HealthCheck))
@given(raw=st.binary(max_size=200))
def test_any_bytes_get_an_answer_or_an_error(client: TestClient, raw: bytes) -> None:
    answer = client.post(TOKENIZE, content=raw, headers={"content-type": "application/json"})
    if answer.status_code == 200:  # some bytes are a request
        assert "prompt" in json.loads(raw)
    else:
        assert error_of(answer)[0] == 400
