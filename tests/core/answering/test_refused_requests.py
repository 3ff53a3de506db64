"""Requests that have no exact answer, and the reason of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chat_requests import user

from mmroute import AudioLength, ImageSize, Normalizer, Reason, VideoSize

ASK = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]


SIZE = ImageSize(640, 480)


IMAGE = {"type": "image"}


LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


REFUSED: dict[str, tuple[dict[str, Any], Reason]] = {
    "nothing": ({}, Reason.INVALID_REQUEST),
    "two prompts": ({"prompt": "a", "messages": ASK}, Reason.INVALID_REQUEST),
    "audio": (
        {"messages": user({"type": "audio_url", "audio_url": {"url": "https://example.com"}})},
        Reason.UNSUPPORTED_MODALITY,
    ),
    "a video behind a link": (
        {"messages": user({"type": "video_url", "video_url": {"url": "https://example.com"}})},
        Reason.IMAGE_SIZE_UNKNOWN,
    ),
    "a link without a size": ({"messages": user(LINK)}, Reason.IMAGE_SIZE_UNKNOWN),
    "fewer images than parts": (
        {"messages": user(IMAGE, IMAGE), "images": [SIZE]},
        Reason.IMAGE_COUNT_MISMATCH,
    ),
    "more images than parts": (
        {"messages": user(IMAGE), "images": [SIZE, SIZE]},
        Reason.IMAGE_COUNT_MISMATCH,
    ),
    "no placeholder": ({"prompt": "a", "images": [SIZE]}, Reason.PLACEHOLDER_COUNT_MISMATCH),
    "width 0": ({"messages": ASK, "images": [ImageSize(0, 5)]}, Reason.INVALID_REQUEST),
    "negative height": ({"messages": ASK, "images": [ImageSize(5, -1)]}, Reason.INVALID_REQUEST),
    "a float": ({"messages": ASK, "images": [ImageSize(5.0, 5)]}, Reason.INVALID_REQUEST),  # type: ignore[arg-type]  # what a caller may do
    "too thin": ({"messages": ASK, "images": [ImageSize(2010, 10)]}, Reason.IMAGE_REFUSED),
    "1000 images": (
        {"messages": user(*[IMAGE] * 1000), "images": [ImageSize(64, 64)] * 1000},
        Reason.TOO_MANY_ITEMS,
    ),
    "an ID above the vocabulary": (
        {"prompt_token_ids": [1, 10**6]},
        Reason.TOKEN_OUT_OF_VOCABULARY,
    ),
    "an image no engine decodes": (
        {"messages": ASK, "images": [ImageSize(20000, 20000)]},
        Reason.IMAGE_REFUSED,
    ),
    "more pixels than one request may have": (
        {"messages": user(*[IMAGE] * 5), "images": [ImageSize(7000, 7000)] * 5},
        Reason.IMAGE_REFUSED,
    ),
    "a limit no memory holds": (
        {"messages": ASK, "images": [SIZE], "mm_processor_kwargs": {"min_pixels": 1 << 62}},
        Reason.ITEM_TOO_LARGE,
    ),
    "audio without a channel": (
        {"prompt": "a", "audios": [AudioLength(16000, 16000, channels=0)]},
        Reason.INVALID_REQUEST,
    ),
    "a frame list that is a number": (
        {"prompt": "a", "videos": [VideoSize(8, 8, 2, 1.0, frame_list=1)]},  # type: ignore[arg-type]  # what a caller may do
        Reason.INVALID_REQUEST,
    ),
    "images that are objects": (
        {"messages": ASK, "images": [{"width": 1, "height": 1}]},
        Reason.INVALID_REQUEST,
    ),
    "a flag that is none": ({"prompt": "a", "add_special_tokens": None}, Reason.INVALID_REQUEST),
    "kwargs that are a list": ({"prompt": "a", "mm_processor_kwargs": []}, Reason.INVALID_REQUEST),
    "token IDs for text": ({"prompt": [1, 2]}, Reason.INVALID_REQUEST),
    "arguments without a bottom": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "1",
                            "type": "function",
                            "function": {"name": "f", "arguments": "[" * 100_000},
                        }
                    ],
                }
            ]
        },
        Reason.INVALID_REQUEST,
    ),
    "a text for an ID": ({"prompt_token_ids": ["1"]}, Reason.INVALID_REQUEST),
    "an empty prompt": ({"prompt": ""}, Reason.EMPTY_PROMPT),
    "too long": ({"prompt_token_ids": [1] * 32768}, Reason.PROMPT_TOO_LONG),
    "too long a text": ({"prompt": "a" * 10**7}, Reason.PROMPT_TOO_LONG),
    "a lone surrogate": ({"prompt": "a\ud800"}, Reason.INVALID_REQUEST),
    "empty tools": ({"messages": ASK, "images": [SIZE], "tools": []}, Reason.INVALID_REQUEST),
    "a nameless tool": (
        {"messages": ASK, "images": [SIZE], "tools": [{"type": "function", "function": {}}]},
        Reason.INVALID_REQUEST,
    ),
    "a template of the client's": (
        {"messages": ASK, "images": [SIZE], "chat_template_kwargs": {"chat_template": "x"}},
        Reason.INVALID_REQUEST,
    ),
    "a template that the engine is to choose": (
        {"messages": ASK, "images": [SIZE], "chat_template_kwargs": {"chat_template": "auto"}},
        Reason.INVALID_REQUEST,
    ),
    "tools that are none": (
        {"messages": ASK, "images": [SIZE], "chat_template_kwargs": {"tools": "x"}},
        Reason.INVALID_REQUEST,
    ),
    "a shortened prompt": (
        {"messages": ASK, "images": [SIZE], "truncate_prompt_tokens": 20},
        Reason.UNSUPPORTED_FIELD,
    ),
    "a prompt of no length": ({"prompt": "a", "truncate_prompt_tokens": 0}, Reason.EMPTY_PROMPT),
    "a length above the context": (
        {"prompt": "a", "truncate_prompt_tokens": 32769},
        Reason.INVALID_REQUEST,
    ),
    "a picture that is not RGB": (
        {"messages": ASK, "images": [SIZE], "media_io_kwargs": {"image": {"image_mode": "L"}}},
        Reason.UNSUPPORTED_PROCESSOR_KWARGS,
    ),
    "processor kwargs that are not followed": (
        {"messages": ASK, "images": [SIZE], "mm_processor_kwargs": {"return_tensors": "np"}},
        Reason.UNSUPPORTED_PROCESSOR_KWARGS,
    ),
    "a limit above the context": (
        {
            "messages": ASK,
            "images": [ImageSize(6000, 6000)],
            "mm_processor_kwargs": {"max_pixels": 10**8},
        },
        Reason.ITEM_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_answered_with_a_reason(
    name: str, normalizer: Callable[[str], Normalizer]
) -> None:
    request, reason = REFUSED[name]
    routing = normalizer("small-qwen2.5-vl").normalize(**request)
    assert routing.reason is reason, routing.message
    assert len(routing.message) > 15


def test_fun_audio_chat_takes_no_argument(normalizer: Callable[[str], Normalizer]) -> None:
    """Its engine hands them to a function without any; also those of other modalities."""
    model = normalizer("small-fun-audio-chat")
    messages, audios = user({"type": "audio"}), [AudioLength(16000, 16000)]
    assert model.normalize(messages=messages, audios=audios).exact
    for scope in ("images_kwargs", "videos_kwargs", "audio_kwargs", "text_kwargs"):
        asked = {scope: {"max_pixels": 50176}}
        routing = model.normalize(messages=messages, audios=audios, mm_processor_kwargs=asked)
        assert routing.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS
