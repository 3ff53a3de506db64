"""Recorded pairs of real models; there are none where `MMROUTE_MODELS` is not set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from media_files import png_url
from paths import real_models
from server_helpers import CHAT, COMPLETION, DETOKENIZE, HI, TOKENIZE, error_of, serving
from starlette.testclient import TestClient

from mmroute.server import ModelSource

ROOT = real_models()

if ROOT is not None:
    QWEN, LLAVA = "qwen2.5-vl-3b-instruct", "llava-1.5-7b-hf"
    HEAD = [151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198, 151644, 872, 198]
    CHAT_IDS = [*HEAD, 13048, 151645, 198, 151644, 77091, 198]
    HELLO = {"prompt": "Hello wörld <|im_end|>", "return_token_strs": True,
             "add_special_tokens": False}  # fmt: skip

    AS_JSON = {"content-type": "application/json"}

    def link(url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return {"messages": [{"role": "user", "content": [part]}]}

    @pytest.fixture(scope="module")
    def client() -> Iterator[TestClient]:
        assert ROOT is not None
        with serving([ModelSource(str(ROOT / name), (name,)) for name in (QWEN, LLAVA)]) as found:
            yield found

    @pytest.mark.models
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
            (TOKENIZE, {"prompt": "a", "messages": HI}, {
                "count": 20, "max_model_len": 128000, "tokens": CHAT_IDS, "token_strs": None,
            }),
            (TOKENIZE, {"prompt": ""}, {
                "count": 0, "max_model_len": 128000, "tokens": [], "token_strs": None,
            }),
            (TOKENIZE, {"model": LLAVA, "prompt": "Hello world", "add_special_tokens": False,
                        "return_token_strs": True}, {
                "count": 2, "max_model_len": 4096, "tokens": [15043, 3186],
                "token_strs": ["▁Hello", "▁world"],
            }),
            (DETOKENIZE, {"tokens": []}, {"prompt": ""}),
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

    @pytest.mark.models
    @pytest.mark.parametrize(
        ("path", "body", "error"),
        [
            (TOKENIZE, {"model": "nope", "prompt": "a"}, (404, "NotFoundError", "model")),
            (TOKENIZE, {}, (400, "Bad Request", "body.prompt")),
            (TOKENIZE, {"prompt": ["a"]}, (400, "Bad Request", "body.prompt")),
            (TOKENIZE, {"prompt": "a", "add_special_tokens": None},
             (400, "Bad Request", "body.add_special_tokens")),
            (TOKENIZE, {"prompt": "a\ud800"}, (400, "BadRequestError", None)),
            (TOKENIZE, {"messages": []}, (400, "BadRequestError", None)),
            (TOKENIZE, {"messages": HI, "continue_final_message": True},
             (400, "BadRequestError", None)),
            (TOKENIZE, {"messages": HI, "chat_template": "x"}, (400, "BadRequestError", None)),
            (TOKENIZE, {"messages": HI, "mm_processor_kwargs": {"max_pixels": 10000}},
             (400, "BadRequestError", "mm_processor_kwargs")),
            (DETOKENIZE, {"tokens": [1, -1]}, (400, "Bad Request", "body.tokens.1")),
            (DETOKENIZE, {"tokens": [2**40]}, (400, "BadRequestError", None)),
            (CHAT, link("data:image/png;base64,AAAA"), (400, "BadRequestError", None)),
            (CHAT, link(png_url(808, 4)), (400, "BadRequestError", None)),
            (CHAT, link("ftp://x/x.png"), (400, "BadRequestError", None)),
            (CHAT, {"messages": HI, "max_tokens": 0}, (400, "BadRequestError", "max_tokens")),
            (CHAT, {"messages": HI, "max_tokens": 128001},
             (400, "BadRequestError", "max_tokens")),
            (COMPLETION, {"prompt": ""}, (400, "BadRequestError", "prompt")),
            (COMPLETION, {"prompt": [1] * 128001}, (400, "BadRequestError", "input_tokens")),
        ],
    )  # fmt: skip
    def test_recorded_refusals(client: TestClient, path: str, body: Any, error: Any) -> None:
        assert error_of(client.post(path, content=json.dumps(body), headers=AS_JSON)) == error

    @pytest.mark.models
    def test_a_name_that_is_not_served_is_told_the_others(client: TestClient) -> None:
        error = client.post(TOKENIZE, json={"model": "nope", "prompt": "a"}).json()["error"]
        aliases = f"Valid aliases: {QWEN}, {LLAVA}."
        assert error["message"] == f"The model `nope` does not exist. {aliases}"

    @pytest.mark.models
    def test_a_tokenized_chat_has_no_bos(client: TestClient) -> None:
        body = {"model": LLAVA, "messages": [{"role": "user", "content": "Hello"}]}
        tokens = client.post(TOKENIZE, json=body).json()["tokens"]
        assert (len(tokens), tokens[:3]) == (9, [3148, 1001, 29901])

    @pytest.mark.models
    def test_a_text_longer_than_the_context_is_tokenized(client: TestClient) -> None:
        answer = client.post(TOKENIZE, json={"prompt": " a" * 130_000}).json()
        assert answer["count"] == 130_000 > answer["max_model_len"]

    @pytest.mark.models
    def test_the_smallest_image_has_four_tokens(client: TestClient) -> None:
        answer = client.post(CHAT, json={**link(png_url(1, 1)), "mm_payload": "none"}).json()
        assert answer["features"]["mm_placeholders"]["image"][0]["length"] == 4

    @pytest.mark.models
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

    @pytest.mark.models
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

    @pytest.mark.models
    def test_rendered_completions(client: TestClient) -> None:
        cut = {"prompt": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 2}
        assert client.post(COMPLETION, json=cut).json()[0]["token_ids"] == [4, 5]
        offsets = {"prompt": "Hello wörld", "return_token_offsets": True}
        (answer,) = client.post(COMPLETION, json=offsets).json()
        assert answer["token_offsets"] == [[0, 5], [5, 7], [7, 9], [9, 11]]
        assert "max_tokens" not in answer["sampling_params"]  # 16, which is left out
