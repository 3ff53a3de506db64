"""vLLM's Rust frontend: its earlier release, its images and its parsers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import ExifTags, Image
from small_models import SMALL_MODELS, write_model

from mmroute import ImageSize, Normalizer
from mmroute.engines.vllm_rust.families import as_served
from mmroute.engines.vllm_rust.parsers import choose_parsers
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError, ModelError
from mmroute.model_directory import find_model
from mmroute.tokenizers import Tokenizer

TOOLS = [{"type": "function", "function": {"name": "f"}}]
HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
CALLED = [HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
ARGUMENTS = "{{ messages[1].tool_calls[0].function.arguments | tojson }}"


@pytest.mark.parametrize(
    ("template", "request_fields", "earlier", "now"),
    [
        ("{{ tools is defined }}", {"tools": TOOLS, "tool_choice": "none"}, "False", "True"),
        ("{{ tools is defined }}", {"tools": TOOLS, "tool_choice": "auto"}, "True", "True"),
        ("{{ strftime_now is defined }}", {}, "False", "True"),
        ("a{{ strftime_now('%Y') if false }}", {}, "a", "a"),
        ("a{{ strftime_now('%Y') }}", {}, None, None),  # 0.33.0 writes the year of the day
        (ARGUMENTS, {"messages": CALLED}, None, "{}"),
    ],
)
def test_templates_are_rendered_as_by_the_earlier_release(
    template: str,
    request_fields: dict[str, Any],
    earlier: str | None,
    now: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = write_model(
        SMALL_MODELS["small-llava-1.5"](), tmp_path_factory.mktemp("models") / "m"
    )
    settings = RustSettings(chat_template=template, tool_parser="hermes", max_model_len=4096)
    api_fields = {k: v for k, v in request_fields.items() if k == "tool_choice"}
    fields = {k: v for k, v in request_fields.items() if k != "tool_choice"}
    for version, expected in (("0.32.0", earlier), ("0.33.0", now)):
        normalizer = Normalizer.from_pretrained(
            directory, backend=f"vllm=={version}", model_id="mine", engine_settings=settings
        )
        routing = normalizer.normalize(**{"messages": [HI], **fields}, api_fields=api_fields)
        decode = normalizer.model.tokenizer.decode
        found = decode(routing.token_ids.tolist()) if routing.exact else None
        assert found == expected, version


CHAT = [{"role": "user", "content": [{"type": "image"}]}]


def loaded(directory: Path, name: str) -> Normalizer:
    settings = RustSettings()
    return Normalizer.from_pretrained(directory, model_id=name, engine_settings=settings)


def changed(directory: Path, **values: Any) -> None:
    path = directory / "preprocessor_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **values}), encoding="utf-8")


def test_sides_on_which_frontend_and_engine_do_not_agree(
    tmp_path: Path,
) -> None:
    """The frontend counts by the preprocessor's side, the engine by the encoder's."""
    directory = write_model(SMALL_MODELS["small-llava-1.5"](), tmp_path / "llava")
    size = ImageSize(30, 40)
    assert loaded(directory, "llava").normalize(messages=CHAT, images=[size]).exact
    changed(directory, size={"shortest_edge": 448})
    assert not loaded(directory, "llava").normalize(messages=CHAT, images=[size]).exact


# Source: answers of vLLM 0.33.0's `vllm-rs serve` to these files. Pillow turns all of them.
@pytest.mark.parametrize(("mark", "covered"), [(b"", True), (b"Exif\0\0", False)])
def test_the_orientation_of_a_webp_file(
    mark: bytes, covered: bool, small_model: Callable[[str], Path]
) -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = 6
    frames = [Image.new("RGB", (90, 40), color) for color in ("red", "blue")]
    data = mark + exif.tobytes().removeprefix(b"Exif\0\0")
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], exif=data)
    url = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    normalizer = loaded(small_model("small-llava-next"), "llava-next")
    found = normalizer.normalize(messages=[{"role": "user", "content": [part]}])
    upright = normalizer.normalize(messages=CHAT, images=[ImageSize(40, 90)])
    assert found.exact is covered
    if covered:
        assert found.token_ids.tolist() == upright.token_ids.tolist()


@pytest.mark.parametrize(
    "setting",
    [
        {"mm_processor_kwargs": {"max_pixels": 3136}},
        {"media_io_kwargs": {"image": {"image_mode": "RGB"}}},
        {"lora_in_identities": True},
        {"identity_algorithm": "sha256"},
    ],
)
def test_settings_it_does_not_start_with(
    setting: dict[str, Any], small_model: Callable[[str], Path]
) -> None:
    settings = RustSettings(**setting)
    with pytest.raises(ModelError, match="does not start with it"):
        Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), engine_settings=settings)


class Marks:
    """A tokenizer, as far as parsers ask it."""

    def __init__(self, *marks: str) -> None:
        self.marks = marks

    def token_id(self, text: str) -> int | None:
        return self.marks.index(text) if text in self.marks else None


GEMMA = ("<|channel>", "<channel|>")


@pytest.mark.parametrize(
    ("settings", "marks", "answered"),
    [
        ({"model": "google/Gemma-4-31B"}, GEMMA, True),
        ({"model": "google/Gemma-4-31B"}, GEMMA[:1], False),
        ({"model": "google/gemma-4-31b", "tool_parser": "auto"}, GEMMA, True),
        ({"model": "google/gemma-4-31b", "tool_parser": "none"}, GEMMA, False),
        ({"model": "google/gemma-4-31b", "tool_parser": "hermes"}, GEMMA, False),
        ({"model": "google/gemma-4-31b", "tool_parser": "gemma4"}, GEMMA, True),
        ({"model": "mine", "tool_parser": "gemma4"}, GEMMA, False),
        ({"model": "mine", "tool_parser": "gemma4", "reasoning_parser": "gemma4"}, GEMMA, True),
        ({"model": "mine", "tool_parser": "gemma4", "reasoning_parser": "gemma4"}, (), False),
        ({"model": "gemma-4", "tool_parser": "none", "reasoning_parser": "none"}, (), True),
        ({"model": "tencent/hy3"}, GEMMA, False),
    ],
)
def test_parsers_of_tool_calls_and_reasoning(
    settings: dict[str, Any], marks: tuple[str, ...], answered: bool
) -> None:
    parsers = choose_parsers(RustSettings(**settings), cast("Tokenizer", Marks(*marks)))
    tools_are_read = settings.get("tool_parser") != "none"
    try:
        parsers.check(with_tools=tools_are_read)
    except InexactError:
        assert not answered
    else:
        assert answered


def test_a_later_version_has_what_an_earlier_one_has(tmp_path: Path) -> None:
    directory = write_model(SMALL_MODELS["small-llava-1.5"](), tmp_path / "llava")
    family = loaded(directory, "llava").model.family
    assert as_served(family, find_model(str(directory)), "0.100.0", "llava").image is not None
