"""Metadata of items, and what vLLM's own render route made of the same requests."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import paths
import pytest
from comparison import read_vectors
from small_models import fingerprint, media_model, write_model

from mmroute import (
    AudioLength,
    ImageSize,
    InexactError,
    Normalizer,
    Reason,
    VideoSize,
)
from mmroute.engines.vllm.forwarding import mm_metadata
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.families.matching import known_families
from mmroute.families.spec import FamilySpec
from mmroute.geometry.grids.strided_audio import MelFrames
from mmroute.requests.lines import request_of

VECTORS: Final = sorted((paths.VECTORS / "metadata").glob("*.jsonl"))
IMAGE: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
Load = Callable[[str], Normalizer]


@pytest.mark.conformance
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_metadata_is_the_engines(path: Path, tmp_path: Path) -> None:
    """Names, values, dtypes, shapes and kinds of all fields."""
    meta, cases = read_vectors(path)
    files = media_model(path.stem)
    assert meta["fingerprint"] == fingerprint(files), "the vectors are of other files"
    settings = VllmSettings(dtype="bfloat16")  # with which the generator starts the engine
    directory = str(write_model(files, tmp_path))
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    answered = [(normalizer.answer(request_of(named(case))), case["expect"]) for case in cases]
    for routing, expect in answered:
        if routing.exact:
            # The engine writes the fields of an item in any order.
            assert decoded(mm_metadata(routing)) == decoded(expect)
    assert any(routing.exact for routing, _ in answered)


def named(case: dict[str, Any]) -> dict[str, Any]:
    """A request with a name for each item, as one that is answered with metadata has."""
    return {
        key: [{**item, "uuid": str(n)} for n, item in enumerate(value)]
        if key in ("images", "videos", "audios")
        else value
        for key, value in case.items()
    }


def decoded(metadata: Any) -> Any:
    return metadata and {
        modality: [item and msgspec.msgpack.decode(base64.b64decode(item)) for item in items]
        for modality, items in metadata.items()
    }


def test_metadata_follows_from_sizes(normalizer: Load) -> None:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}] * 2}]}
    sizes = [ImageSize(1280, 720), ImageSize(33, 500)]
    routing = normalizer("small-qwen2.5-vl").normalize(**request, images=sizes)
    # transformers' smart_resize by 28: 26 x 46 and 18 x 2 pairs of patches of 14 pixels.
    grids = [np.array(field["image_grid_thw"].value).tolist() for field in routing.metadata()]
    assert grids == [[1, 52, 92], [1, 36, 2]]
    text = normalizer("small-qwen2.5-vl").normalize(messages=[{"role": "user", "content": "Hi"}])
    assert (text.metadata(), mm_metadata(text)) == ((), None)


def test_metadata_that_cannot_be_had_is_refused(small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    image = [ImageSize(64, 48)]
    for backend in ("vllm==0.28", "sglang"):
        routing = Normalizer.from_pretrained(directory, backend=backend).normalize(
            **IMAGE, images=image
        )
        with pytest.raises(InexactError) as caught:
            routing.metadata()
        assert caught.value.reason is Reason.METADATA_UNKNOWN
    routing = Normalizer.from_pretrained(directory).normalize(**IMAGE, images=image)
    assert routing.metadata()
    with pytest.raises(InexactError, match="pickled"):
        pickle.loads(pickle.dumps(routing)).metadata()


def test_a_number_is_of_the_type_that_the_engine_computes_with(
    changed_model: Callable[..., Path],
) -> None:
    """Qwen2.5-VL's seconds for each pair of frames are cast to it; 0.825 has no exact form."""
    request: dict[str, Any] = {
        "prompt": "<|vision_start|><|video_pad|><|vision_end|>",
        "videos": [VideoSize(320, 240, 33, 20)],  # of whose frames four are taken
    }

    def seconds(directory: Path, dtype: str | None) -> Any:
        settings = VllmSettings(dtype=dtype)
        normalizer = Normalizer.from_pretrained(str(directory), engine_settings=settings)
        return normalizer.normalize(**request).metadata()[0]["second_per_grid_ts"]

    def untyped(files: dict[str, Any]) -> None:
        del files["config.json"]["torch_dtype"]

    plain = changed_model("small-qwen2.5-vl", untyped)
    with pytest.raises(InexactError, match="--dtype") as caught:
        seconds(plain, None)
    assert caught.value.reason is Reason.METADATA_UNKNOWN
    for dtype, expect in (("bfloat16", 0.82421875), ("float16", np.float16(0.825))):
        field = seconds(plain, dtype)
        assert (field.dtype, float(field.value)) == (dtype, expect)

    def half(files: dict[str, Any]) -> None:
        files["config.json"]["torch_dtype"] = "float16"

    assert seconds(changed_model("small-qwen2.5-vl", half), None).dtype == "float16"
    from_command = VllmSettings.from_args("vllm serve m --dtype half")
    assert from_command.dtype == "float16"


def test_an_argument_whose_metadata_differ_from_the_tokens_is_refused(tmp_path: Path) -> None:
    """Asked of the engine: an image that is not cut, of which it counts all tiles."""
    normalizer = Normalizer.from_pretrained(write_model(media_model("small-lfm2-vl"), tmp_path))
    request: dict[str, Any] = {**IMAGE, "images": [ImageSize(660, 614)]}
    assert normalizer.normalize(**request).metadata()
    asked = {"do_image_splitting": False}
    with pytest.raises(InexactError) as caught:
        normalizer.normalize(**request, mm_processor_kwargs=asked).metadata()
    assert caught.value.reason is Reason.METADATA_UNKNOWN


@pytest.mark.parametrize(
    ("layer", "argument", "merges"),
    [(6, {}, True), (0, {}, True), (-1, {}, False), (6, {"downsample_mode": "4x"}, False)],
)
def test_patches_merge_behind_a_layer_that_the_model_has(
    layer: int, argument: dict[str, Any], merges: bool, tmp_path: Path
) -> None:
    """Source: vLLM ``model_executor/models/minicpmv4_6.py`` (`process_images`)."""
    files = media_model("small-minicpm-v-4.6")
    files["config.json"]["insert_layer_id"] = layer
    normalizer = Normalizer.from_pretrained(str(write_model(files, tmp_path)))
    request: dict[str, Any] = {**IMAGE, "images": [ImageSize(64, 48)]}
    (fields,) = normalizer.normalize(**request, mm_processor_kwargs=argument).metadata()
    assert np.asarray(fields["use_vit_merger"].value).tolist() == [merges]


def test_chunks_of_long_audio() -> None:
    """Whisper's 100 frames a second, of which Ultravox's encoder takes 3,000 at once."""
    audio = AudioLength(35 * 16000 + 1, 16000)
    grid = MelFrames(16000, "stacked", 160, partial_frame=True)
    assert (grid.chunk_frames(audio), grid.chunks(audio)) == ([3000, 501], 2)


def test_audio_beyond_what_it_is_filled_up_to_is_exact_alone(tmp_path: Path) -> None:
    """vLLM 0.33.0 counts 800 tokens. Beside other audio it fails, or takes that from its cache."""
    files = media_model("small-qwen2.5-omni")  # without chunk_length, which is 30 then
    normalizer = Normalizer.from_pretrained(write_model(files, tmp_path))
    parts: list[Any] = [{"type": "audio"}]
    longer = AudioLength(512007, 16000)
    chat: list[Any] = [{"role": "user", "content": parts}]
    routing = normalizer.normalize(messages=chat, audios=[longer])
    assert [place.length for place in routing.placeholders] == [800]
    two: list[Any] = [{"role": "user", "content": parts * 2}]
    beside = normalizer.normalize(messages=two, audios=[longer, AudioLength(480000, 16000)])
    assert beside.reason is Reason.AUDIO_NOT_PREDICTABLE


def test_a_value_that_a_grid_cannot_give_is_refused_with_the_spec() -> None:
    spec = next(spec for spec in known_families() if spec.family == "phi-3-vision")
    tables = spec.model_dump(by_alias=True, exclude_unset=True)
    tables["image"]["metadata"] = {"image_grid_thw": "patches"}
    with pytest.raises(ValueError, match=r"metadata.image_grid_thw: the grid .* has no patches"):
        FamilySpec.model_validate(tables)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("patchs", "value must be one of .*; did you mean 'patches'"),
        ({"value": "patches", "dtype": "int46"}, "dtype must be one of bool, float32, int32"),
        ({"value": "patches", "kinds": "flat"}, "kinds"),
    ],
)
def test_a_field_that_is_misspelt_is_refused_with_the_spec(field: Any, problem: str) -> None:
    spec = next(spec for spec in known_families() if spec.family == "qwen2.5-vl")
    tables = spec.model_dump(by_alias=True, exclude_unset=True)
    tables["image"]["metadata"] = {"image_grid_thw": field}
    with pytest.raises(ValueError, match=f"image_grid_thw.*(?s:.*){problem}"):
        FamilySpec.model_validate(tables)
