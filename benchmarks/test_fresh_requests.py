"""Whole requests of many sizes, and a conversation that goes on; the mixes are those of `mixes.py`.

    python -m pytest benchmarks --benchmark-only

The model is Qwen2.5-VL-3B where MMROUTE_MODELS has it, else the small one of the tests. The peer
is `tokenizers` encoding the same rendered texts. Every answer that is timed is compared with that
of a normalizer without fast paths. Caches: the conversation's beginning is in the cache of texts,
if it is long enough to be kept; everywhere else every text is new.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.mixes import chat_request, conversation
from mmroute import Normalizer, Request
from mmroute.engines.vllm.messages import parse_chat
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from small_models import SMALL_MODELS, write_model

Benchmark = Any  # pytest-benchmark's fixture has no public type
ROUNDS = 200
REAL = "MMROUTE_MODELS" in os.environ
# The toy tokenizer of the small model has five times the tokens.
TURNS = (5, 10, 25, 50, 100, 200) if REAL else (2, 5, 10, 25)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    if REAL:
        return str(Path(os.environ["MMROUTE_MODELS"]) / "qwen2.5-vl-3b-instruct")
    model = SMALL_MODELS["small-qwen2.5-vl"]()
    # Its own context is too short for these requests.
    model["config.json"]["max_position_embeddings"] = 1 << 20
    return str(write_model(model, tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def normalizer(directory: str) -> Normalizer:
    normalizer = Normalizer.from_pretrained(directory)
    normalizer.stats()  # waits for the encoder
    return normalizer


@pytest.fixture(scope="module")
def reference(directory: str) -> Normalizer:
    return Normalizer.from_pretrained(directory, fast_paths=REFERENCE_ONLY)


def time_fresh(
    benchmark: Benchmark,
    normalizer: Normalizer,
    reference: Normalizer,
    make: Callable[[int], Mapping[str, Any]],
) -> None:
    """Time requests that are made just before; compare each of the last ones."""
    numbers = itertools.count()
    asked: list[Mapping[str, Any]] = []

    def setup() -> tuple[tuple[()], dict[str, Any]]:
        asked.append(make(next(numbers)))
        return (), dict(asked[-1])

    routing = benchmark.pedantic(normalizer.normalize, setup=setup, rounds=ROUNDS, warmup_rounds=5)
    assert np.array_equal(routing.token_ids, reference.normalize(**asked[-1]).token_ids)
    for request in asked[-20:]:
        right = reference.normalize(**request)
        assert right.exact, right.message
        assert np.array_equal(normalizer.normalize(**request).token_ids, right.token_ids)


@pytest.mark.parametrize("turns", TURNS)
def test_one_more_turn(
    benchmark: Benchmark, normalizer: Normalizer, reference: Normalizer, turns: int
) -> None:
    normalizer.normalize(**conversation(turns, turns - 1))
    branch = partial(_branch, turns)
    time_fresh(benchmark, normalizer, reference, branch)


@pytest.mark.parametrize("words", [10, 100, 1_000, 10_000] + [100_000] * REAL)
def test_text_of_size(
    benchmark: Benchmark, normalizer: Normalizer, reference: Normalizer, words: int
) -> None:
    time_fresh(benchmark, normalizer, reference, partial(chat_request, words=words))


@pytest.mark.parametrize("images", [1, 10])
@pytest.mark.parametrize("size", [(112, 84), (1120, 840), (3360, 2800)], ids=str)
def test_images_of_size(
    benchmark: Benchmark,
    normalizer: Normalizer,
    reference: Normalizer,
    size: tuple[int, int],
    images: int,
) -> None:
    request = partial(chat_request, words=10, images=[size] * images)
    time_fresh(benchmark, normalizer, reference, request)


def _branch(turns: int, number: int) -> Mapping[str, Any]:
    return conversation(turns, turns, branch=number)


@pytest.mark.parametrize("known", [True, False], ids=["english", "new-words"])
def test_peer_tokenizers_on_fresh_texts(
    benchmark: Benchmark, reference: Normalizer, known: bool
) -> None:
    tokenizer = reference.model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    numbers = itertools.count()
    texts: list[str] = []

    def setup() -> tuple[tuple[str], dict[str, Any]]:
        asked = chat_request(next(numbers), words=1000, images=[(1280, 720)] * 4, known=known)
        request = Request(**asked)
        text = reference.model.chat.render(parse_chat(request), request.items, request)
        assert isinstance(text, str)
        texts.append(text)
        return (text,), {"add_special_tokens": False}

    found = benchmark.pedantic(tokenizer.backend.encode, setup=setup, rounds=ROUNDS)
    assert found.ids == tokenizer.encode(texts[-1], add_special_tokens=False).tolist()
