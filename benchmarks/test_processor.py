"""The model's own processor of transformers beside mmroute: 1,000 words, four 1280x720 images.

    MMROUTE_MODELS=DIR python -m pytest benchmarks --benchmark-only -rs

Both get a text that is new each time; the processor gets decoded images, and mmroute their sizes.
Their token IDs are compared first. Where the peer cannot run it is named as skipped.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.mixes import MIXES
from mmroute import Normalizer, Request
from mmroute.engines.vllm.messages import parse_chat

Benchmark = Any  # pytest-benchmark's fixture has no public type
NAME = "qwen2.5-vl-3b-instruct"
MISSING = [name for name in ("transformers", "torch", "torchvision")
           if importlib.util.find_spec(name) is None]  # fmt: skip
if "MMROUTE_MODELS" not in os.environ:
    MISSING.append(f"MMROUTE_MODELS with {NAME} in it")
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"transformers' processor was not run: there is no {', '.join(MISSING)}"
)
NUMBERS = itertools.count()
PICTURE = Image.new("RGB", (1280, 720), (120, 90, 160))


@pytest.fixture(scope="module")
def normalizer() -> Normalizer:
    return Normalizer.from_pretrained(Path(os.environ["MMROUTE_MODELS"]) / NAME)


@pytest.fixture(scope="module")
def processor() -> Any:
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(Path(os.environ["MMROUTE_MODELS"]) / NAME)


def fresh(normalizer: Normalizer) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A request, and the same for the processor."""
    request = MIXES["pictures"].request(next(NUMBERS))
    asked = Request(**request)
    text = normalizer.model.chat.render(parse_chat(asked), asked.items, asked)
    return request, {"text": [text], "images": [PICTURE] * 4, "return_tensors": "pt"}


def check(normalizer: Normalizer, processor: Any) -> None:
    request, arguments = fresh(normalizer)
    found = processor(**arguments)["input_ids"][0].tolist()
    assert found == normalizer.normalize(**request).token_ids.tolist()


def test_peer_processor(benchmark: Benchmark, normalizer: Normalizer, processor: Any) -> None:
    check(normalizer, processor)
    benchmark.pedantic(processor, setup=lambda: ((), fresh(normalizer)[1]), rounds=10)


def test_mmroute(benchmark: Benchmark, normalizer: Normalizer, processor: Any) -> None:
    check(normalizer, processor)
    benchmark.pedantic(
        normalizer.normalize, setup=lambda: ((), dict(fresh(normalizer)[0])), rounds=200
    )
