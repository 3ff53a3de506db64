"""The same requests answered by vLLM's render server on loopback, and by mmroute in process.

    MMROUTE_MODELS=DIR MMROUTE_VLLM_PYTHON=PATH python -m pytest benchmarks --benchmark-only -rs

PATH is the interpreter of an environment that has vLLM. The requests: 1,000 new words and four new
JPEGs of 1280x720 and about 300 kB as data URLs. Every answer that is timed is compared with that of
a normalizer without fast paths. Where vLLM cannot be run it is named as skipped.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.mixes import chat_request
from benchmarks.photographs import SIZE, photograph_url
from benchmarks.render_server import Server, UnavailableError, body, render_server
from mmroute import Normalizer
from mmroute.reuse.fast_paths import REFERENCE_ONLY

Benchmark = Any  # pytest-benchmark's fixture has no public type
NAME = "qwen2.5-vl-3b-instruct"
MISSING = [name for name in ("MMROUTE_MODELS", "MMROUTE_VLLM_PYTHON") if name not in os.environ]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not set: {', '.join(MISSING)}")
ROUNDS = 20
NUMBERS = itertools.count()
ROUTES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tokenize": ("/tokenize", "tokens", {}),
    "render": ("/v1/chat/completions/render", "token_ids", {"mm_payload": "none"}),
    "render-tensors": ("/v1/chat/completions/render", "token_ids", {}),
}


@pytest.fixture(scope="module")
def directory() -> Path:
    return Path(os.environ["MMROUTE_MODELS"]) / NAME


@pytest.fixture(scope="module")
def reference(directory: Path) -> Normalizer:
    return Normalizer.from_pretrained(directory, fast_paths=REFERENCE_ONLY)


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    try:
        with render_server(Path(os.environ["MMROUTE_VLLM_PYTHON"]), str(directory)) as running:
            yield running
    except UnavailableError as error:
        pytest.skip(str(error))


def fresh(*, seen_images: bool = False) -> Mapping[str, Any]:
    """A request whose text is new, and whose files are unless they are to be the same again."""
    number = next(NUMBERS)
    chat = chat_request(number, words=1000, images=[SIZE] * 4)
    files = itertools.count(0 if seen_images else 4 * (number + 1))
    content = [
        {"type": "image_url", "image_url": {"url": photograph_url(next(files))}}
        if part["type"] == "image"
        else part
        for part in chat["messages"][0]["content"]
    ]
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize("seen_images", [False, True], ids=["new-images", "seen-images"])
@pytest.mark.parametrize("route", ROUTES)
def test_peer_vllm_over_http(
    benchmark: Benchmark, server: Server, reference: Normalizer, route: str, seen_images: bool
) -> None:
    path, field, options = ROUTES[route]
    asked: list[Mapping[str, Any]] = []
    answers: list[bytes] = []

    def setup() -> tuple[tuple[bytes], dict[str, Any]]:
        asked.append(fresh(seen_images=seen_images))
        return (body(asked[-1]["messages"], **options),), {}

    benchmark.pedantic(
        lambda content: answers.append(server.post(path, content)),
        setup=setup, rounds=ROUNDS, warmup_rounds=2,
    )  # fmt: skip
    for request, answer in zip(asked, answers, strict=True):
        expected = reference.normalize(**request).token_ids.tolist()
        assert json.loads(answer)[field] == expected


def test_mmroute_in_process(benchmark: Benchmark, directory: Path, reference: Normalizer) -> None:
    normalizer = Normalizer.from_pretrained(directory)
    normalizer.stats()  # waits for the encoder
    asked: list[Mapping[str, Any]] = []

    def setup() -> tuple[tuple[()], dict[str, Any]]:
        asked.append(fresh())
        return (), dict(asked[-1])

    benchmark.pedantic(normalizer.normalize, setup=setup, rounds=5 * ROUNDS, warmup_rounds=5)
    for request in asked[-ROUNDS:]:
        expected = reference.normalize(**request).token_ids.tolist()
        assert normalizer.normalize(**request).token_ids.tolist() == expected
