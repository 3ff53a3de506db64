"""Recorded pairs of real models; there are none where `MMROUTE_MODELS` is not set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import real_models
from server_cases import png_url
from server_helpers import CHAT, COMPLETION, DETOKENIZE, HI, TOKENIZE, serving
from starlette.testclient import TestClient

from mmroute.server import ModelSource

ROOT = real_models()

if ROOT is not None:
    QWEN, LLAVA = "qwen2.5-vl-3b-instruct", "llava-1.5-7b-hf"
    HEAD = [151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198, 151644, 872, 198]
    CHAT_IDS = [*HEAD, 13048, 151645, 198, 151644, 77091, 198]
    HELLO = {"prompt": "Hello wörld <|im_end|>", "return_token_strs": True,
             "add_special_tokens": False}  # fmt: skip

    @pytest.fixture(scope="module")
    def client() -> Iterator[TestClient]:
        assert ROOT is not None
        with serving([ModelSource(str(ROOT / name), (name,)) for name in (QWEN, LLAVA)]) as found:
            yield found

    @pytest.mark.parametrize(
        ("path", "body", "expected"),
        [
            (TOKENIZE, HELLO, {
                "count": 6, "max_model_len": 128000,
                "tokens": [9707, 289, 9416, 507, 220, 151645],
                "token_strs": ["Hello", "Ġw", "Ã¶r", "ld", "Ġ", "<|im_end|>"],
            }),
            (TOKENIZE, {"messages": HI}, {
                "count": 20, "max_model_len": 128000, "tokens": CHAT_IDS, "token_strs": None,
            }),
            (TOKENIZE, {"prompt": "a\u0000b"}, {
                "count": 3, "max_model_len": 128000, "tokens": [64, 188, 65], "token_strs": None,
            }),
            (TOKENIZE, {"model": LLAVA, "prompt": "Hello world"}, {
                "count": 3, "max_model_len": 4096, "tokens": [1, 15043, 3186], "token_strs": None,
            }),
            (DETOKENIZE, {"tokens": [9707, 1879, 151645]}, {"prompt": "Hello world<|im_end|>"}),
            (DETOKENIZE, {"tokens": [999999]}, {"prompt": ""}),
            (DETOKENIZE, {"model": LLAVA, "tokens": [1, 15043, 3186, 2]}, {
                "prompt": "<s> Hello world</s>",
            }),
        ],
    )  # fmt: skip
    def test_recorded_pairs(client: TestClient, path: str, body: Any, expected: Any) -> None:
        answer = client.post(path, json=body)
        assert answer.status_code == 200
        assert list(answer.json().items()) == list(expected.items())

    def test_a_rendered_chat(client: TestClient) -> None:
        answer = client.post(CHAT, json={"model": QWEN, "messages": HI}).json()
        assert answer["request_id"].startswith("chatcmpl-")
        del answer["request_id"]
        sampling = {
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.05,
            "temperature": 0.01, "top_p": 1.0, "min_p": 0.0, "stop": [], "stop_token_ids": [],
            "max_tokens": 127980, "output_kind": 2, "skip_clone": True, "bad_words": [],
            "skip_reading_prefix_cache": False,
        }  # fmt: skip
        context = {
            "tools": None, "tool_choice": "none", "parallel_tool_calls": True,
            "include_reasoning": True,
            "chat_template_kwargs": {
                "cohere_format": "cmd4", "add_generation_prompt": True,
                "continue_final_message": False,
            },
            "history_tool_call_cnt": 0,
        }  # fmt: skip
        expected = {
            "token_ids": CHAT_IDS, "token_offsets": None, "features": None, "content_parts": None,
            "sampling_params": sampling, "model": QWEN, "reasoning_ended": None,
            "reasoning_parser_kwargs": None, "return_token_ids": None, "output_mode": "tokens",
            "parse_context": context, "stream": False, "stream_options": None, "cache_salt": None,
            "priority": 0, "kv_transfer_params": None, "ec_transfer_params": None,
        }  # fmt: skip
        assert list(answer.items()) == list(expected.items())
        assert list(answer["sampling_params"]) == list(sampling)

    def test_a_rendered_image(client: TestClient) -> None:
        parts = [
            {"type": "image_url", "image_url": {"url": png_url(640, 480)}},
            {"type": "text", "text": "What?"},
        ]
        messages = [{"role": "user", "content": parts}]
        answer = client.post(CHAT, json={"messages": messages, "mm_payload": "none"}).json()
        assert len(answer["token_ids"]) == 414
        features = answer["features"]
        assert list(features) == ["mm_hashes", "mm_placeholders", "kwargs_data", "mm_metadata"]
        assert features["mm_placeholders"] == {"image": [{"offset": 15, "length": 391}]}
        tokens = client.post(TOKENIZE, json={"messages": messages}).json()
        assert tokens["tokens"] == answer["token_ids"]

    def test_rendered_completions(client: TestClient) -> None:
        cut = {"prompt": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 2}
        assert client.post(COMPLETION, json=cut).json()[0]["token_ids"] == [4, 5]
        offsets = {"prompt": "Hello wörld", "return_token_offsets": True}
        (answer,) = client.post(COMPLETION, json=offsets).json()
        assert answer["token_offsets"] == [[0, 5], [5, 7], [7, 9], [9, 11]]
        assert "max_tokens" not in answer["sampling_params"]  # 16, which is left out
