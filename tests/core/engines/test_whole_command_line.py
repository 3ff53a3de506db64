"""What the server of a whole command line refuses: its options, and those that it was not given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from mmroute import EngineSettings, ImageSize, ModelError, Normalizer, Reason
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.items import Modality

QWEN = "small-qwen2.5-vl"
TRUST = "--trust-request-mm-kwargs"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
PROMPT: dict[str, Any] = {"prompt": "<|image_pad|>"}
MM_KWARGS = {"mm_processor_kwargs": {"max_pixels": 28 * 28 * 4}}


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("vllm serve org/m", True),
        ("A=1 exec vllm serve --model org/m --block-size 32", True),
        ("vllm launch render org/m", True),
        ("python3 -m vllm.entrypoints.openai.api_server --model org/m", True),
        ("vllm serve --block-size 32", False),
        ("org/m --block-size 32", False),
        ("--model org/m", False),
        ("A=1 --block-size 32", False),
        ("", False),
    ],
)
def test_a_line_is_whole_with_its_command_and_model(line: str, whole: bool) -> None:
    assert VllmSettings.from_args(line).complete is whole


def test_a_model_in_the_file_of_a_command_counts(tmp_path: Path) -> None:
    config = tmp_path / "vllm.yaml"
    config.write_text("model: org/m\n")
    assert VllmSettings.from_args(f"vllm serve --config {config}").complete
    assert not VllmSettings.from_args("", config=config).complete


@pytest.fixture
def loaded(small_model: Callable[[str], Path]) -> Callable[[str], Normalizer]:
    def load(line: str) -> Normalizer:
        settings = VllmSettings.from_args(line)
        return Normalizer.from_pretrained(str(small_model(QWEN)), engine_settings=settings)

    return load


@pytest.mark.parametrize("request_fields", [CHAT, PROMPT], ids=["chat", "prompt"])
@pytest.mark.parametrize(
    "options", [MM_KWARGS, {"media_io_kwargs": {"image": {"rgba_background_color": [0, 0, 0]}}}]
)
def test_media_options_of_requests_follow_the_line(
    loaded: Callable[[str], Normalizer], request_fields: dict[str, Any], options: dict[str, Any]
) -> None:
    """Source: vLLM 0.33.0 `validate_request_mm_kwargs`, for chats and completions."""
    asked = {**request_fields, "images": [ImageSize(400, 400)]}
    refused = loaded("vllm serve org/m").normalize(**asked, **options)
    assert refused.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS
    assert TRUST in refused.message
    empty: dict[str, Any] = {name: {} for name in options}
    assert loaded("vllm serve org/m").normalize(**asked, **empty).exact
    trusted, part = loaded(f"vllm serve org/m {TRUST}"), loaded("--max-num-seqs 4")
    for answered in (trusted.normalize(**asked, **options), part.normalize(**asked, **options)):
        assert TRUST not in answered.message
        assert answered.exact or "mm_processor_kwargs" not in options


def test_the_command_line_follows_the_line(small_model: Callable[[str], Path]) -> None:
    line = json.dumps({**CHAT, "images": [{"width": 400, "height": 400, "uuid": "a"}], **MM_KWARGS})
    for command in ("tokens", "blocks"):
        asked = command, str(small_model(QWEN)), "--engine-args"
        assert "unsupported_processor_kwargs" in run(*asked, "vllm serve org/m", stdin=line).stdout
        answered = run(*asked, f"vllm serve org/m {TRUST}", stdin=line).stdout
        assert json.loads(answered)["exact"]
        untold = run(*asked, "--max-num-seqs 4", "--model-id", "org/m", stdin=line).stdout
        assert untold == answered


@pytest.mark.parametrize("kwargs", [{}, {"a": 1}], ids=["empty", "one"])
def test_template_arguments_in_mistral_s_format_are_refused(kwargs: dict[str, Any]) -> None:
    """Source: vLLM 0.33.0 `validate_request_params`, for chats alone, and whatever they hold."""
    settings = VllmSettings.from_args("vllm serve org/m --tokenizer-mode mistral")
    model = Normalizer.from_pretrained(EMBEDDED_MODEL, engine_settings=settings)
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
    refused = model.normalize(**chat, chat_template_kwargs=kwargs)
    assert refused.reason is Reason.INVALID_REQUEST
    assert "chat_template_kwargs" in refused.message
    assert model.normalize(**chat).exact
    assert model.normalize(prompt="Hi", chat_template_kwargs=kwargs).exact
    untold = Normalizer.from_pretrained(EMBEDDED_MODEL)
    assert untold.normalize(**chat, chat_template_kwargs=kwargs).exact


def test_the_server_s_own_template_arguments_are_no_request_s() -> None:
    line = "vllm serve org/m --default-chat-template-kwargs '{\"a\": 1}'"
    model = Normalizer.from_pretrained(EMBEDDED_MODEL, engine_settings=VllmSettings.from_args(line))
    assert model.normalize(messages=[{"role": "user", "content": "Hi"}]).exact


# Source: vLLM 0.33.0 envs.py: bool(int(os.getenv("VLLM_USE_RUST_FRONTEND", "0")))
@pytest.mark.parametrize("value", ["1", "2", "-1", " 1 ", "01"])
def test_the_rust_frontend_is_another_profile(
    value: str, small_model: Callable[[str], Path]
) -> None:
    line, model = f"VLLM_USE_RUST_FRONTEND='{value}' vllm serve org/m", str(small_model(QWEN))
    settings = VllmSettings.from_args(line)
    assert settings.engine == "vllm-rust"
    rust = Normalizer.from_pretrained(model, engine_settings=settings)
    assert rust.model.engine.release.frontend == "rust"
    plain = Normalizer.from_pretrained(model)
    matching = plain.matching("vllm", engine_settings=settings)
    assert matching.model.engine.release.frontend == "rust"
    # The texts of several parts are joined by nothing there, and by a line break here.
    parts = [{"type": "text", "text": text} for text in ("one", "two")]
    joined = [{"role": "system", "content": "onetwo"}]
    asked = [{"role": "system", "content": parts}]
    assert rust.normalize(messages=asked).exact
    texts = [each.normalize(messages=asked).token_ids.tolist() for each in (rust, matching, plain)]
    assert texts[0] == texts[1] == rust.normalize(messages=joined).token_ids.tolist()


@pytest.mark.parametrize(
    ("backend", "named"),
    [
        ("vllm==0.31.0", "VLLM_USE_RUST_FRONTEND: "),
        ("sglang", "the settings are those of vllm-rust"),
    ],
)
def test_the_rust_frontend_of_other_engines_is_refused_by_name(
    backend: str, named: str, small_model: Callable[[str], Path]
) -> None:
    settings = RustSettings()
    with pytest.raises(ModelError, match=f"^{named}") as refused:
        Normalizer.from_pretrained(
            str(small_model(QWEN)), backend=backend, engine_settings=settings
        )
    assert refused.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


@pytest.mark.parametrize("value", ["0", "00", "-0"])
def test_the_python_frontend_is_the_default(value: str) -> None:
    assert VllmSettings.from_args(f"VLLM_USE_RUST_FRONTEND={value}") == VllmSettings()


@pytest.mark.parametrize("value", ["true", "", "yes", "1.0"])
def test_a_value_with_which_the_engine_does_not_start_is_refused(value: str) -> None:
    with pytest.raises(ModelError, match="VLLM_USE_RUST_FRONTEND") as refused:
        VllmSettings.from_args(f"VLLM_USE_RUST_FRONTEND={value} vllm serve org/m")
    assert refused.value.reason is Reason.INVALID_ENGINE_SETTING


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("SGLANG_RUST_SERVER=1", "SGLANG_RUST_SERVER.*--backend sglang"),
        ("SGLANG_RUST_SERVER=Yes python -m sglang.launch_server --model m", "SGLANG_RUST_SERVER"),
        ("python3 -m sglang_router.launch_router --model m", "'sglang_router.launch_router'"),
        ("smg launch --worker-urls http://a:1", "'smg'.*--backend sglang"),
        ("sglang serve m --chat-template chatml", "--chat-template 'chatml'"),
        ("sglang serve m --tool-call-parser deepseekv32", "--tool-call-parser"),
        ("sglang serve m --is-embedding", "--is-embedding"),
        ('sglang serve m --mm-process-config \'{"image": {"max_pixels": 9}}\'', "--mm-process"),
        ("SGLANG_MM_SKIP_COMPUTE_HASH=1 sglang serve m", "SGLANG_MM_SKIP_COMPUTE_HASH"),
    ],
)
def test_what_is_not_covered_of_sglang_is_refused_by_name(line: str, named: str) -> None:
    with pytest.raises(ModelError, match=f"^{named}") as refused:
        EngineSettings.from_args(line)
    assert refused.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--cuda-graph-max-bs 8", "ambiguous.*--cuda-graph-max-bs-decode"),
        ("--nsa-decode-backend fa3", "--dsa-decode-backend now"),
        ("--disable-radix-cashe", "did you mean '--disable-radix-cache'"),
        ("--page-size x", "invalid.*value: 'x'"),
        ("--mm-feature-transport gpu", "invalid choice: 'gpu'"),
        ("--model-type llm", "sglang serve"),
    ],
)
def test_what_sglang_refuses_of_its_command_line_is_said(options: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as refused:
        EngineSettings.from_args(f"python -m sglang.launch_server --model-path m {options}")
    assert refused.value.reason is Reason.INVALID_ENGINE_SETTING


# Source: SGLang 0.5.23, srt/arg_groups/overrides.py
@pytest.mark.parametrize(
    ("options", "size"),
    [
        ("", None),
        ("--page-size 1", None),
        ("--page-size 64", 64),
        ("--page-size 64 --dcp-size 2", 128),
        ("--attention-backend fa3", 1),
        ("--attention-backend triton --page-size 4", 4),
        ("--attention-backend flashmla --page-size 16", 64),
        ("--attention-backend trtllm_mha", 64),
        ("--decode-attention-backend trtllm_mla --page-size 32", 32),
        ("--attention-backend fa4 --page-size 64", None),
        ("--attention-backend fa3 --prefill-attention-backend fa4", None),
    ],
)
def test_backends_of_attention_decide_the_size_of_pages(options: str, size: int | None) -> None:
    settings = EngineSettings.from_args(f"sglang serve m {options}")
    assert isinstance(settings, SglangSettings)
    assert settings.page_size == size


@pytest.mark.parametrize(
    ("text", "length"), [("4000", 4000), ("32k", 32000), ("1.5M", 1500000), ("8Ki", 8192)]
)
def test_sglang_reads_lengths_with_units(text: str, length: int) -> None:
    settings = EngineSettings.from_args(f"sglang serve m --context-length {text}")
    assert isinstance(settings, SglangSettings)
    assert settings.context_length == length


def test_a_file_of_options_is_below_the_line_of_sglang(tmp_path: Path) -> None:
    (file := tmp_path / "a.yaml").write_text(
        "page-size: 64\nrevision: main\nlimit-mm-data-per-request: {image: 2}\n"
        "disable-radix-cache: true\n"
    )
    settings = EngineSettings.from_args(f"sglang serve m --page-size 32 --config {file}")
    assert settings == SglangSettings(
        model="m", page_size=32, revision="main", max_items={Modality.IMAGE: 2}, radix_cache=False
    )


# Source: SGLang 0.5.23, srt/environ.py (`EnvBool`)
@pytest.mark.parametrize(
    "line",
    [
        "SGLANG_RUST_SERVER=0 /usr/bin/sglang serve m --page-size 64 --port $PORT",
        "CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server --model m --page-size=64 --tp 2",
    ],
)
def test_a_command_line_of_sglang_gives_its_settings(
    line: str, small_model: Callable[[str], Path]
) -> None:
    settings = EngineSettings.from_args(line)
    assert isinstance(settings, SglangSettings)
    assert (settings.model, settings.page_size) == ("m", 64)
    sglang = Normalizer.from_pretrained(
        str(small_model(QWEN)), backend="sglang", engine_settings=settings
    )
    routing = sglang.normalize(prompt="a b " * 128)
    assert routing.hashes() == routing.page_hashes(64)
    told = Normalizer.from_pretrained(str(small_model(QWEN)), engine_settings=settings)
    assert told.model.engine.release.name == "sglang"  # the line says what was started
    with pytest.raises(ModelError, match="those of sglang"):
        Normalizer.from_pretrained(
            str(small_model(QWEN)), backend="vllm==0.33.0", engine_settings=settings
        )
    with pytest.raises(ModelError, match="starts sglang"):
        VllmSettings.from_args(line)


def test_a_model_may_have_the_name_of_sglang() -> None:
    assert VllmSettings.from_args("SGLANG_RUST_SERVER=0 vllm serve sglang").model == "sglang"
