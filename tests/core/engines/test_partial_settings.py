"""Options that change the answers to some requests: all others are answered as without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mmroute import ImageSize, ModelError, Normalizer, Reason, VideoSize
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.requests.items import Modality

QWEN: Final = "small-qwen2.5-vl"
TEMPLATE: Final = (
    "{% for m in messages %}{{ m.content }}{% endfor %}|{{ reasoning_effort }}|"
    "{{ enable_thinking }}|{{ tools | length if tools else 'none' }}"
)
TOOLS: Final = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
HI: Final = [{"role": "user", "content": "Hi"}]
TEXT: Final[Mapping[str, Any]] = {"messages": HI}
IMAGE: Final[Mapping[str, Any]] = {
    "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}],
    "images": [ImageSize(64, 64, uuid="a")],
}
VIDEO: Final[Mapping[str, Any]] = {
    "prompt": "<|video_pad|>",
    "videos": [VideoSize(64, 64, num_frames=4, fps=2.0, uuid="a")],
}


@pytest.fixture
def load(small_model: Callable[[str], Path]) -> Callable[..., Normalizer]:
    def loaded(arguments: str, model: str = QWEN) -> Normalizer:
        settings = VllmSettings.from_args(arguments)
        return Normalizer.from_pretrained(small_model(model), engine_settings=settings)

    return loaded


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("m --video-pruning-rate 0.5", {Modality.VIDEO}),
        ("VLLM_VIDEO_LOADER_BACKEND=other vllm serve m", {Modality.VIDEO}),
        ("VLLM_MEDIA_CONNECTOR=other vllm serve m", {Modality.IMAGE, Modality.VIDEO}),
        ("m --model-impl transformers", {Modality.IMAGE, Modality.VIDEO}),
        ('m --model-class-overrides \'{"A": "b:A"}\'', {Modality.IMAGE, Modality.VIDEO}),
        (
            "m --interleave-mm-strings --chat-template-content-format string",
            {Modality.IMAGE},  # which is in a chat
        ),
        ("m --interleave-mm-strings --chat-template-content-format openai", set()),
        ("VLLM_PLUGINS=some vllm serve m", set()),
        ("VLLM_USE_MODELSCOPE=1 vllm serve m", set()),
        ("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS=1 vllm serve m", set()),
        ("m --cohere-format cmd3 --io-processor-plugin a", set()),
        ("m --tokenizer m --hf-config-path m", set()),
        ("m --revision a --tokenizer-revision a", set()),
    ],
)
def test_what_changes_some_items_refuses_requests_with_them(
    load: Callable[..., Normalizer], arguments: str, refused: set[Modality]
) -> None:
    _, option, form = arguments.partition("--chat-template-content-format")
    plain, normalizer = load(f"m {option}{form}"), load(arguments)
    requests = {None: TEXT, Modality.IMAGE: IMAGE, Modality.VIDEO: VIDEO}
    for modality, request in requests.items():
        found, expected = normalizer.normalize(**request), plain.normalize(**request)
        assert expected.exact
        if modality in refused:
            assert found.reason is Reason.UNSUPPORTED_ENGINE_SETTING
            assert found.message.partition(":")[0] in arguments
        else:
            assert found.token_ids.tolist() == expected.token_ids.tolist()


@pytest.mark.parametrize("value", ["''", "{}", "null", "None"])
def test_an_empty_object_is_nothing(value: str) -> None:
    for option in ("--hf-overrides", "--reasoning-effort-map", "--model-class-overrides"):
        found = VllmSettings.from_args(f"m {option} {value}")
        assert (found.hf_overrides, found.reasoning_efforts) == ({}, {})
        assert (found.media_refused, found.hashes_refused) == ({}, "")


def test_other_classes_may_have_other_blocks(load: Callable[..., Normalizer]) -> None:
    routing = load('m --model-class-overrides \'{"A": "b:A"}\'').normalize(**TEXT)
    with pytest.raises(Exception, match="--model-class-overrides"):
        routing.block_hashes()


def test_files_of_another_hub_are_given_as_a_directory(hub_commit: str) -> None:
    assert hub_commit
    settings = VllmSettings.from_args("VLLM_USE_MODELSCOPE=True vllm serve someone/small")
    with pytest.raises(ModelError, match="VLLM_USE_MODELSCOPE") as caught:
        Normalizer.from_pretrained("someone/small", engine_settings=settings)
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


def test_instructions_in_the_system_message_are_those_of_gpt_oss(
    load: Callable[..., Normalizer],
) -> None:
    line = (
        "VLLM_SYSTEM_START_DATE=2026-08-01 VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS={} vllm serve m"
    )
    load(line.format(0), "small-gpt-oss")
    with pytest.raises(ModelError, match="VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS"):
        load(line.format(1), "small-gpt-oss")


def _text(normalizer: Normalizer, **request: Any) -> str:
    routing = normalizer.normalize(messages=HI, **request)
    return normalizer.model.tokenizer.decode(routing.token_ids.tolist())


def test_tools_are_left_out_where_none_may_be_called(load: Callable[..., Normalizer]) -> None:
    """Source: vLLM 0.33.0 ``renderers/online_renderer.py`` (`render_chat`)."""
    line = f"m --chat-template '{TEMPLATE.replace(chr(39), chr(34))}'"
    plain, excluding = load(line), load(f"{line} --exclude-tools-when-tool-choice-none")
    for choice, left in (("none", "none"), ("auto", "1"), (None, "1")):
        asked: dict[str, Any] = {"tools": TOOLS, "api_fields": {"tool_choice": choice}}
        assert _text(plain, **asked).endswith("|1")
        assert _text(excluding, **asked).endswith(f"|{left}")
    assert _text(excluding).endswith("|none")


def test_efforts_are_mapped(load: Callable[..., Normalizer]) -> None:
    """Source: vLLM 0.33.0 `ChatCompletionRequest.build_chat_params`."""
    line = f"m --chat-template '{TEMPLATE.replace(chr(39), chr(34))}'"
    efforts = '{"high": "max", "low": "none"}'
    mapped = load(f"{line} --reasoning-effort-map '{efforts}'")
    assert _text(mapped, reasoning_effort="high") == "Hi|max|True|none"
    assert _text(mapped, reasoning_effort="low") == "Hi|none|False|none"
    assert _text(mapped, reasoning_effort="medium") == "Hi|medium|True|none"
    assert _text(mapped) == _text(load(line))


@pytest.mark.parametrize("context", ["auto", "-1", "Auto"])
def test_a_context_that_the_engine_chooses(load: Callable[..., Normalizer], context: str) -> None:
    """It is no longer than the model's own, and how long is not known."""
    own, chosen = load("m"), load(f"m --max-model-len {context}")
    assert chosen.model.max_model_len == own.model.max_model_len
    long: dict[str, Any] = {"prompt": "a " * 9000}
    assert chosen.normalize(**long).token_ids.tolist() == own.normalize(**long).token_ids.tolist()
    assert own.normalize(**long, truncate_prompt_tokens=-1).exact
    cut = chosen.normalize(**long, truncate_prompt_tokens=-1)
    assert cut.reason is Reason.UNSUPPORTED_ENGINE_SETTING
    assert "--max-model-len" in cut.message


def test_a_context_may_be_no_longer_than_a_sliding_window(
    changed_model: Callable[..., Path],
) -> None:
    """Source: vLLM 0.33.0 `_get_and_verify_max_len`."""
    for config, length in (
        ({"sliding_window": 100}, 100),
        ({"sliding_window": 100, "use_sliding_window": False}, 512),
        ({"sliding_window": None}, 512),
        ({"sliding_window": 600}, 512),
    ):
        given = {"max_position_embeddings": 512, **config}
        model = changed_model("small-llama", lambda f, g=given: f["config.json"].update(g))
        settings = VllmSettings.from_args("m --disable-sliding-window")
        found = Normalizer.from_pretrained(model, engine_settings=settings)
        assert found.model.max_model_len == length
        assert Normalizer.from_pretrained(model).model.max_model_len == 512
