"""Fields of config.json: what they mean where they are null, missing, or not as published.

All numbers are vLLM 0.33's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from media_files import png_url
from small_models import Files

from mmroute import ImageSize, ModelError, Normalizer, Reason
from mmroute.requests.items import Modality

_SIZES = (ImageSize(1283, 721), ImageSize(90, 333), ImageSize(56, 56))


def chat(*sizes: ImageSize) -> dict[str, Any]:
    """A chat with images of these sizes."""
    parts = [{"type": "image"}] * len(sizes)
    said = {"type": "text", "text": "What is this?"}
    return {"messages": [{"role": "user", "content": [*parts, said]}], "images": [*sizes]}


def lengths(normalizer: Normalizer) -> list[int]:
    """The numbers of tokens of chats with one image each, and of one with the last two."""
    chats = [*map(chat, _SIZES), chat(*_SIZES[1:])]
    return [len(normalizer.normalize(**one).token_ids) for one in chats]


@pytest.fixture
def with_config(changed_model: Callable[..., Path]) -> Callable[..., Normalizer]:
    """A small model with other fields in config.json, by dotted name, or without those of `...`."""

    def load(name: str, fields: dict[str, Any]) -> Normalizer:
        def change(files: Files) -> None:
            for path, value in fields.items():
                *parents, field = path.split(".")
                inside = files["config.json"]
                for parent in parents:
                    inside = inside[parent]
                if value is ...:
                    inside.pop(field, None)
                else:
                    inside[field] = value

        return Normalizer.from_pretrained(changed_model(name, change))

    return load


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("small-h2ovl", {"dynamic_image_size": None}, [41, 41, 41, 59]),
        ("small-h2ovl", {"use_thumbnail": None}, [169, 201, 105, 107]),
        ("small-h2ovl", {"use_msac": False}, [73, 105, 41, 123]),
    ],
)
def test_a_switch_is_off_where_it_is_null_or_false(
    name: str, fields: dict[str, Any], expected: list[int], with_config: Callable[..., Normalizer]
) -> None:
    assert lengths(with_config(name, fields)) == expected


@pytest.mark.parametrize("name", ["internvl-chat", "skywork-r1v", "qianfan-ocr", "eagle-2.5"])
@pytest.mark.parametrize("field", ["dynamic_image_size", "use_thumbnail"])
def test_null_is_false_for_the_switches_of_internvl(
    name: str, field: str, with_config: Callable[..., Normalizer]
) -> None:
    null, false = (with_config(f"small-{name}", {field: value}) for value in (None, False))
    assert lengths(null) == lengths(false) != lengths(with_config(f"small-{name}", {}))


def test_a_forced_size_may_be_null(with_config: Callable[..., Normalizer]) -> None:
    """vLLM then takes the size in vision_config."""
    null = with_config("small-eagle-2.5", {"force_image_size": None})
    sized = with_config("small-eagle-2.5", {"force_image_size": 112})
    assert lengths(null) == lengths(sized)


def test_an_identity_covers_whether_an_image_alone_has_two_passes(
    with_config: Callable[..., Normalizer],
) -> None:
    """vLLM hashes `use_msac` with an image. It is false for one of several images in any case."""
    picture = {"type": "image_url", "image_url": {"url": png_url(40, 30)}}
    once = with_config("small-h2ovl", {"use_msac": False})
    twice = with_config("small-h2ovl", {})

    def identity(normalizer: Normalizer, count: int) -> str:
        messages = [{"role": "user", "content": [picture] * count}]
        routing = normalizer.normalize(messages=messages)
        return str(routing.identities[0])

    assert identity(once, 1) == identity(once, 2) == identity(twice, 2) != identity(twice, 1)


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
    ],
)
def test_the_longest_context_is_that_of_the_language_models_class(
    name: str, field: str, length: int, with_config: Callable[..., Normalizer]
) -> None:
    assert with_config(name, {field: ...}).model.max_model_len == length


def test_a_class_that_comes_with_the_model_needs_no_model_type(
    with_config: Callable[..., Normalizer],
) -> None:
    whole = with_config("small-internvl-chat", {})
    for value in (..., "another"):
        other = with_config("small-internvl-chat", {"model_type": value})
        assert lengths(other) == lengths(whole)


@pytest.mark.parametrize(
    "name", ["small-internvl-chat", "small-kimi-k2.5", "small-deepseek-ocr", "small-step-3-vl"]
)
def test_a_file_of_a_processor_that_vllm_does_not_load_is_idle(
    name: str, changed_model: Callable[..., Path]
) -> None:
    """It has a processor of its own, which reads config.json, or a few fields of the file."""
    fields = {"do_resize": False, "size": {"height": 10, "width": 10}, "crop_size": None}
    path = changed_model(
        name, lambda files: files.setdefault("preprocessor_config.json", {}).update(fields)
    )
    assert Normalizer.from_pretrained(path).model.media


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("small-qwen2.5-vl", "image_token_id"),
        ("small-qwen2.5-vl", "video_token_id"),
        ("small-qwen3-vl", "image_token_id"),
        ("small-gemma-3", "image_token_index"),
        ("small-gemma-3", "boi_token_index"),
        ("small-gemma-3n", "audio_token_id"),
        ("small-idefics3", "image_token_id"),
        ("small-step-3-vl", "image_token_id"),
        ("small-nemotron-nano-vl", "img_context_token_id"),
        ("small-qwen2.5-omni", "thinker_config.image_token_index"),
    ],
)
def test_an_id_that_vllm_takes_from_the_tokenizer_is_idle(
    name: str, field: str, with_config: Callable[..., Normalizer]
) -> None:
    models = with_config(name, {}), with_config(name, {field: 5})
    one, other = (model.normalize(**chat(_SIZES[0])) for model in models)
    assert one.exact
    assert one.token_ids.tolist() == other.token_ids.tolist()


@pytest.mark.parametrize("name", ["small-qwen3-vl", "small-qwen3.5", "small-cosmos3"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("video_token_id", ...), ("vision_start_token_id", 5), ("vision_end_token_id", ...)],
)
def test_videos_with_other_ids_in_config_json_are_not_covered(
    name: str, field: str, value: object, with_config: Callable[..., Normalizer]
) -> None:
    """vLLM writes those of config.json around frames. Without one it has the class's default."""
    model = with_config(name, {field: value}).model
    assert Modality.IMAGE in model.media
    assert Modality.VIDEO not in model.media
    assert Modality.VIDEO in model.uncovered


@pytest.mark.parametrize("value", [False, None, ...])
def test_a_model_that_takes_no_images_answers_texts(
    value: object, with_config: Callable[..., Normalizer]
) -> None:
    kimi = with_config("small-kimi-k2.5", {"use_unified_vision_chunk": value})
    assert kimi.normalize(**chat()).exact
    assert kimi.normalize(**chat(_SIZES[0])).reason is Reason.UNSUPPORTED_MODALITY


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("small-minicpm-v-4.6", {"do_resize": None}),
        ("small-minicpm-v-4.6", {"image_mean": None}),
        ("small-minicpm-v-4.6", {"rescale_factor": None}),
        ("small-minicpm-v-4.6", {"downsample_mode": None}),
        ("small-minicpm-v-4.6", {"image_mean": []}),
        ("small-minicpm-v-4.6", {"image_std": []}),
        ("small-minicpm-v-4.6", {"resample": 6}),
        ("small-minicpm-v-4.7", {"do_center_crop": True}),
        ("small-ovis-2.5", {"do_resize": None}),
        ("small-ovis-2.5", {"size": {}}),
        ("small-ovis-2.5", {"image_processor_type": "CLIPImageProcessor"}),
        ("small-ovis-2.6", {"image_processor_type": None}),
    ],
)
def test_images_are_not_covered_where_vllm_fails_on_every_image(
    name: str, fields: dict[str, Any], changed_model: Callable[..., Path]
) -> None:
    path = changed_model(name, lambda files: files["preprocessor_config.json"].update(fields))
    why = Normalizer.from_pretrained(path).model.uncovered[Modality.IMAGE]
    assert next(iter(fields)) in why


@pytest.mark.parametrize(
    ("name", "file", "field", "value"),
    [
        ("small-alpamayo-2-super", "config.json", "min_pixels", None),  # then `size` counts
        ("small-opencua", "preprocessor_config.json", "patch_size", 6),  # large images then fail
    ],
)
def test_images_are_not_covered_where_another_place_counts(
    name: str, file: str, field: str, value: object, changed_model: Callable[..., Path]
) -> None:
    path = changed_model(name, lambda files: files[file].update({field: value}))
    assert field in Normalizer.from_pretrained(path).model.uncovered[Modality.IMAGE]


@pytest.mark.parametrize("name", ["small-minicpm-v-4.6", "small-minicpm-v-4.7"])
def test_any_downsample_mode_but_one_merges_both_times(
    name: str, changed_model: Callable[..., Path]
) -> None:
    def with_mode(mode: str) -> list[int]:
        fields = {"downsample_mode": mode}
        path = changed_model(name, lambda files: files["preprocessor_config.json"].update(fields))
        return lengths(Normalizer.from_pretrained(path))

    assert with_mode("16x") == with_mode("another") != with_mode("4x")


def test_a_missing_field_of_llama_nemotron_has_the_default_of_its_class(
    changed_model: Callable[..., Path],
) -> None:
    def load(**fields: Any) -> list[int]:
        def change(files: Files) -> None:
            kept = files["preprocessor_config.json"]
            for field in ("image_size", "max_num_tiles", "use_thumbnail"):
                kept.pop(field)
            kept |= fields

        return lengths(
            Normalizer.from_pretrained(changed_model("small-llama-nemotron-nano-vl", change))
        )

    published = {"image_size": 512, "max_num_tiles": 12, "use_thumbnail": True}
    assert load() == load(**published)
    assert load(use_thumbnail=None) == load(use_thumbnail=False) != load()


def test_unlimited_ocr_cuts_no_image_where_a_request_says_so(
    with_config: Callable[..., Normalizer],
) -> None:
    picture = {"type": "image_url", "image_url": {"url": png_url(1283, 721)}}
    messages = [{"role": "user", "content": [picture, {"type": "text", "text": "Hi"}]}]
    model = with_config("small-unlimited-ocr", {})
    whole, cut = (
        model.normalize(messages=messages, mm_processor_kwargs={"crop_mode": mode})
        for mode in (False, True)
    )
    assert (len(whole.token_ids), len(cut.token_ids)) == (277, 3117)
    assert whole.identities != cut.identities


def test_moondream_counts_alike_whatever_the_most_crops(
    with_config: Callable[..., Normalizer],
) -> None:
    """vLLM 0.33.0 was asked of 4 crops: the image is cut otherwise, and has as many tokens."""
    moondream = with_config("small-moondream3", {})
    request = chat(ImageSize(1283, 721))
    few, most = (
        moondream.normalize(**request, mm_processor_kwargs=kwargs)
        for kwargs in ({"max_crops": 4}, {})
    )
    assert few.token_ids.tolist() == most.token_ids.tolist()
    assert str(few.metadata()) != str(most.metadata())


@pytest.mark.parametrize("value", [..., None, []])
@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-llava-1.5"])
def test_a_model_without_architectures_embeds(
    name: str, value: object, with_config: Callable[..., Normalizer]
) -> None:
    """vLLM 0.33.0 has no route for chats then."""
    with pytest.raises(ModelError, match="architectures") as caught:
        with_config(name, {"architectures": value})
    assert caught.value.reason is Reason.MISSING_CONFIG_FIELD


@pytest.mark.parametrize("name", ["small-llama-4", "small-mimo-v2-omni"])
def test_a_model_without_architectures_generates_if_its_type_has_no_other_class(
    name: str, with_config: Callable[..., Normalizer]
) -> None:
    assert lengths(with_config(name, {"architectures": ...})) == lengths(with_config(name, {}))


def test_a_type_for_which_vllm_has_no_class_is_no_family(
    with_config: Callable[..., Normalizer],
) -> None:
    with pytest.raises(ModelError) as caught:
        with_config("small-kimi-k2.5", {"architectures": ...})
    assert caught.value.reason is Reason.UNKNOWN_FAMILY


@pytest.mark.parametrize("value", [..., None])
def test_mimo_takes_no_items_whose_id_its_configuration_lacks(
    value: object, with_config: Callable[..., Normalizer]
) -> None:
    """vLLM 0.33.0 fails on each of them. Without images it does not plan its encoder cache."""
    media = with_config(
        "small-mimo-v2-omni", {"processor_config.video_token_id": value}
    ).model.media
    assert Modality.IMAGE in media
    assert Modality.VIDEO not in media
    with pytest.raises(ModelError, match="image_token_id"):
        with_config("small-mimo-v2-omni", {"processor_config.image_token_id": value})


def test_a_length_that_is_null_is_the_one_that_vllm_assumes(
    with_config: Callable[..., Normalizer],
) -> None:
    mimo = with_config("small-mimo-v2-omni", {"max_position_embeddings": None})
    assert mimo.model.max_model_len == 2048


def test_ovis_has_the_size_of_its_processors_class(changed_model: Callable[..., Path]) -> None:
    def with_size(size: object) -> list[int]:
        def change(files: Files) -> None:
            kept = files["preprocessor_config.json"]
            kept.pop("size")
            if size is not ...:
                kept["size"] = size

        normalizer = Normalizer.from_pretrained(changed_model("small-ovis", change))
        return [len(normalizer.normalize(**chat(size)).token_ids) for size in _SIZES]

    assert with_size(...) == with_size({"height": 224, "width": 224})
