"""The options an engine was started with: read from its command line, and what they change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from media_files import png_url

from mmroute import (
    ImageSize,
    InexactError,
    ModelError,
    Normalizer,
    Reason,
    Routing,
    VideoSize,
)
from mmroute.engines.vllm.serve_command import FLAGS, LISTS, SHORT, VALUES
from mmroute.engines.vllm.settings import VllmSettings

LINE = """\
PYTHONHASHSEED=0 VLLM_MAX_IMAGE_PIXELS=1000000 HF_TOKEN=secret \\
  vllm serve Qwen/Qwen2.5-VL-3B-Instruct --served-model-name qwen vl \\
  --tokenizer Qwen/Qwen2.5-VL-3B-Instruct -tp 2 --gpu-memory-utilization=0.9 --dtype bfloat16 \\
  --limit-mm-per-prompt '{"image": 4, "video": {"count": 0, "num_frames": 8}}' \\
  --max_model_len 32K --max-num-batched-tokens 8k --enable-prefix-caching --block-size 32 \\
  --prefix-caching-hash-algo sha256_cbor --mm-processor-kwargs.max_pixels 401408 \\
  --default-chat-template-kwargs '{"enable_thinking": false}' --enforce-eager -O3 \\
  --lora-modules first=/l/1 '{"name": "second", "path": "/l/2"}' --no-enable-log-requests \\
  --kv-events-config '{"publisher": "zmq"}' --trust-remote-code --host 0.0.0.0 --port 8000
"""


def test_a_whole_command_line_is_read() -> None:
    settings = VllmSettings.from_args(LINE)
    assert settings == VllmSettings(
        model="Qwen/Qwen2.5-VL-3B-Instruct",
        served_names=("qwen", "vl"),
        limits={"image": 4, "video": 0},
        dtype="bfloat16",
        max_model_len=32768,
        max_num_batched_tokens=8000,
        block_size=32,
        hash_algorithm="sha256_cbor",
        hash_seed="0",
        mm_processor_kwargs={"max_pixels": 401408},
        chat_template_kwargs={"enable_thinking": False},
        loras={"first": "/l/1", "second": "/l/2"},
        max_image_pixels=1_000_000,
        tensor_parallel=2,
        complete=True,
        without_effect=(
            "--enable-log-requests", "--enforce-eager",
            "--gpu-memory-utilization", "--host", "--kv-events-config", "--optimization-level",
            "--port", "--trust-remote-code", "HF_TOKEN",
        ),
    )  # fmt: skip


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "vllm.yaml"
    config.write_text(
        "model: org/name\nblock-size: 32\nmax_model_len: 4096\nenforce-eager: true\n"
        "enable-lora: false\nserved-model-name: [a, b]\nmm-processor-kwargs:\n  max_pixels: 5\n"
    )
    of_file = VllmSettings.from_args("", config=config)
    assert (of_file.model, of_file.block_size, of_file.served_names) == ("org/name", 32, ("a", "b"))
    assert of_file.mm_processor_kwargs == {"max_pixels": 5}
    both = VllmSettings.from_args(f"vllm serve other --config {config} --block-size 64")
    assert (both.model, both.block_size, both.max_model_len) == ("other", 64, 4096)


@pytest.mark.parametrize(
    ("arguments", "reason", "words"),
    [
        ("--max-num-batch-tokens 5", Reason.INVALID_ENGINE_SETTING, "did you mean"),
        ("--block-size many", Reason.INVALID_ENGINE_SETTING, "--block-size|block-size"),
        ("--block-size", Reason.INVALID_ENGINE_SETTING, "needs a value"),
        ("--enforce-eager=1", Reason.INVALID_ENGINE_SETTING, "takes no value"),
        ("PYTHONHASHSEED=zero vllm serve m", Reason.INVALID_ENGINE_SETTING, "does not start"),
        ("PYTHONHASHSEED=4294967296", Reason.INVALID_ENGINE_SETTING, "must be random or an int"),
        ("one two", Reason.INVALID_ENGINE_SETTING, "already"),
        ("A=1; vllm serve m", Reason.INVALID_ENGINE_SETTING, "in front of `vllm serve` without ;"),
        ("--prefix-caching-hash-algo xxhsh", Reason.INVALID_ENGINE_SETTING, "mean 'xxhash'"),
        ("'", Reason.INVALID_ENGINE_SETTING, "cannot be read"),
        ("--limit-mm-per-prompt '{\"picture\": 1}'", Reason.INVALID_ENGINE_SETTING, "modality"),
        ("--prefix-caching-hash-algo md5", Reason.INVALID_ENGINE_SETTING, "sha256_cbor"),
        ("--hf-overrides '{\"vocab_size\": 1}'", Reason.UNSUPPORTED_ENGINE_SETTING, "vocab_size"),
        ("--tokenizer-mode slow", Reason.UNSUPPORTED_ENGINE_SETTING, "--tokenizer-mode"),
        ("m --tokenizer other", Reason.UNSUPPORTED_ENGINE_SETTING, "--tokenizer"),
        ("m --hf-config-path other", Reason.UNSUPPORTED_ENGINE_SETTING, "--hf-config-path"),
        ("m --revision a --tokenizer-revision b", Reason.UNSUPPORTED_ENGINE_SETTING, "revision's"),
        ("m --model-impl terratorch", Reason.UNSUPPORTED_ENGINE_SETTING, "--model-impl"),
    ],
)
def test_what_is_wrong_or_not_covered_is_named(arguments: str, reason: Reason, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        VllmSettings.from_args(arguments)
    assert caught.value.reason is reason


def test_no_option_is_of_two_kinds() -> None:
    assert len(FLAGS | VALUES | LISTS) == len(FLAGS) + len(VALUES) + len(LISTS)
    assert set(SHORT.values()) <= FLAGS | VALUES | LISTS | {"optimization-level"}


@pytest.fixture
def loaded(small_model: Callable[[str], Path]) -> Callable[..., Normalizer]:
    """The small Qwen2.5-VL under engine settings."""

    def load(arguments: str = "", **settings: Any) -> Normalizer:
        given = VllmSettings(**settings) if settings else VllmSettings.from_args(arguments)
        model = str(small_model("small-qwen2.5-vl"))
        return Normalizer.from_pretrained(model, engine_settings=given)

    return load


CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]


def test_limits_of_the_engine_have_reasons_of_their_own(loaded: Callable[..., Normalizer]) -> None:
    none = loaded("--language-model-only").normalize(messages=CHAT, images=[ImageSize(64, 64)])
    assert none.reason is Reason.TOO_MANY_ITEMS
    short = loaded("--max-model-len 16").normalize(prompt="a " * 30)
    assert short.reason is Reason.PROMPT_TOO_LONG
    with pytest.raises(ModelError, match="longest context"):
        loaded("--max-model-len 99M")


def test_the_encoder_cache_follows_the_batch(loaded: Callable[..., Normalizer]) -> None:
    own = loaded("").model
    assert loaded("--max-num-batched-tokens 1M").model.encoder_cache == 1 << 20
    smallest = loaded("--max-num-batched-tokens 1").model.encoder_cache
    assert smallest == max(rules.max_embeds for rules in own.media.values())
    sized = '--max-num-batched-tokens 1 --limit-mm-per-prompt \'{"image": {"width": 56}}\''
    assert loaded(sized).model.encoder_cache == 1
    counted = sized.replace("56", "null")
    assert loaded(counted).model.encoder_cache == smallest


def test_adapters_of_items_leave_the_prompt_and_take_the_hashes(
    loaded: Callable[..., Normalizer],
) -> None:
    routing = loaded('--default-mm-loras \'{"image": "/l"}\'').normalize(prompt="a " * 30)
    assert routing.exact
    with pytest.raises(InexactError, match="default-mm-loras"):
        routing.block_hashes()


@pytest.mark.parametrize("option", ["-dcp 2", "--prefill-context-parallel-size 2"])
def test_blocks_shared_among_ranks_have_a_size_of_their_own(
    small_model: Callable[[str], Path], option: str
) -> None:
    prompt = list(range(100))
    model = small_model("small-qwen2.5-vl")

    def routing(line: str) -> Routing:
        settings = VllmSettings.from_args(f"--block-size 16 {line}")
        return Normalizer.from_pretrained(model, engine_settings=settings).normalize(
            prompt_token_ids=prompt
        )

    with pytest.raises(InexactError) as caught:
        routing(option).block_hashes()
    assert caught.value.reason is Reason.BLOCK_SIZE_UNKNOWN
    expected = routing("").block_hashes(block_size=32)
    assert routing(option).block_hashes(block_size=32) == expected
    assert routing(f"{option} --prefix-match-unit 32").block_hashes() == expected
    assert len(routing("-dcp 1").block_hashes()) == 6


def test_the_commands_take_the_settings(small_model: Callable[[str], Path]) -> None:
    model = str(small_model("small-qwen2.5-vl"))
    line = '{"prompt": "a a a a a a a a a a a a"}'
    result = run("tokens", model, "--engine-args", "--max-model-len 4 --seed 1", stdin=line)
    assert "prompt_too_long" in result.stdout
    assert "--seed" in result.stderr
    variable = run("tokens", model, "--engine-args", "PYTHONHASSEED=0 VLLM_USE_V1=1", stdin=line)
    (warning,) = [text for text in variable.stderr.splitlines() if "PYTHONHASHSEED" in text]
    assert "warning: PYTHONHASSEED is no variable that mmroute knows; did you mean" in warning
    wrong = run("tokens", model, "--engine-args", "--max-model-length 4", stdin=line)
    assert wrong.status == 2
    assert "did you mean" in wrong.stderr


def test_hashes_as_events_have_them_and_the_model_string(
    small_model: Callable[[str], Path],
) -> None:
    model = str(small_model("small-qwen2.5-vl"))
    line = json.dumps({"prompt_token_ids": list(range(1, 40))})
    whole, short = (
        json.loads(run("blocks", model, "--hashes", form, stdin=line).stdout)["block_hashes"]
        for form in ("hex", "int")
    )
    assert short == [int(digest[-16:], 16) for digest in whole]
    picture = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
        "url": png_url(64, 48)}}]}]}  # fmt: skip
    spelled = f"{model}/."  # each model string is warned of once in a process
    guessed = run("blocks", spelled, stdin=json.dumps(picture))
    assert json.loads(guessed.stdout)["model_id"] == spelled
    assert "--model-id" in guessed.stderr
    line = "vllm serve org/m --block-size 16"
    told = run("blocks", model, "--engine-args", line, stdin=json.dumps(picture))
    assert json.loads(told.stdout)["model_id"] == "org/m"
    assert told.stderr == ""


@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-qwen3-vl"])
def test_a_request_may_change_the_engine_s_argument_and_not_add_another_for_its_number(
    name: str, small_model: Callable[[str], Path]
) -> None:
    """A size wins over the engine's own limit in Qwen3-VL, and yields to it in Qwen2.5-VL."""
    settings = VllmSettings(mm_processor_kwargs={"max_pixels": 200_000})
    model = Normalizer.from_pretrained(small_model(name), engine_settings=settings)
    image: dict[str, Any] = {"prompt": "<|image_pad|>", "images": [ImageSize(640, 400)]}
    by_limit = model.normalize(**image, mm_processor_kwargs={"max_pixels": 100_000})
    assert len(by_limit.token_ids) < len(model.normalize(**image).token_ids)
    size = {"size": {"shortest_edge": 3136, "longest_edge": 100_000}}
    by_size = model.normalize(**image, mm_processor_kwargs=size)
    assert by_size.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_templates_of_texts_get_the_placeholder_of_minicpm(
    small_model: Callable[[str], Path],
) -> None:
    settings = VllmSettings(content_format="string")
    directory = small_model("small-minicpm-v-4.6")
    model = Normalizer.from_pretrained(directory, engine_settings=settings)
    parts = [{"type": "text", "text": "hello"}, {"type": "image"}]
    messages = [{"role": "user", "content": parts}]
    routing = model.normalize(messages=messages, images=[ImageSize(64, 48)])
    assert routing.exact, routing.message


def test_templates_of_texts_get_the_placeholder_of_llava_even_for_pixtral(
    small_model: Callable[[str], Path],
) -> None:
    """vLLM 0.33.0 puts ``<image>`` in front of a chat with images, and searches for ``[IMG]``."""
    settings = VllmSettings(
        content_format="string",
        chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}",
    )
    model = Normalizer.from_pretrained(small_model("small-pixtral-hf"), engine_settings=settings)

    def ask(text: str) -> Routing:
        parts = [{"type": "image"}, {"type": "text", "text": text}]
        return model.normalize(
            messages=[{"role": "user", "content": parts}], images=[ImageSize(64, 48)]
        )

    as_prompt = model.normalize(prompt="<image>\nx [IMG] y", images=[ImageSize(64, 48)])
    assert ask("x [IMG] y").token_ids.tolist() == as_prompt.token_ids.tolist()
    assert ask("x").reason is Reason.PLACEHOLDER_COUNT_MISMATCH


def test_processor_settings_not_observed_with_videos_leave_images(
    small_model: Callable[[str], Path],
) -> None:
    """vLLM 0.33.0 counts images by such an engine's settings as by those of a request."""
    directory = small_model("small-internvl")
    kwargs = {"max_patches": 2}
    model = Normalizer.from_pretrained(
        directory, engine_settings=VllmSettings(mm_processor_kwargs=kwargs)
    )
    plain = Normalizer.from_pretrained(directory)
    image: dict[str, Any] = {
        "messages": [{"role": "user", "content": [{"type": "image"}]}],
        "images": [ImageSize(640, 200)],
    }
    by_request = plain.normalize(**image, mm_processor_kwargs=kwargs)
    assert model.normalize(**image).token_ids.tolist() == by_request.token_ids.tolist()
    video: list[Any] = [{"role": "user", "content": [{"type": "video"}]}]
    refused = model.normalize(messages=video, videos=[VideoSize(64, 48, 8, 4.0)])
    assert refused.reason is Reason.UNSUPPORTED_ENGINE_SETTING
