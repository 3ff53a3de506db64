"""Metadata of items, and what vLLM's own render route made of the same requests."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import paths
import pytest
from comparison import read_vectors
from small_families import FAMILY_MODELS
from small_models import SMALL_MODELS, fingerprint, write_model

from mmroute import ImageSize, InexactError, Normalizer, Reason, Routing, VideoSize
from mmroute.families.matching import known_families
from mmroute.families.spec import FamilySpec
from mmroute.forwarding.metadata import mm_metadata
from mmroute.requests.lines import request_of

VECTORS: Final = sorted((paths.VECTORS / "metadata").glob("*.jsonl"))
IMAGE: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
Load = Callable[[str], Normalizer]


@pytest.mark.conformance
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_metadata_is_the_engines(path: Path, tmp_path: Path) -> None:
    """Names, values, dtypes, shapes and kinds of all fields."""
    meta, cases = read_vectors(path)
    files = {**SMALL_MODELS, **FAMILY_MODELS}[path.stem]()
    assert meta["fingerprint"] == fingerprint(files), "the vectors are of other files"
    normalizer = Normalizer.from_pretrained(str(write_model(files, tmp_path)))
    answered = [(normalizer.answer(request_of(case)), case["expect"]) for case in cases]
    for routing, expect in answered:
        if routing.exact:
            check(normalizer, routing, expect)
    assert any(routing.exact for routing, _ in answered)


def decoded(metadata: Any) -> Any:
    return metadata and {
        modality: [item and msgspec.msgpack.decode(base64.b64decode(item)) for item in items]
        for modality, items in metadata.items()
    }


def check(normalizer: Normalizer, routing: Routing, expect: Any) -> None:
    media = normalizer.model.family.media
    if all(media[placed.modality].metadata is not None for placed in routing.placeholders):
        # The engine writes the fields of an item in any order.
        assert decoded(mm_metadata(routing)) == decoded(expect)
        return
    with pytest.raises(InexactError) as caught:
        routing.metadata()
    assert caught.value.reason is Reason.METADATA_UNKNOWN


def test_metadata_follows_from_sizes(normalizer: Load) -> None:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}] * 2}]}
    sizes = [ImageSize(1280, 720), ImageSize(33, 500)]
    routing = normalizer("small-qwen2.5-vl").normalize(**request, images=sizes)
    # transformers' smart_resize by 28: 26 x 46 and 18 x 2 pairs of patches of 14 pixels.
    grids = [list(field["image_grid_thw"].value) for field in routing.metadata()]
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
    plain = Normalizer.from_pretrained(directory)
    # A video has second_per_grid_ts beside its grid, of the dtype that the engine computes with.
    text = "<|vision_start|><|video_pad|><|vision_end|>"
    with pytest.raises(InexactError, match=r"no \[video.metadata\]"):
        plain.normalize(prompt=text, videos=[VideoSize(64, 48, 2, 1)]).metadata()
    routing = plain.normalize(**IMAGE, images=image)
    assert routing.metadata()
    with pytest.raises(InexactError, match="pickled"):
        pickle.loads(pickle.dumps(routing)).metadata()


def test_a_value_that_a_grid_cannot_give_is_refused_with_the_spec() -> None:
    spec = next(spec for spec in known_families() if spec.family == "phi-3-vision")
    tables = spec.model_dump(by_alias=True, exclude_unset=True)
    tables["image"]["metadata"] = {"image_grid_thw": "patches"}
    with pytest.raises(ValueError, match=r"metadata.image_grid_thw: the grid .* has no patches"):
        FamilySpec.model_validate(tables)
