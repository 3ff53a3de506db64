"""Requests of the Anthropic Messages API and of the OpenAI Responses API: the chats they are."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product, starmap
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, HI, MESSAGES, RESPONSES, TOKENIZE
from media_files import png_url
from odd_types import JSON_VALUES, changed
from server_helpers import answers_to, error_of, posted, serving
from server_vectors import HARMONY_MODEL, requests_to, served_files
from small_models import write_model
from starlette.testclient import TestClient

from mmroute import Request
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.normalizer import Normalizer
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.api import Cost, read
from mmroute.server.api_errors import ApiError
from mmroute.server.bodies import LONG_STRUCTURE, Body, check_body, check_text
from mmroute.server.engines.vllm.bodies.messages import AnthropicMessagesRequest
from mmroute.server.engines.vllm.bodies.messages_rules import messages_rules
from mmroute.server.engines.vllm.routes import API

COUNT_TOKENS: Final = "/v1/messages/count_tokens"
INPUT_TOKENS: Final = "/v1/responses/input_tokens"
URL: Final = png_url(100, 60)
SOURCE: Final = {"type": "base64", "media_type": "image/png", "data": URL.partition(",")[2]}
IMAGE: Final = {"type": "image_url", "image_url": {"url": URL}}
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}}
HEADER: Final = "x-anthropic-billing-header: 1"
# A chat with a call of a tool in it, and the same in either API.
CALL: Final = {"id": "call_1", "type": "function",
               "function": {"name": "f", "arguments": '{"a": 1}'}}  # fmt: skip
TOOL: Final = {"type": "function",
               "function": {"name": "f", "description": "d", "parameters": SCHEMA}}  # fmt: skip
CONVERSATION: Final[Mapping[str, Any]] = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]},
        {"role": "assistant", "reasoning": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": [TOOL],
}
AS_MESSAGES: Final[Mapping[str, Any]] = {
    "system": [{"type": "text", "text": HEADER}, {"type": "text", "text": "Be kind."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"},
                                     {"type": "image", "source": SOURCE}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "42"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "max_tokens": 9,
    "model": "a",
}  # fmt: skip
AS_ITEMS: Final[Mapping[str, Any]] = {
    "instructions": "Be kind.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "What is it?"},
                                     {"type": "input_image", "image_url": URL}]},
        {"type": "reasoning", "summary": [],
         "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "A cat."}]},
        {"role": "user", "content": "Sure?"},
    ],
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
              {"type": "web_search"}],
    "max_output_tokens": 9,
}  # fmt: skip


@pytest.fixture(scope="module")
def client(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    source = ModelSource(str(small_model("small-llava-1.5")), ("a",))  # its template takes tools
    with serving([source], ServerSettings()) as found:
        yield found


def answered(client: TestClient, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def check_same(client: TestClient, chat: Mapping[str, Any], path: str, body: Any) -> None:
    expected = answered(client, CHAT, {**chat, "max_completion_tokens": 9})
    found = answered(client, path, body)
    assert list(found) == list(expected)
    for name in ("token_ids", "features"):
        assert found[name] == expected[name]
    assert found["sampling_params"]["max_tokens"] == 9
    assert len(found["features"]["mm_hashes"]["image"]) == 1


def test_messages_are_the_chat_they_say(client: TestClient) -> None:
    check_same(client, CONVERSATION, MESSAGES, AS_MESSAGES)


def test_what_is_told_beside_the_prompt(client: TestClient) -> None:
    found = answered(client, MESSAGES, {**AS_MESSAGES, "stream": True})
    assert found["request_id"].startswith("chatcmpl-")
    assert found["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert found["parse_context"]["tool_choice"] == "auto"
    assert found["parse_context"]["history_tool_call_cnt"] == 1


def test_requests_are_counted_as_they_are_rendered(client: TestClient) -> None:
    rendered = len(answered(client, MESSAGES, AS_MESSAGES)["token_ids"])
    body = {name: value for name, value in AS_MESSAGES.items() if name != "max_tokens"}
    for more in ({}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"max_tokens": 0}):
        # vLLM 0.33.0: AnthropicCountTokensResponse.
        assert answered(client, COUNT_TOKENS, body | more) == {
            "input_tokens": rendered,
            "context_management": {"original_input_tokens": rendered},
        }
    found = answered(client, INPUT_TOKENS, AS_ITEMS)
    rendered = len(answered(client, RESPONSES, AS_ITEMS)["token_ids"])
    # OpenAI's server: object and input_tokens.
    assert found == {"object": "response.input_tokens", "input_tokens": rendered}


def test_block_hashes_are_those_of_the_chat(client: TestClient) -> None:
    query = "?block_size=16&algorithm=sha256"
    salt = {"cache_salt": "s"}
    chat = answered(client, CHAT + query, {**CONVERSATION, **salt})["block_hashes"]
    assert answered(client, MESSAGES + query, {**AS_MESSAGES, **salt})["block_hashes"] == chat
    assert answered(client, MESSAGES + query, AS_MESSAGES)["block_hashes"] != chat


def test_mistral_s_own_tokenizers_take_texts_of_the_responses_api() -> None:
    with serving([ModelSource("pixtral-12b-2409", ("a",))], ServerSettings()) as client:
        text = answered(client, RESPONSES, {"input": "Hi", "chat_template_kwargs": {"a": 1}})
        assert text["token_ids"] == answered(client, CHAT, {"messages": HI})["token_ids"]
        chat = {"messages": [{"role": "user", "content": [IMAGE]}], "return_token_offsets": True}
        assert answered(client, CHAT, chat)["token_offsets"] is None
        parts = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]}
        assert error_of(client.post(RESPONSES, json=parts)) == (400, "BadRequestError", None)


def test_long_ids_of_calls_are_shortened_in_chats_of_mistral_s_own_tokenizers() -> None:
    def history(call_id: str, result_id: str) -> list[dict[str, Any]]:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return [
            {"role": "user", "content": "How much gas?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": result_id, "content": "41"},
            {"role": "user", "content": "And?"},
        ]

    def as_items(call_id: str) -> list[dict[str, Any]]:
        call = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": call_id, "output": "41"}
        return [{"role": "user", "content": "How much gas?"}, call, result]

    with serving([ModelSource("pixtral-12b-2409", ("a",))], ServerSettings()) as client:
        short = history("ab12cd345", "ab12cd345")
        expected = answered(client, CHAT, {"messages": short})["token_ids"]
        for ids in (("call_ab12cd345", "ab12cd345"), ("call_ab12cd345", "toolu_é_ab12cd345")):
            assert answered(client, CHAT, {"messages": history(*ids)})["token_ids"] == expected
        for ids in (("c1", "c1"), ("call_ab12_d345", "call_ab12_d345")):
            reply = client.post(CHAT, json={"model": "a", "messages": history(*ids)})
            assert error_of(reply) == (400, "BadRequestError", None)
        assert answered(client, RESPONSES, {"input": as_items("ab12cd345")})["token_ids"]
        reply = client.post(RESPONSES, json={"model": "a", "input": as_items("call_ab12cd345")})
        assert error_of(reply) == (422, "InexactRouting", "unsupported_field")


def test_late_tool_calls_are_not_counted_for_mistral_s_own_tokenizers() -> None:
    call = {"id": "ab12cd345", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "ab12cd345", "content": "41"}
    with serving([ModelSource("pixtral-12b-2409", ("a",))], ServerSettings()) as client:

        def status(path: str, *messages: Mapping[str, Any]) -> int:
            chat = {"model": "a", "messages": [*HI, *messages, *HI]}
            return int(client.post(path, json=chat).status_code)

        done = {"role": "assistant", "content": "done"}
        late = {**asked, "content": None}
        assert status(CHAT, late, result, done) == 200
        assert status(TOKENIZE, late, result, done) == 422
        assert status(TOKENIZE, {**done, "tool_calls": []}) == 422
        without = {name: value for name, value in asked.items() if name != "content"}
        for taken in (asked, without, {**asked, "refusal": None}):
            assert status(TOKENIZE, taken, result, done) == 200


@pytest.mark.parametrize(("parser", "fails"), [("glm45", True), ("ling3", True), ("hermes", False)])
def test_properties_of_which_a_parser_makes_no_grammar(
    small_model: Callable[[str], Path], parser: str, fails: bool
) -> None:
    settings = VllmSettings.from_args(
        f"vllm serve x --tool-call-parser {parser} --enable-auto-tool-choice"
    )
    model = ModelSource(str(small_model("small-llava-1.5")), ("a",), engine_settings=settings)
    schema = {"type": "object", "properties": {"x": True}}
    function = {"name": "f", "parameters": schema}
    choices = {"auto": "auto", "required": "any", "none": "none"}
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {"messages": HI, "tools": [{"type": "function", "function": function}]},
        RESPONSES: {"input": "Hi", "tools": [{"type": "function", **function}]},
        MESSAGES: {
            "messages": HI, "max_tokens": 9, "tools": [{"name": "f", "input_schema": schema}],
        },
    }  # fmt: skip
    with serving([model], ServerSettings()) as client:
        for (path, body), (choice, of_messages) in product(bodies.items(), choices.items()):
            of_route = {"type": of_messages} if path == MESSAGES else choice
            reply = client.post(path, json={"model": "a", **body, "tool_choice": of_route})
            assert reply.status_code == (422 if fails and choice != "none" else 200)


@pytest.mark.parametrize("parser", ["", "--tool-call-parser hermes --enable-auto-tool-choice"])
def test_calls_that_are_asked_for_and_have_not_one_tool(
    small_model: Callable[[str], Path], parser: str
) -> None:
    settings = VllmSettings.from_args(f"vllm serve x {parser}")
    model = ModelSource(str(small_model("small-llava-1.5")), ("a",), engine_settings=settings)
    function = {"type": "function", "name": "f", "parameters": {}}
    hosted, custom = {"type": "web_search"}, {"type": "custom", "name": "c"}
    namespace = {"type": "namespace", "name": "n", "description": "", "tools": [custom]}
    named = {"type": "function", "name": "f"}
    tools_of_chat = [{"type": "function", "function": {"name": "f"}}]
    chosen = {"type": "function", "function": {"name": "f"}}
    of_messages = {"name": "f", "input_schema": {}}
    as_messages = {"messages": HI, "max_tokens": 9, "tool_choice": {"type": "tool", "name": "f"}}
    cases: list[tuple[str, dict[str, Any], bool]] = [
        (CHAT, {"messages": HI, "tools": tools_of_chat * 2, "tool_choice": chosen}, True),
        (CHAT, {"messages": HI, "tools": tools_of_chat, "tool_choice": chosen}, False),
        (CHAT, {"messages": HI, "tools": tools_of_chat * 2, "tool_choice": "required"}, False),
        (MESSAGES, {**as_messages, "tools": [of_messages] * 2}, True),
        (MESSAGES, {**as_messages, "tools": [of_messages]}, False),
        (MESSAGES, {**as_messages, "tools": []}, False),
        (RESPONSES, {"tools": [function] * 2, "tool_choice": named}, True),
        (RESPONSES, {"tools": [function, custom], "tool_choice": named}, False),
        (RESPONSES, {"tools": [hosted], "tool_choice": "required"}, True),
        (RESPONSES, {"tools": [namespace], "tool_choice": "required"}, True),
        (RESPONSES, {"tools": [namespace], "tool_choice": {"type": "custom", "name": "c"}}, True),
        (RESPONSES, {"tools": [hosted]}, False),
        (RESPONSES, {"tools": [hosted, custom], "tool_choice": "required"}, False),
    ]
    with serving([model], ServerSettings()) as client:
        for path, fields, fails in cases:
            body = {"model": "a", **({"input": "Hi"} if path == RESPONSES else {}), **fields}
            found = client.post(path, json=body).status_code
            assert found == (422 if fails and parser else 200), body


def test_harmony_needs_the_date_of_an_engine_without_tools_of_its_own(tmp_path: Path) -> None:
    directory = str(write_model(served_files(HARMONY_MODEL), tmp_path / "model"))
    settings = VllmSettings.from_args("VLLM_SYSTEM_START_DATE=2026-01-02 --tool-server demo")
    undated = ModelSource(directory, ("undated",))
    described = ModelSource(directory, ("described",), engine_settings=settings)
    with serving([undated, described], ServerSettings()) as client:
        reply = client.post(RESPONSES, json={"model": "undated", "input": "Hi"})
        assert error_of(reply) == (422, "InexactRouting", "chat_renderer_unsupported")
        body = {"model": "described", "input": "Hi"}
        assert answered(client, RESPONSES, body)["token_ids"]
        mcp = {"type": "mcp", "server_label": ["a"]}
        assert client.post(RESPONSES, json={**body, "tools": [mcp]}).status_code == 400
        for kind in ("web_search_preview", "mcp"):
            tool = {"type": kind, "server_label": "code_interpreter"}
            reply = client.post(RESPONSES, json={**body, "tools": [tool]})
            assert error_of(reply) == (422, "InexactRouting", "unsupported_field")


def test_odd_requests_get_an_answer_or_an_error(client: TestClient) -> None:
    draw = random.Random(1)
    asked = [case for case in requests_to("small-qwen2.5-vl") if case.path in (MESSAGES, RESPONSES)]
    listed = [(case.path, {**case.body, "model": "a"}) for case in asked]
    requests = list(starmap(posted, listed))
    for path, body in listed * 2:
        with contextlib.suppress(ValueError, RecursionError):  # too long or too deep for JSON
            requests.append(posted(path, changed(body, draw, JSON_VALUES)))
    for request, answer in zip(requests, answers_to(client, requests), strict=True):
        if answer.status_code != 200:
            assert error_of(answer)[0] in (400, 404, 413, 422, 501), request.content


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MESSAGES, {**AS_MESSAGES, "messages": [*HI, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {"a": "INNER"}}]}]}),
        (MESSAGES, {**AS_MESSAGES, "messages": [*HI, {"role": "assistant", "content": [
            {"type": "tool_result", "content": [{"a": "INNER"}]}]}]}),
        (CHAT, {"messages": HI, "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"a": "INNER"}}}]}),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"a": "INNER"}}),
    ],
)  # fmt: skip
def test_json_of_any_depth_gets_an_answer_or_an_error(
    client: TestClient, path: str, body: dict[str, Any]
) -> None:
    """How deep is too deep depends on Python, and is not the same for reading and for writing."""
    headers, found = {"content-type": "application/json"}, set()
    for depth in (*range(800, 1000, 25), 5_000, 20_000, 50_000, 200_000):
        inner = '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2)
        raw = json.dumps(body).replace('"INNER"', inner).encode()
        found.add(client.post(path, content=raw, headers=headers).status_code)
    assert found == {200, 400}


# --- what is found out about a model ------------------------------------------------------------


def rules_of(normalizer: Normalizer, template: str, *options: str) -> Any:
    chat = normalizer.model.chat.with_template(template, "a test")
    asked = replace(normalizer, model=replace(normalizer.model, chat=chat))

    def prompt_of(request: Request) -> bytes | None:
        routing = asked.answer(request)
        return routing.token_ids.tobytes() if routing.exact else None

    return messages_rules(chat, prompt_of, options)


EVERY: Final = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
FIRST: Final = "{% if messages[2].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + EVERY


@pytest.mark.parametrize(
    ("template", "merged"),
    [(EVERY, False), (FIRST, True), ("{% generation %}{% endgeneration %}" + EVERY, True),
     ("{{ bos_token + 'a' }}" + EVERY, True)],
)  # fmt: skip
def test_system_messages_are_merged_where_the_engine_finds_that_it_must(
    normalizer: Callable[[str], Normalizer], template: str, merged: bool
) -> None:
    rules = rules_of(normalizer("small-qwen2.5-vl"), template)
    assert rules.merges_system is merged
    inline = [*HI, {"role": "system", "content": "a"}, *HI]
    fields = {"model": "a", "max_tokens": 1, "messages": inline, "system": "b"}
    request = AnthropicMessagesRequest.model_validate(fields)
    roles = ["system", "user", "user"] if merged else ["system", "user", "system", "user"]
    messages = request.to_chat(rules).messages
    assert [message["role"] for message in messages] == roles
    assert messages[0]["content"] == ("ba" if merged else "b")


@pytest.mark.parametrize(
    ("template", "effort"),
    [
        (EVERY, "low"),
        (EVERY + "{{ reasoning_effort }}", "none"),
        ("{% if enable_thinking is false %}off{% endif %}" + EVERY, "none"),
        ("{{ raise_exception('x') if reasoning_effort == 'none' }}" + EVERY, "low"),
    ],
)
def test_thinking_is_disabled_as_far_as_the_template_can(
    normalizer: Callable[[str], Normalizer], template: str, effort: str
) -> None:
    assert rules_of(normalizer("small-qwen2.5-vl"), template).disabled_effort == effort


def test_an_engine_s_own_effort_is_not_guessed(normalizer: Callable[[str], Normalizer]) -> None:
    option = "--anthropic-disabled-thinking-effort"
    assert rules_of(normalizer("small-qwen2.5-vl"), EVERY, option).disabled_effort is None


# --- what a request costs -----------------------------------------------------------------------


def cost(path: str, body: Mapping[str, Any], settings: ServerSettings | None = None) -> Cost:
    read(API.schema(path, "vllm", VllmSettings()), body)
    found = API.cost(path, body, len(json.dumps(body)))
    check_text(found.text, settings or ServerSettings())
    return found


def test_pictures_cost_as_those_of_a_chat() -> None:
    big = "A" * 640_000
    blocks = [{"type": "image", "source": {**SOURCE, "data": big}}]
    result = {"type": "tool_result", "content": blocks}
    for content in (blocks, [result]):
        found = cost(MESSAGES, {**AS_MESSAGES, "messages": [{"role": "user", "content": content}]})
        assert (found.files, found.text < 1000, found.links) == (len(big), True, 0)
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{big}"}
    items = [{"role": "user", "content": [part, {**part, "image_url": "https://a/b"}]}]
    found = cost(RESPONSES, {"input": items})
    assert (found.files > len(big), found.text < 1000, found.links) == (True, True, 1)


def test_pictures_are_no_text_before_they_are_parsed() -> None:
    settings = ServerSettings(max_text_bytes=50_000)
    for separators in ((",", ":"), (", ", ": ")):
        raw = json.dumps({"type": "base64", "data": "A" * 90_000}, separators=separators)
        assert check_body(Body(raw.encode()), settings) < LONG_STRUCTURE
    too_much = ({"text": "A" * 90_000}, {"data": "\\" * 45_000}, {"data": "\u00e4" * 45_000},
                {"data": {"a": "A" * 90_000}})  # fmt: skip
    for body in too_much:
        with pytest.raises(ApiError):
            check_body(Body(json.dumps(body, ensure_ascii=False).encode()), settings)
    text = {**AS_MESSAGES, "chat_template_kwargs": {"data": "A" * 90_000}}
    assert check_body(Body(json.dumps(text).encode()), settings) < LONG_STRUCTURE
    with pytest.raises(ApiError):
        cost(MESSAGES, text, settings)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {
            "type": "image", "source": {"data": "A" * 9999}}}]},
        {"role": "assistant", "content": [{"type": "tool_result", "content": [
            {"type": "image", "source": {"data": "A" * 9999}}]}]},
        {"role": "user", "content": [{"type": "text", "text": "data:;base64," + "A" * 9999}]},
    ],
)  # fmt: skip
def test_text_that_looks_like_a_picture_costs_as_text(message: Mapping[str, Any]) -> None:
    assert cost(MESSAGES, {**AS_MESSAGES, "messages": [message]}).text > 9999
