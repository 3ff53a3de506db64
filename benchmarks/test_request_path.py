"""What a request costs, stage by stage, beside what a user would run instead.

    python -m pytest benchmarks --benchmark-only

The request: 1,000 words and four 1280x720 images. The peer is `tokenizers` encoding the same
rendered text, the least any router does today. With MMROUTE_MODELS set the model is
Qwen2.5-VL-3B; without, it is the small model of the tests, whose tokenizer is a toy. Every
answer that is timed is compared first.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from mmroute import ImageSize, Normalizer
from mmroute.engines.vllm.messages import parse_chat
from mmroute.geometry import TokenIds
from mmroute.items import Modality
from mmroute.placement import Expansion, Insertion
from mmroute.request import Request
from mmroute.tokenizers.formats.fast import HfTokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from small_models import SMALL_MODELS, write_model

Benchmark = Any  # pytest-benchmark's fixture has no public type

TEXT = """the picture shows an image of what is there and this is in another one
photograph please describe every detail carefully"""
IMAGES = [ImageSize(1280, 720)] * 4


def _messages() -> list[dict[str, Any]]:
    chosen = random.Random(0).choices(TEXT.split(), k=1000)
    parts: list[dict[str, Any]] = []
    for i in range(4):
        parts.append({"type": "image"})
        parts.append({"type": "text", "text": " ".join(chosen[250 * i : 250 * (i + 1)])})
    return [{"role": "user", "content": parts}]


MESSAGES = _messages()
REQUEST = Request(messages=MESSAGES, images=IMAGES)


def _render(normalizer: Normalizer) -> str | TokenIds:
    return normalizer.model.chat.render(parse_chat(REQUEST), REQUEST.items, REQUEST)


@pytest.fixture(scope="module")
def normalizer(tmp_path_factory: pytest.TempPathFactory) -> Normalizer:
    if root := os.environ.get("MMROUTE_MODELS"):
        return Normalizer.from_pretrained(str(Path(root) / "qwen2.5-vl-3b-instruct"))
    name = "small-qwen2.5-vl"
    return Normalizer.from_pretrained(
        str(write_model(SMALL_MODELS[name](), tmp_path_factory.mktemp("model")))
    )


@pytest.fixture(scope="module")
def rendered(normalizer: Normalizer) -> str:
    prompt = _render(normalizer)
    assert isinstance(prompt, str)
    return prompt


@pytest.fixture(scope="module")
def peer(normalizer: Normalizer) -> Tokenizer:
    assert isinstance(normalizer.model.tokenizer, HfTokenizer)
    return normalizer.model.tokenizer.backend


def test_render(benchmark: Benchmark, normalizer: Normalizer, rendered: str) -> None:
    assert benchmark(_render, normalizer) == rendered


def test_encode(
    benchmark: Benchmark, normalizer: Normalizer, rendered: str, peer: Tokenizer
) -> None:
    tokenizer = normalizer.model.tokenizer
    ids = benchmark(tokenizer.encode, rendered, add_special_tokens=False)
    assert ids.tolist() == peer.encode(rendered, add_special_tokens=False).ids


def test_place_count_expand(benchmark: Benchmark, normalizer: Normalizer, rendered: str) -> None:
    rules = normalizer.model.media[Modality.IMAGE]
    ids = normalizer.model.tokenizer.encode(rendered, add_special_tokens=False)

    def expand() -> Expansion:
        context = normalizer.model.context(len(ids))
        insertions = [
            Insertion(Modality.IMAGE, number, rules.target, replacement)
            for number, replacement in enumerate(rules.geometry.replacements(IMAGES, context))
        ]
        return normalizer.model.placement.expand(ids, insertions)

    expanded = benchmark(expand).token_ids
    whole = normalizer.normalize(messages=MESSAGES, images=IMAGES)
    assert np.array_equal(expanded, whole.token_ids)
    assert len(expanded) == len(ids) + 4 * (46 * 26 - 1)


def test_whole_request(benchmark: Benchmark, normalizer: Normalizer, rendered: str) -> None:
    routing = benchmark(normalizer.normalize, messages=MESSAGES, images=IMAGES)
    assert routing.exact
    assert len(routing.placeholders) == 4
    assert rendered.count("<|image_pad|>") == 4


def test_peer_tokenizers_alone(benchmark: Benchmark, rendered: str, peer: Tokenizer) -> None:
    encoding = benchmark(peer.encode, rendered, add_special_tokens=False)
    assert len(encoding.ids) > 1000
