"""What SGLang's settings do to prompts, identities and pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mmroute import EngineSettings, InexactError, Lora, ModelError, Normalizer, Reason, from_openai
from mmroute.engine import find_engine
from mmroute.engines.sglang.settings import SglangSettings

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhg"
    "GAWjR9awAAAABJRU5ErkJggg=="
)


def settings(line: str) -> SglangSettings:
    found = EngineSettings.from_args(line)
    assert isinstance(found, SglangSettings)
    return found


def loaded(model: Path, line: str) -> Normalizer:
    return Normalizer.from_pretrained(model, engine_settings=settings(line))


def chat(url: str = PNG, **more: object) -> list[dict[str, object]]:
    part = {"type": "image_url", "image_url": {"url": url, **more}}
    return [{"role": "user", "content": [part, {"type": "text", "text": "Hi"}]}]


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("sglang serve m", "cpu"),
        ("SGLANG_USE_CUDA_IPC_TRANSPORT=False sglang serve m", "cpu"),
        ("SGLANG_USE_CUDA_IPC_TRANSPORT=1 sglang serve m", "cuda_ipc"),
        ("SGLANG_USE_CUDA_IPC_TRANSPORT=1 sglang serve m --mm-feature-transport cpu", "cpu"),
    ],
)
def test_variables_are_read_as_the_engine_reads_them(line: str, transport: str) -> None:
    assert settings(line).feature_transport == transport
    assert not settings(line).without_effect


@pytest.mark.parametrize(
    ("options", "takes", "refuses"),
    [
        ("--page 64", ("0.5.20", "0.5.22"), {"0.5.23": "could match --page"}),
        ("--context 4096", ("0.5.20",), {"0.5.22": "could match --context", "0.5.23": "--context"}),
        ("--keep-mm-feature-on-device", ("0.5.20",), {"0.5.21": "gone since 0.5.21"}),
        ("--attn-dp-size 2", ("0.5.22", "0.5.23"), {"0.5.20": "unrecognized"}),
    ],
)
def test_a_line_is_read_by_the_options_of_the_version(
    options: str, takes: tuple[str, ...], refuses: dict[str, str]
) -> None:
    given = settings(f"sglang serve m --page-size 64 {options}")
    for version in takes:
        own = find_engine(f"sglang=={version}").under(given).settings
        assert isinstance(own, SglangSettings)
        assert own.page_size == 64
    for version, why in refuses.items():
        with pytest.raises(ModelError, match=f"SGLang {version}.*{why}"):
            find_engine(f"sglang=={version}").under(given)


def test_dynamos_events_came_with_a_version() -> None:
    given = settings("""sglang serve m --kv-events-config '{"format": "dynamo"}'""")
    assert find_engine("sglang==0.5.22").under(given).settings == given
    with pytest.raises(ModelError, match=r"SGLang 0\.5\.21 has no format dynamo"):
        find_engine("sglang==0.5.21").under(given)


def test_pages_of_adapters_are_told_apart_since_a_version(
    small_model: Callable[[str], Path],
) -> None:
    given = settings("sglang serve m --lora-paths a=/a")
    new = Normalizer.from_pretrained(small_model("small-llama"), engine_settings=given)
    old = new.matching("sglang==0.5.22", engine_settings=given)
    routings = new.normalize_with(old, prompt="Hello there, " * 9, lora=Lora("a", "/a"))
    assert routings[0].page_hashes(4).hashes
    with pytest.raises(InexactError, match=r"before SGLang 0\.5\.23"):
        routings[1].page_hashes(4)


def test_what_every_version_refuses_is_told_of_the_newest() -> None:
    with pytest.raises(ModelError, match=r"SGLang 0\.5\.23 refuses .*--no-such"):
        settings("sglang serve m --no-such")


def test_an_empty_variable_starts_no_rust_server() -> None:
    assert settings("SGLANG_RUST_SERVER= sglang serve m").model == "m"


@pytest.mark.parametrize("limits", ['{"image": "3"}', '{"image": null}'])
def test_a_limit_is_an_integer(limits: str) -> None:
    with pytest.raises(ModelError, match="image must be an integer"):
        settings(f"sglang serve m --limit-mm-data-per-request '{limits}'")


def test_another_tokenizer_is_refused_by_name() -> None:
    assert settings("sglang serve m --tokenizer-path m").model == "m"
    with pytest.raises(ModelError, match="--tokenizer-path"):
        settings("sglang serve m --tokenizer-path n")


def test_a_file_of_options_is_named_once(tmp_path: Path) -> None:
    (file := tmp_path / "a.yaml").write_text("page-size: 64")
    with pytest.raises(ModelError, match="named twice"):
        EngineSettings.from_args(f"sglang serve m --config {file}", config=file)


def test_workers_share_prompts_only_if_their_paths_choose_one_template(
    small_model: Callable[[str], Path],
) -> None:
    """SGLang takes the template of chatml-llava by this path."""
    guessed = "sglang serve lmms-lab/llava-onevision-qwen2-7b"
    first = loaded(small_model("small-llava-onevision"), guessed)
    other = first.matching("sglang", engine_settings=settings("sglang serve /models/ov"))
    hi = [{"role": "user", "content": "Hi"}]
    ids = [one.normalize(messages=hi).token_ids.tolist() for one in (first, other)]
    assert ids[0] != ids[1]


def test_what_reasoning_adds_to_a_guessed_template_is_refused(
    small_model: Callable[[str], Path],
) -> None:
    line = "sglang serve lmms-lab/llava-onevision-qwen2-7b --reasoning-parser deepseek-r1"
    with pytest.raises(ModelError, match="--reasoning-parser"):
        loaded(small_model("small-llava-onevision"), line)


def test_a_system_message_without_content_leaves_the_template_s_own(
    small_model: Callable[[str], Path],
) -> None:
    normalizer = loaded(
        small_model("small-llava-onevision"), "sglang serve a/llava-onevision-qwen2"
    )
    hi = [{"role": "user", "content": "Hi"}]
    plain = normalizer.normalize(messages=hi).token_ids.tolist()
    without = normalizer.normalize(messages=[{"role": "system", "content": None}, *hi])
    empty = normalizer.normalize(messages=[{"role": "system", "content": ""}, *hi])
    assert without.token_ids.tolist() == plain != empty.token_ids.tolist()


def test_the_engine_s_own_template_is_read_as_the_engine_reads_it(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    (file := tmp_path / "a.jinja").write_text("\n\n{{ messages[0].content }}\\n{{ image }}A:\n")
    normalizer = loaded(small_model("small-llama"), f"sglang serve m --chat-template {file}")
    found = normalizer.normalize(messages=[{"role": "user", "content": "Hi"}])
    assert normalizer.model.tokenizer.decode(found.token_ids.tolist()) == "Hi\nA:"


def test_default_detail_is_auto(small_model: Callable[[str], Path]) -> None:
    normalizer = loaded(small_model("small-qwen3-vl"), "sglang serve m")
    plain, default, low = (
        normalizer.normalize(messages=chat(**more)).identities
        for more in ({}, {"detail": "default"}, {"detail": "low"})
    )
    assert plain == default != low


def test_a_client_cannot_take_another_picture_s_place(small_model: Callable[[str], Path]) -> None:
    body = {"messages": chat()}
    body["messages"][0]["content"][0]["bare"] = True  # type: ignore[index]
    normalizer = loaded(small_model("small-qwen3-vl"), "sglang serve m")
    routing = normalizer.answer(from_openai(body, backend="sglang"))
    assert routing.exact == normalizer.normalize(messages=chat()).exact


def test_a_server_has_the_limits_of_its_own_line(small_model: Callable[[str], Path]) -> None:
    limited = "sglang serve m --limit-mm-data-per-request '{\"image\": 0}'"
    normalizer = loaded(small_model("small-qwen3-vl"), limited)
    assert normalizer.normalize(messages=chat()).reason is Reason.TOO_MANY_ITEMS
    other = normalizer.matching("sglang", engine_settings=settings("sglang serve m"))
    assert other.normalize(messages=chat()).reason is not Reason.TOO_MANY_ITEMS


def test_a_given_context_is_the_engine_s_setting(small_model: Callable[[str], Path]) -> None:
    normalizer = loaded(small_model("small-llama"), "sglang serve m --context-length 64")
    assert normalizer.normalize(prompt_token_ids=[5] * 57).exact
    with pytest.raises(InexactError):
        _ = normalizer.normalize(prompt_token_ids=[5] * 58).token_ids
    origins = {origin.source: origin.value for origin in normalizer.model.origins}
    assert origins["the engine's settings"] == 58


def test_a_slow_image_processor_is_the_one_of_pillow() -> None:
    line = "python -m sglang.launch_server --model-path m --disable-fast-image-processor"
    assert settings(line).image_processor_backend == "pil"
