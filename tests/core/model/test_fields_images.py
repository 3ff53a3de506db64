"""Fields of image processors' files: what vLLM 0.33.0 answers, or that it refuses all images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import Files

from mmroute import ImageSize, ModelError, Normalizer, Reason
from mmroute.requests.items import Modality

_PREPROCESSOR = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"
_LARGE, _TALL, _SMALL = ImageSize(1283, 721), ImageSize(90, 333), ImageSize(56, 56)


def _nested(part: str, field: str, value: object) -> Callable[[Files], None]:
    return lambda files: files[_PROCESSOR][part].update({field: value})


def _set(**fields: Any) -> Callable[[Files], None]:
    return lambda files: files[_PREPROCESSOR].update(fields)


def _class(name: str) -> Callable[[Files], None]:
    return lambda files: files[_PROCESSOR].update(processor_class=name)


def _config(part: str, **fields: Any) -> Callable[[Files], None]:
    """Fields of a part of config.json; None takes one away."""

    def change(files: Files) -> None:
        inner = files["config.json"][part]
        inner |= fields
        for name in [name for name, value in fields.items() if value is None]:
            del inner[name]

    return change


def _vision(part: dict[str, Any] | None) -> Callable[[Files], None]:
    return lambda files: files["config.json"].update(vision_config=part)


def _move_image_processor(files: Files) -> None:
    files[_PREPROCESSOR] = files[_PROCESSOR].pop("image_processor")


def _tokens(path: Path, *images: ImageSize, **fields: Any) -> int:
    content = [{"type": "image"}] * len(images) + [{"type": "text", "text": "What is this?"}]
    routing = Normalizer.from_pretrained(path).normalize(
        messages=[{"role": "user", "content": content}], images=list(images), **fields
    )
    assert routing.token_ids is not None, routing.message
    return len(routing.token_ids)


@pytest.mark.parametrize(
    ("name", "change", "image", "count"),
    [
        # without a thumbnail vLLM takes the last tile for it
        ("small-lfm2-vl", _set(use_thumbnail=False), _LARGE, 107),
        ("small-lfm2-vl", _set(use_thumbnail=None), _LARGE, 107),
        ("small-lfm2-vl", _set(do_image_splitting=None), _LARGE, 101),
        ("small-lfm2-vl", _set(do_resize=False), _LARGE, 101),
        ("small-smolvlm", _set(do_image_splitting=None), _LARGE, 42),
        ("small-emu3", _set(do_resize=None), _TALL, 524),
        ("small-emu3", _set(image_mean=None, size=None, do_center_crop=True), _TALL, 578),
        ("small-llama-4", _set(resize_to_max_canvas=None), _SMALL, 31),
        ("small-internvl", _set(crop_to_patches=None), _LARGE, 70),
        # a number in place of a size
        ("small-internvl", _set(size=56), _LARGE, 70),
        ("small-command-a-vision", _set(size=64), _TALL, 76),
        # by the height alone
        ("small-command-a-vision", _set(size={"height": 128, "width": 64}), _TALL, 66),
        ("small-command-a-vision", _set(size={"height": 64, "width": 48}), _TALL, 76),
        ("small-llava-1.5", _set(do_resize=False), _LARGE, 629),
        ("small-llava-next", _set(crop_size={"height": 504, "width": 336}), _LARGE, 1903),
        ("small-granite4-vision", lambda files: files[_PREPROCESSOR].pop("crop_size"), _TALL, 357),
        ("small-aria", _set(max_image_size=392, split_image=True), _LARGE, 95),
        # vLLM has the device normalize
        ("small-mistral3", _set(image_mean=[], image_std=None), _LARGE, 1017),
        ("small-gemma-4", _nested("image_processor", "image_mean", []), _LARGE, 146),
        # the default of the encoder's class, which is not that of a missing vision_config
        ("small-paligemma", _config("vision_config", patch_size=None), _LARGE, 21),
        # a part that is missing has other numbers than an empty one
        ("small-llava-1.5", _vision({}), _LARGE, 102),
        ("small-llava-next", _vision({}), _LARGE, 344),
        ("small-paligemma", _vision(None), _LARGE, 268),
        # vLLM reads processor_config.json alone
        ("small-muse-spark", _move_image_processor, _LARGE, 1221),
    ],
)
def test_a_field_counts_as_in_vllm(
    name: str,
    change: Callable[[Files], None],
    image: ImageSize,
    count: int,
    changed_model: Callable[..., Path],
) -> None:
    assert _tokens(changed_model(name, change), image) == count


@pytest.mark.parametrize(
    ("name", "kwargs", "count"),
    [
        ("small-lfm2-vl", {"use_thumbnail": False}, 107),
        ("small-molmo2", {"max_crops": 2}, 168),
        ("small-molmo2", {"max_crops": 12}, 429),
    ],
)
def test_an_argument_counts_as_in_vllm(
    name: str, kwargs: dict[str, Any], count: int, small_model: Callable[[str], Path]
) -> None:
    assert _tokens(small_model(name), _LARGE, mm_processor_kwargs=kwargs) == count


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("small-lfm2-vl", _set(resample=4), "resample"),
        ("small-gemma-4", _nested("image_processor", "resample", 6), "resample"),
        ("small-emu3", _set(resample=None), "resample"),
        ("small-emu3", _set(image_mean=[]), "image_mean"),
        ("small-muse-glimmer", _set(image_std=None), "image_std"),
        ("small-muse-glimmer", _set(image_std=[]), "image_std"),
        ("small-muse-glimmer", _set(rescale_factor=None), "rescale_factor"),
        ("small-muse-glimmer", _set(do_resize=None), "do_resize"),
        ("small-gemma-4", _nested("image_processor", "do_center_crop", True), "crop_size"),
        ("small-gemma-4", _nested("image_processor", "max_soft_tokens", None), "max_soft_tokens"),
        ("small-bagel", _set(size={"longest_edge": 280}), "size"),
        ("small-qwen2.5-vl", _set(input_data_format="channels_last"), "input_data_format"),
        ("small-minicpm-v-4.6", _set(image_mean=[]), "image_mean"),
        ("small-bagel", _set(size=None), "size"),
        ("small-bagel", _set(size={"height": None, "width": 280}), "size"),
        ("small-llama-4", _set(size={"height": 56, "width": 112}), "size"),
        ("small-llava-1.5", _set(crop_size=None), "crop_size"),
        # vLLM stacks the images of a request, which then differ in size
        ("small-gemma-3", _set(do_resize=False), "do_resize"),
        ("small-gemma-3", _set(size={"shortest_edge": 96}), "size"),
        ("small-bagel", _set(do_resize=False), "do_resize"),
        ("small-glm-4.1v", _class("LlavaProcessor"), "processor_class"),
        ("small-glm-4.1v", _class("Glm4vProcessorFast"), "processor_class"),
        ("small-minicpm-v-4.6", _class("LlavaProcessor"), "processor_class"),
    ],
)
def test_images_are_not_covered_where_vllm_fails_on_them(
    name: str, change: Callable[[Files], None], field: str, changed_model: Callable[..., Path]
) -> None:
    """It answers chats of text as ever."""
    normalizer = Normalizer.from_pretrained(changed_model(name, change))
    assert normalizer.normalize(messages=[{"role": "user", "content": "What?"}]).exact
    content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
    routing = normalizer.normalize(messages=[{"role": "user", "content": content}], images=[_SMALL])
    assert routing.reason is Reason.UNSUPPORTED_MODALITY
    assert field in routing.message


def test_a_field_that_the_family_requires(changed_model: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match="image_processor_type") as caught:
        Normalizer.from_pretrained(changed_model("small-bagel", _set(image_processor_type=None)))
    assert caught.value.reason is Reason.INVALID_CONFIG_FIELD


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("small-gemma-4", "max_soft_tokens", None),
        ("small-muse-spark", "frame_timestamp_format", "{timestamp}"),
    ],
)
def test_videos_are_not_covered_where_vllm_fails_on_them(
    name: str, field: str, value: object, changed_model: Callable[..., Path]
) -> None:
    path = changed_model(name, _nested("video_processor", field, value))
    assert field in Normalizer.from_pretrained(path).model.uncovered[Modality.VIDEO]


@pytest.mark.parametrize(
    "name", ["gemma-3", "llava-1.5", "llava-next", "aria", "blip-2", "bagel", "paligemma"]
)
def test_a_model_without_its_image_processor_is_refused(
    name: str, changed_model: Callable[..., Path]
) -> None:
    with pytest.raises(ModelError, match="image_processor") as caught:
        Normalizer.from_pretrained(
            changed_model(f"small-{name}", lambda files: files.pop(_PREPROCESSOR))
        )
    assert caught.value.reason in (Reason.MISSING_FILE, Reason.INVALID_CONFIG_FIELD)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("small-llava-next", _set(crop_size={"height": 504, "width": 336})),
        ("small-llava-onevision", _set(size={"height": 768, "width": 384})),
    ],
)
def test_an_image_in_which_no_crop_fits_is_refused(
    name: str, change: Callable[[Files], None], changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0: ZeroDivisionError, in the processor."""
    model = Normalizer.from_pretrained(changed_model(name, change))
    content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
    routing = model.normalize(messages=[{"role": "user", "content": content}], images=[_TALL])
    assert routing.reason is Reason.IMAGE_REFUSED


def test_several_images_without_thumbnails_are_refused(changed_model: Callable[..., Path]) -> None:
    """vLLM 0.33.0 looks for the size of the second image behind the last one."""
    model = Normalizer.from_pretrained(changed_model("small-lfm2-vl", _set(use_thumbnail=False)))
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "Which?"}]
    routing = model.normalize(
        messages=[{"role": "user", "content": content}], images=[_LARGE, _SMALL]
    )
    assert not routing.exact


@pytest.mark.parametrize("value", [False, None])
def test_molmo_may_start_both_views_alike(
    value: bool | None, changed_model: Callable[..., Path]
) -> None:
    path = changed_model(
        "small-molmo2",
        lambda files: files[_PROCESSOR].update(use_single_crop_start_token=value),
    )
    content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
    model = Normalizer.from_pretrained(path)
    routing = model.normalize(messages=[{"role": "user", "content": content}], images=[_SMALL])
    start = model.model.tokenizer.encode("<im_start>", add_special_tokens=False).tolist()
    assert routing.token_ids is not None
    assert routing.token_ids.tolist().count(*start) == 2


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("small-gemma-4", "Gemma4VideoProcessorFast"),  # vLLM 0.33.0 then refuses images as well
        ("small-gemma-4", "NoSuchVideoProcessor"),
    ],
)
def test_a_video_processor_that_does_not_exist_is_refused(
    name: str, named: str, changed_model: Callable[..., Path]
) -> None:
    change = _nested("video_processor", "video_processor_type", named)
    with pytest.raises(ModelError, match="name the class"):
        Normalizer.from_pretrained(changed_model(name, change))


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("glm4v_moe", "Glm4vMoeForConditionalGeneration"),
        ("glm_ocr", "GlmOcrForConditionalGeneration"),
    ],
)
def test_a_type_for_which_transformers_has_no_class_must_name_one(
    model_type: str, architecture: str, changed_model: Callable[..., Path]
) -> None:
    def change(files: Files) -> None:
        files["config.json"] |= {"model_type": model_type, "architectures": [architecture]}

    def nameless(files: Files) -> None:
        change(files)
        del files[_PREPROCESSOR]["image_processor_type"]

    assert _tokens(changed_model("small-glm-4.1v", change), _SMALL)
    model = Normalizer.from_pretrained(changed_model("small-glm-4.1v", nameless)).model
    assert "name no class" in model.uncovered[Modality.IMAGE]


@pytest.mark.parametrize("field", ["boi_token_id", "eoi_token_id"])
def test_a_token_of_features_beside_them_is_refused(
    field: str, changed_model: Callable[..., Path]
) -> None:
    """vLLM 0.33.0 looks for features wherever the token stands, so the model gets too few."""

    def change(files: Files) -> None:
        config = files["config.json"]
        config[field] = config["image_token_id"]

    model = Normalizer.from_pretrained(changed_model("small-gemma-4", change)).model
    assert "beside the features" in model.uncovered[Modality.IMAGE]


def test_a_missing_part_of_config_has_the_limits_of_another_model(
    changed_model: Callable[..., Path],
) -> None:
    """Without a text_config transformers makes a Llama of LlavaConfig."""
    path = changed_model("small-pixtral-hf", lambda files: files["config.json"].pop("text_config"))
    assert Normalizer.from_pretrained(path).model.max_model_len == 2048


@pytest.mark.parametrize("field", ["pooling_size", "overlap_margins"])
def test_pairs_of_numbers_are_pairs(field: str, changed_model: Callable[..., Path]) -> None:
    path = changed_model("small-molmo2", _set(**{field: [2]}))
    assert field in Normalizer.from_pretrained(path).model.uncovered[Modality.IMAGE]
