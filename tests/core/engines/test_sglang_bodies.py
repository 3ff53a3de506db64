"""Clients' bodies of SGLang's routes, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmroute import InexactError, Normalizer, Reason, from_openai

HI = [{"role": "user", "content": "Hello there, how are you today? " * 9}]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("clock", "weather")
]


@pytest.fixture
def normalizer(small_model: Callable[[str], Path]) -> Normalizer:
    return Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), backend="sglang")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"messages": HI, "temperature": -1, "stream": True}, {"messages": HI}),
        ({"messages": HI, "tools": TOOLS, "tool_choice": "none"}, {"messages": HI}),
        (
            {
                "messages": HI,
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "weather"}},
            },
            {"messages": HI, "tools": TOOLS[1:]},
        ),
        ({"messages": HI, "input_ids": [5, 6, 7]}, {"prompt_token_ids": [5, 6, 7]}),
        ({"messages": HI, "reasoning": {"effort": "low"}},
         {"messages": HI, "reasoning_effort": "low"}),
        ({"messages": HI, "reasoning": {"enabled": "yes"}},
         {"messages": HI, "chat_template_kwargs": {"enable_thinking": True}}),
        ({"messages": HI, "thinking": {"type": "enabled"}}, {"messages": HI}),
        ({"messages": HI, "chat_template_kwargs": {"padding": True, "max_length": 3,
                                                   "continue_final_message": None}},
         {"messages": HI}),
        ({"messages": [*HI, {"role": "assistant", "content": "Well"}],
          "continue_final_message": "yes"},
         {"messages": [*HI, {"role": "assistant", "content": "Well"}],
          "continue_final_message": True}),
        ({"prompt": "Hello"}, {"prompt": "Hello"}),
        ({"prompt": ["Hello"]}, {"prompt": "Hello"}),
        ({"prompt": [5, 6, 7], "cache_salt": "a"}, {"prompt_token_ids": [5, 6, 7]}),
    ],
)  # fmt: skip
def test_a_body_is_the_request_that_it_says(
    normalizer: Normalizer, body: dict[str, Any], fields: dict[str, Any]
) -> None:
    routing = normalizer.answer(from_openai(body, backend="sglang"))
    assert routing.token_ids.tolist() == normalizer.normalize(**fields).token_ids.tolist()
    assert routing.cache_salt == body.get("cache_salt")


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"model": "qwen:sql"}, Reason.UNSUPPORTED_FIELD),
        ({"lora_path": "sql"}, Reason.UNSUPPORTED_FIELD),
        ({"extra_key": "team"}, Reason.UNSUPPORTED_ENGINE_SETTING),
    ],
)
def test_what_no_event_shows_has_no_page_hashes(
    normalizer: Normalizer, field: dict[str, Any], reason: Reason
) -> None:
    routing = normalizer.answer(from_openai({"messages": HI, **field}, backend="sglang"))
    assert len(routing.token_ids)
    with pytest.raises(InexactError) as refused:
        routing.page_hashes(16)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("model", "adapter"), [("qwen", None), ("qwen:sql", "sql"), ("qwen: sql:v2 ", "sql:v2")]
)
def test_an_adapter_stands_behind_the_first_colon(model: str, adapter: str | None) -> None:
    found = from_openai({"messages": HI, "model": model}, backend="sglang").lora
    assert (found and found.name) == adapter


def test_log_probabilities_of_a_prompt_are_not_read_from_the_cache() -> None:
    body = {"prompt": "Hello", "echo": True, "logprobs": 1}
    assert not from_openai(body, backend="sglang").reads_cache
    assert from_openai({**body, "echo": False}, backend="sglang").reads_cache


@pytest.mark.parametrize(
    "body",
    [
        [], {"prompt": ["a", "b"]}, {"prompt": None}, {"prompt": [1, "a"]},
        {"messages": HI, "model": None}, {"messages": HI, "extra_key": 1},
        {"messages": HI, "lora_path": 1}, {"messages": HI, "continue_final_message": None},
        {"messages": HI, "reasoning": {"effort": []}},
        {"messages": HI, "reasoning": {"effort": "x"}},
        {"messages": HI, "reasoning": {"effort": 10**400}},
    ],
)  # fmt: skip
def test_bodies_that_are_no_single_request_are_refused(body: Any) -> None:
    with pytest.raises(InexactError):
        from_openai(body, backend="sglang")


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"reasoning_effort": 1}, Reason.INVALID_REQUEST),
        ({"chat_template_kwargs": {"documents": ["a"]}}, Reason.INVALID_REQUEST),
        ({"chat_template_kwargs": {"continue_final_message": 1}}, Reason.INVALID_REQUEST),
        ({"chat_template_kwargs": {"seed": 1 << 70}}, Reason.UNSUPPORTED_FIELD),
        ({"tools": [{**TOOLS[0], "function": {"name": "f", "parameters": {"default": 1 << 70}}}]},
         Reason.UNSUPPORTED_FIELD),
    ],
)  # fmt: skip
def test_fields_that_the_engine_reads_otherwise_are_refused(
    normalizer: Normalizer, field: dict[str, Any], reason: Reason
) -> None:
    routing = normalizer.answer(from_openai({"messages": HI, **field}, backend="sglang"))
    assert routing.reason is reason


@pytest.mark.parametrize("url", ["DATA:image/png;base64,AAAA", "Data:image/png;base64,AAAA"])
def test_data_urls_begin_in_small_letters(normalizer: Normalizer, url: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": url}}
    chat = [{"role": "user", "content": [picture]}]
    routing = normalizer.answer(from_openai({"messages": chat}, backend="sglang"))
    assert routing.reason is Reason.INVALID_REQUEST
