"""Fields of models' files that the vectors of changed files say nothing of.

`vectors/changed` has what vLLM 0.33.0 answers about a directory with another field. Here are fields
that decide something else, and items that are refused though the engine takes some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from media_files import png_url
from small_models import Files, media_model, write_model

from mmroute import ImageSize, InexactError, ModelError, Normalizer, Reason, VideoSize
from mmroute.model.resolve import resolve_model
from mmroute.requests.items import Modality

CONFIG, PROCESSOR = "config.json", "processor_config.json"
IMAGE, VIDEO = "preprocessor_config.json", "video_preprocessor_config.json"
LARGE, SMALL = ImageSize(1283, 721), ImageSize(56, 56)
TEXT = {"type": "text", "text": "What is this?"}
Changed = Callable[..., Path]
NOTHING: tuple[Any, ...] = (..., None, [])


def chat(*sizes: ImageSize) -> dict[str, Any]:
    content = [*[{"type": "image"}] * len(sizes), TEXT]
    return {"messages": [{"role": "user", "content": content}], "images": [*sizes]}


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    """A small model with fields by file and dotted name, or without those of `...`."""

    def write(name: str, **fields: Any) -> Path:
        files = media_model(name)
        for place, value in fields.items():
            put(files, place, value)
        return write_model(files, tmp_path / name)

    return write


def put(files: Files, place: str, value: Any) -> None:
    file, _, path = place.partition(":")
    *parents, field = path.split(".")
    inside = files.setdefault(file, {})
    for parent in parents:
        inside = inside[parent]
    if value is ...:
        inside.pop(field, None)
    else:
        inside[field] = value


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("small-muse-glimmer", f"{IMAGE}:do_resize", None),
        ("small-qwen2.5-vl", f"{IMAGE}:input_data_format", "channels_last"),
        ("small-qwen2.5-vl", f"{IMAGE}:resample", 4),
        ("small-llama-4", f"{IMAGE}:size", {"height": 56, "width": 112}),
        ("small-llava-1.5", f"{IMAGE}:crop_size", None),
        ("small-gemma-3", f"{IMAGE}:do_resize", False),
        ("small-gemma-3", f"{IMAGE}:size", {"shortest_edge": 96}),
        ("small-bagel", f"{IMAGE}:do_resize", False),
        ("small-ovis-2.5", f"{IMAGE}:size", {}),
        ("small-ovis-2.5", f"{IMAGE}:image_processor_type", "CLIPImageProcessor"),
        ("small-alpamayo-2-super", f"{CONFIG}:min_pixels", None),  # then `size` counts
        ("small-opencua", f"{IMAGE}:patch_size", 6),  # large images then fail
        ("small-molmo2", f"{IMAGE}:pooling_size", [2]),
        ("small-molmo2", f"{IMAGE}:overlap_margins", [2]),
        ("small-keye", f"{IMAGE}:do_resize", False),  # its own code fails, or counts otherwise
        ("small-keye", f"{IMAGE}:temporal_patch_size", 2),
        # vLLM looks for features wherever the token stands, so the model gets too few.
        ("small-gemma-4", f"{CONFIG}:boi_token_id", 413),
        ("small-gemma-4", f"{CONFIG}:eoi_token_id", 413),
    ],
)
def test_images_are_not_covered(name: str, place: str, value: object, changed: Changed) -> None:
    """Chats of text are answered as ever."""
    normalizer = Normalizer.from_pretrained(changed(name, **{place: value}))
    assert normalizer.normalize(**chat()).exact
    routing = normalizer.normalize(**chat(SMALL))
    assert routing.reason is Reason.UNSUPPORTED_MODALITY
    told = "beside the features" if place.endswith("oi_token_id") else place.partition(":")[2]
    assert told in routing.message


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("small-muse-spark", f"{PROCESSOR}:video_processor.frame_timestamp_format", "{timestamp}"),
        ("small-qwen3-vl", f"{VIDEO}:cap_pixels_per_frame", True),
        ("small-qwen3-vl", f"{VIDEO}:input_data_format", "channels_first"),
        ("small-qwen3-vl", f"{VIDEO}:video_processor_type", "Glm4vVideoProcessor"),
        ("small-qwen3-vl", f"{VIDEO}:video_processor_type", "Qwen2VLVideoProcessor"),
        ("small-qwen2-vl", f"{IMAGE}:cap_pixels_per_frame", True),
        # vLLM writes them around frames. Without one it has the class's default.
        ("small-qwen3-vl", f"{CONFIG}:video_token_id", ...),
        ("small-qwen3-vl", f"{CONFIG}:vision_start_token_id", 5),
        ("small-qwen3.5", f"{CONFIG}:vision_end_token_id", ...),
        ("small-cosmos3", f"{CONFIG}:vision_start_token_id", 5),
        ("small-mimo-v2-omni", f"{CONFIG}:processor_config.video_token_id", ...),
        ("small-mimo-v2-omni", f"{CONFIG}:processor_config.video_token_id", None),
    ],
)
def test_videos_are_not_covered(name: str, place: str, value: object, changed: Changed) -> None:
    media = resolve_model(str(changed(name, **{place: value}))).media
    assert Modality.VIDEO not in media
    assert Modality.IMAGE in media or name == "small-muse-spark"  # whose fields all count


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        ("small-bagel", f"{IMAGE}:image_processor_type", None, Reason.INVALID_CONFIG_FIELD),
        *(
            ("small-gemma-4", f"{PROCESSOR}:video_processor.video_processor_type", named,
             Reason.INVALID_CONFIG_FIELD)
            for named in ("Gemma4VideoProcessorFast", "NoSuchVideoProcessor")
        ),
        # vLLM has no route for chats then.
        *(
            (name, f"{CONFIG}:architectures", none, Reason.MISSING_CONFIG_FIELD)
            for name in ("small-qwen2.5-vl", "small-llava-1.5")
            for none in NOTHING
        ),
        ("small-kimi-k2.5", f"{CONFIG}:architectures", ..., Reason.UNKNOWN_FAMILY),
        # Without images it does not plan its encoder cache.
        ("small-mimo-v2-omni", f"{CONFIG}:processor_config.image_token_id", ...,
         Reason.MISSING_CONFIG_FIELD),
        ("small-mimo-v2-omni", f"{CONFIG}:processor_config.image_token_id", None,
         Reason.INVALID_CONFIG_FIELD),
        ("small-qwen2.5-vl", f"{CONFIG}:max_position_embeddings", None,
         Reason.INVALID_CONFIG_FIELD),
        ("small-glm-4.1v", f"{CONFIG}:video_end_token_id", 1, Reason.CONTRADICTORY_CONFIG),
    ],
)  # fmt: skip
def test_a_model_is_refused(
    name: str, place: str, value: object, reason: Reason, changed: Changed
) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(changed(name, **{place: value})))
    assert caught.value.reason is reason, str(caught.value)


@pytest.mark.parametrize(
    "name", ["gemma-3", "llava-1.5", "llava-next", "aria", "blip-2", "bagel", "paligemma"]
)
def test_a_model_without_its_image_processor_is_refused(
    name: str, changed_model: Callable[..., Path]
) -> None:
    with pytest.raises(ModelError, match="image_processor") as caught:
        resolve_model(str(changed_model(f"small-{name}", lambda files: files.pop(IMAGE))))
    assert caught.value.reason in (Reason.MISSING_FILE, Reason.INVALID_CONFIG_FIELD)


@pytest.mark.parametrize(
    ("name", "field", "length"),
    [
        ("small-internvl-chat", "llm_config.max_position_embeddings", 32768),
        ("small-llama-nemotron-nano-vl", "llm_config.max_position_embeddings", 2048),
        ("small-h2ovl", "llm_config.max_position_embeddings", 32768),
        ("small-llava-next", "text_config.max_position_embeddings", 2048),
        ("small-llava-next", "text_config", 2048),
        ("small-lighton-ocr", "text_config", 131072),
        ("small-qianfan-ocr", "text_config", 32768),
        ("small-internvl", "text_config", 32768),
        ("small-deepseek-ocr", "language_config", 2048),
        ("small-cohere-compass", "text_config", 8192),
        ("small-step-3-vl", "text_config", 65536),
        ("small-fun-audio-chat", "text_config.max_position_embeddings", 32768),
        ("small-dots3-note", "max_position_embeddings", 4096),
        ("small-pixtral-hf", "text_config", 2048),  # transformers makes a Llama of LlavaConfig
    ],
)
def test_the_longest_context_is_that_of_the_language_models_class(
    name: str, field: str, length: int, changed: Changed
) -> None:
    model = resolve_model(str(changed(name, **{f"{CONFIG}:{field}": ...})))
    assert model.max_model_len == length


def test_a_length_that_is_null_is_the_one_that_vllm_assumes(changed: Changed) -> None:
    path = changed("small-mimo-v2-omni", **{f"{CONFIG}:max_position_embeddings": None})
    assert resolve_model(str(path)).max_model_len == 2048


@pytest.mark.parametrize("field", ["fps", "min_frames", "max_frames"])
def test_null_fails_where_the_processor_samples_all_frames_again(
    field: str, changed: Changed
) -> None:
    """As it does if the plain loader of a class without a name decodes them all."""
    path = changed("small-qwen3-vl", **{f"{VIDEO}:video_processor_type": None,
                                        f"{VIDEO}:{field}": None})  # fmt: skip
    grid: Any = resolve_model(str(path)).media[Modality.VIDEO].geometry.grid
    with pytest.raises(InexactError) as caught:
        grid.count(VideoSize(203, 125, 7, 4.0))
    assert caught.value.reason is Reason.ITEM_REFUSED
    assert grid.count(VideoSize(200, 120, 40, 5.0)).total == 384


@pytest.mark.parametrize(
    ("name", "kwargs", "count"),
    [
        ("small-lfm2-vl", {"use_thumbnail": False}, 107),
        ("small-molmo2", {"max_crops": 2}, 168),
        ("small-molmo2", {"max_crops": 12}, 429),
    ],
)
def test_an_argument_counts_as_in_vllm(
    name: str, kwargs: dict[str, Any], count: int, normalizer: Callable[[str], Normalizer]
) -> None:
    routing = normalizer(name).normalize(**chat(LARGE), mm_processor_kwargs=kwargs)
    assert len(routing.token_ids) == count


def test_several_images_without_thumbnails_are_refused(changed: Changed) -> None:
    """vLLM 0.33.0 looks for the size of the second image behind the last one."""
    path = changed("small-lfm2-vl", **{f"{IMAGE}:use_thumbnail": False})
    assert not Normalizer.from_pretrained(path).normalize(**chat(LARGE, SMALL)).exact


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("glm4v_moe", "Glm4vMoeForConditionalGeneration"),
        ("glm_ocr", "GlmOcrForConditionalGeneration"),
    ],
)
def test_a_type_for_which_transformers_has_no_class_must_name_one(
    model_type: str, architecture: str, changed: Changed
) -> None:
    fields = {f"{CONFIG}:model_type": model_type, f"{CONFIG}:architectures": [architecture]}
    named = Normalizer.from_pretrained(changed("small-glm-4.1v", **fields))
    assert named.normalize(**chat(SMALL)).exact
    nameless = changed("small-glm-4.1v", **fields, **{f"{IMAGE}:image_processor_type": ...})
    assert "name no class" in resolve_model(str(nameless)).uncovered[Modality.IMAGE]


def test_no_image_is_taken_where_the_engine_finds_no_class_for_videos(changed: Changed) -> None:
    """vLLM 0.33.0 makes one processor of both: ValueError of ``AutoVideoProcessor``."""
    fields = {f"{CONFIG}:model_type": "glm_ocr", f"{VIDEO}:size": {"shortest_edge": 9}}
    path = changed("small-glm-4.1v", **fields)
    assert "for the video_processor" in resolve_model(str(path)).uncovered[Modality.IMAGE]


def test_an_identity_covers_whether_an_image_alone_has_two_passes(changed: Changed) -> None:
    """vLLM hashes `use_msac` with an image. It is false for one of several images in any case."""
    picture = {"type": "image_url", "image_url": {"url": png_url(40, 30)}}
    twice = Normalizer.from_pretrained(changed("small-h2ovl"))
    once = Normalizer.from_pretrained(changed("small-h2ovl", **{f"{CONFIG}:use_msac": False}))

    def identity(normalizer: Normalizer, count: int) -> str:
        messages = [{"role": "user", "content": [picture] * count}]
        return str(normalizer.normalize(messages=messages).identities[0])

    assert identity(once, 1) == identity(once, 2) == identity(twice, 2) != identity(twice, 1)


def test_unlimited_ocr_cuts_no_image_where_a_request_says_so(
    normalizer: Callable[[str], Normalizer],
) -> None:
    picture = {"type": "image_url", "image_url": {"url": png_url(1283, 721)}}
    messages = [{"role": "user", "content": [picture, {"type": "text", "text": "Hi"}]}]
    whole, cut = (
        normalizer("small-unlimited-ocr").normalize(
            messages=messages, mm_processor_kwargs={"crop_mode": mode}
        )
        for mode in (False, True)
    )
    assert (len(whole.token_ids), len(cut.token_ids)) == (277, 3117)
    assert whole.identities != cut.identities


def test_moondream_counts_alike_whatever_the_most_crops(
    normalizer: Callable[[str], Normalizer],
) -> None:
    """vLLM 0.33.0 was asked of 4 crops: the image is cut otherwise, and has as many tokens."""
    few, most = (
        normalizer("small-moondream3").normalize(**chat(LARGE), mm_processor_kwargs=kwargs)
        for kwargs in ({"max_crops": 4}, {})
    )
    assert few.token_ids.tolist() == most.token_ids.tolist()
    assert str(few.metadata()) != str(most.metadata())
