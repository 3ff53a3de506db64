"""What an image costs that arrives as a data URL: its size, and its identity.

    python -m pytest benchmarks --benchmark-only

The image: a photograph-like JPEG of 1280x720 and about 300 kB. The peer is what the engine does
to learn the same: decode all of it with Pillow. Every answer that is timed is compared first.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.photographs import SIZE, photograph_url
from mmroute import ImageSize, read_image
from mmroute.engines.vllm.identity import item_identity
from mmroute.geometry import Overrides

Benchmark = Any  # pytest-benchmark's fixture has no public type


@pytest.fixture(scope="module")
def url() -> str:
    return photograph_url(0)


def decode(url: str) -> Image.Image:
    data = base64.b64decode(url.partition(",")[2], validate=True)
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert image is not None
    image.load()
    return image


def test_size(benchmark: Benchmark, url: str) -> None:
    image = benchmark(read_image, url)
    assert image.size == ImageSize(*decode(url).size)
    assert image.data == base64.b64decode(url.partition(",")[2])


def test_identity(benchmark: Benchmark, url: str) -> None:
    image = read_image(url)
    plain = Overrides({}, {})
    identity = benchmark(item_identity, image, overrides=plain, frames=None, model_id="org/model")
    other = item_identity(image, overrides=plain, frames=None, model_id="org/other")
    assert other is not None
    assert len(identity.value) == len(other.value)
    assert identity != other


def test_peer_decodes_the_picture(benchmark: Benchmark, url: str) -> None:
    assert benchmark(decode, url).size == SIZE
