"""A client's body as a request, in Python and without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION, HI, MESSAGES, RESPONSES
from media_files import png_url
from server_helpers import error_of, serving
from starlette.testclient import TestClient

from mmroute import (
    InexactError,
    ModelError,
    Normalizer,
    Reason,
    Request,
    from_openai,
)
from mmroute.engines.vllm import VllmSettings
from mmroute.engines.vllm.bodies import BodyError
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.server import ModelSource
from mmroute.server.engines.vllm import ApiError, LoadedModel, answer_body

MODEL: Final = "small-llava-1.5"  # its template takes tools
IMAGE: Final = {"type": "image_url", "image_url": {"url": png_url(100, 60)}}
TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def client(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    with serving([ModelSource(str(small_model(MODEL)), ("a",))]) as found:
        yield found


# Whether a running vLLM 0.32.0 took tokens from its cache that it held: `cached_tokens`.
READS = [
    (CHAT, {"messages": HI}, True),
    (CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 2}, True),
    (CHAT, {"messages": HI, "prompt_logprobs": 0}, False),
    (CHAT, {"messages": HI, "prompt_logprobs": 1, "n": 2, "temperature": 1}, False),
    (CHAT, {"messages": HI, "echo": True}, False),
    (CHAT, {"messages": HI, "echo": True, "top_logprobs": None}, False),
    (CHAT, {"messages": HI, "vllm_xargs": {"skip_reading_prefix_cache": 1}}, True),
    (CHAT, {"messages": HI, "kv_transfer_params": {"do_remote_decode": False}}, True),
    (COMPLETION, {"prompt": [5, 6], "logprobs": 1}, True),
    (COMPLETION, {"prompt": "Hi", "prompt_logprobs": 0}, False),
    (COMPLETION, {"prompt": "Hi", "truncate_prompt_tokens": 1, "prompt_logprobs": 0}, False),
    (COMPLETION, {"prompt": [5, 6], "prompt_logprobs": 0}, False),
    (COMPLETION, {"prompt": "Hi", "echo": True}, True),
    (COMPLETION, {"prompt": "Hi", "echo": True, "max_tokens": 0}, True),
    (COMPLETION, {"prompt": "Hi", "echo": True, "logprobs": 0}, False),
    (RESPONSES, {"input": "Hi", "top_logprobs": 2, "echo": True, "prompt_logprobs": 0}, True),
    (MESSAGES, {"model": "a", "max_tokens": 5, "messages": HI, "prompt_logprobs": 0}, True),
]


@pytest.mark.parametrize(("path", "body", "reads"), READS)
def test_what_asks_for_scores_of_the_prompt_reads_no_cache(
    client: TestClient,
    small_model: Callable[[str], Path],
    path: str,
    body: dict[str, Any],
    reads: bool,
) -> None:
    def answer(query: str) -> dict[str, Any]:
        reply = client.post(path + query, json=body)
        assert reply.status_code == 200, reply.text
        found = reply.json()
        return found if isinstance(found, dict) else found[0]

    whole = answer("")
    assert whole["sampling_params"]["skip_reading_prefix_cache"] is not reads
    assert "reads_cache" not in whole  # it is the engine's own body
    for query in ("?fields=tokens", "?block_size=16", "?fields=tokens&block_size=16&hashes=dynamo"):
        assert answer(query).get("reads_cache", True) is reads
    if path in (CHAT, COMPLETION):
        normalizer = Normalizer.from_pretrained(small_model(MODEL))
        request = from_openai(body)._replace(truncate_prompt_tokens=None)
        assert normalizer.answer(request).reads_cache is reads


def test_a_text_is_not_cut_where_it_is_another_beside_special_tokens(
    client: TestClient, small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a tokenizer that merges the first letter with what it adds before."""
    tokenizer = type(Normalizer.from_pretrained(small_model(MODEL)).model.tokenizer)
    encode = tokenizer.encode

    def merging(self: Any, text: str, *, add_special_tokens: bool) -> Any:
        ids = encode(self, text, add_special_tokens=add_special_tokens)
        return ids[:1] if add_special_tokens and text == "a" else ids

    monkeypatch.setattr(tokenizer, "encode", merging)
    answer = client.post(COMPLETION, json={"prompt": "Hi there", "truncate_prompt_tokens": 2})
    assert error_of(answer) == (422, "InexactRouting", "unsupported_field")


def test_a_beam_search_reads_the_cache() -> None:
    """It asks for no scores of the prompt, whatever the request does."""
    body = {"messages": HI, "use_beam_search": True, "n": 2, "prompt_logprobs": 0}
    assert from_openai(body).reads_cache


# Source: vLLM 0.33.0 rust/src/server/src/routes.rs.
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/render", {"messages": HI, "max_tokens": 5}),
        ("/v1/messages/count_tokens", {"messages": HI}),
        ("/v1/responses/render", {"input": "Hi"}),
        ("/v1/responses/input_tokens", {"input": "Hi"}),
    ],
)
def test_the_rust_frontend_has_fewer_routes(
    small_model: Callable[[str], Path], path: str, body: dict[str, Any]
) -> None:
    settings = RustSettings()
    normalizer = Normalizer.from_pretrained(small_model(MODEL), engine_settings=settings)
    model = LoadedModel.of(normalizer, "a")
    with pytest.raises(ApiError) as found:
        answer_body(model, path, {"model": "a", **body})
    assert found.value.status == 501


# Source: vLLM 0.33.0 rust/src/server/src/routes/openai/chat_completions/convert.rs
# (`normalize_generation_prompt_mode`, `convert_tool_choice`).
def test_options_of_chats_behind_the_rust_frontend(small_model: Callable[[str], Path]) -> None:
    settings = RustSettings(tool_parser="hermes")
    normalizer = Normalizer.from_pretrained(small_model(MODEL), engine_settings=settings)
    model = LoadedModel.of(normalizer, "a")

    def answered(**fields: Any) -> list[int]:
        reply = answer_body(model, CHAT, {"model": "a", "messages": HI, **fields})
        ids: list[int] = reply.routings[0].token_ids.tolist()
        return ids

    named = {"type": "function", "function": {"name": "f"}}
    assert answered(tools=[TOOL], tool_choice=named) == answered(tools=[TOOL])
    chat = [*HI, {"role": "assistant", "content": "The"}]
    continued = answered(messages=chat, continue_final_message=True)
    assert continued == answered(
        messages=chat, continue_final_message=True, add_generation_prompt=False
    )
    with pytest.raises(ApiError):
        answered(messages=chat, continue_final_message=True, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("body", "reason", "param"),
    [
        ({"messages": HI, "temperature": "hot"}, Reason.INVALID_REQUEST, "body.temperature"),
        ({"messages": HI, "tools": []}, Reason.INVALID_REQUEST, "tools"),
        ({"messages": HI, "kv_transfer_params": {"prompt_token_ids": [1]}},
         Reason.UNSUPPORTED_FIELD, None),
        ({"prompt": ["a", "b"]}, Reason.UNSUPPORTED_FIELD, None),
        ({"prompt": "a", "suffix": "b"}, Reason.INVALID_REQUEST, "suffix"),
        ({"prompt": None}, Reason.INVALID_REQUEST, "prompt"),
        ({}, Reason.INVALID_REQUEST, "body.messages"),
        ({"model": "m", "temperature": 0}, Reason.INVALID_REQUEST, "body.messages"),
        (None, Reason.INVALID_REQUEST, "body"),
        ([], Reason.INVALID_REQUEST, "body"),
        ("x", Reason.INVALID_REQUEST, "body"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_field(body: Any, reason: Reason, param: str | None) -> None:
    with pytest.raises(BodyError) as refused:
        from_openai(body)
    assert (refused.value.reason, refused.value.param) == (reason, param)


def test_a_body_is_left_as_it_was() -> None:
    body = {"prompt": "a", "return_mm_kwargs": False}
    from_openai(body)
    assert body == {"prompt": "a", "return_mm_kwargs": False}


@pytest.mark.parametrize(
    ("field", "plain", "trusting"),
    [
        ({"mm_processor_kwargs": {"max_pixels": 3136}}, Reason.INVALID_REQUEST, None),
        ({"media_io_kwargs": {"image": {}}}, Reason.INVALID_REQUEST, None),
        ({"chat_template": "x"}, Reason.INVALID_REQUEST, Reason.UNSUPPORTED_FIELD),
        ({"chat_template_kwargs": {"chat_template": "x"}}, Reason.INVALID_REQUEST,
         Reason.UNSUPPORTED_FIELD),
    ],
)  # fmt: skip
def test_a_normalizer_knows_what_clients_may_set(
    small_model: Callable[[str], Path], field: dict[str, Any], plain: Reason, trusting: Reason
) -> None:
    request = from_openai({"messages": [{"role": "user", "content": [IMAGE]}], **field})
    assert isinstance(request, Request)
    line = "vllm serve a --trust-request-mm-kwargs --trust-request-chat-template"
    for settings, reason in ((None, plain), (VllmSettings.from_args(line), trusting)):
        model = small_model("small-qwen2.5-vl")
        normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
        assert normalizer.answer(request).reason is reason


def test_the_fields_are_those_of_the_release() -> None:
    assert from_openai({"messages": HI, "reasoning_effort": "max"}).reasoning_effort == "max"
    with pytest.raises(InexactError):
        from_openai({"messages": HI, "reasoning_effort": "max"}, backend="vllm==0.18.1")
    with pytest.raises(ModelError):
        from_openai({"messages": HI}, backend="vllm==0.1")
