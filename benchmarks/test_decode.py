"""What decoding an output token by token costs, beside `tokenizers` and vLLM.

    python -m pytest benchmarks/test_decode.py --benchmark-only

One stream of an output, and 1,000 streams that take turns, as in an engine's steps; English words,
and a mix of scripts and emoji whose characters are several tokens. With MMROUTE_MODELS set the
models are Qwen2.5-VL-3B (byte-level) and LLaVA-1.5 (SentencePiece); without, the small ones of the
tests, which need more tokens for the same text. vLLM's own detokenizer takes part where vLLM is
installed. Every text that is timed is compared first. `tokens` in the extra information is how many
tokens one round decodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from tokenizers.decoders import DecodeStream as Reference

from mmroute import Normalizer
from mmroute.text import DecodeStream, StopConditions, StopSequenceDecoder
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from small_models import SMALL_MODELS, write_model

try:
    from vllm import SamplingParams
    from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer
except ImportError:
    FastIncrementalDetokenizer = None

Benchmark = Any  # pytest-benchmark's fixture has no public type
ROOT = os.environ.get("MMROUTE_MODELS")
SMALL = ("small-qwen2.5-vl", "small-llava-1.5")
MODELS = ("qwen2.5-vl-3b-instruct", "llava-1.5-7b-hf") if ROOT else SMALL
TEXTS = {
    "words": "the picture shows an image of what is there and this is in another one. " * 200,
    "mixed": "x 🎉 y 🦤 日本語 ok, привет мир, naïve “quotes” مرحبا 🇩🇪 and words. " * 40,
}
ENOUGH = 64_000  # tokens of a round, all streams together
STOPS = ("\n\nUser:", "never met")


class Decoder(Protocol):
    """One stream: IDs in, text out."""

    def __call__(self, token_id: int, /) -> str | None: ...


@pytest.fixture(scope="module", params=MODELS)
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> HfTokenizer:
    name = request.param
    if ROOT is None:
        model = write_model(SMALL_MODELS[name](), tmp_path_factory.mktemp("model"))
    else:
        model = Path(ROOT) / name
    tokenizer = Normalizer.from_pretrained(model).model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    return tokenizer


@pytest.fixture(params=TEXTS)
def ids(request: pytest.FixtureRequest, tokenizer: HfTokenizer) -> list[int]:
    found: list[int] = tokenizer.encode(TEXTS[request.param], add_special_tokens=False).tolist()
    return found


def ours(tokenizer: HfTokenizer) -> Decoder:
    return DecodeStream(tokenizer).step


def reference(tokenizer: HfTokenizer) -> Decoder:
    stream, backend = Reference(skip_special_tokens=True), tokenizer.backend
    return lambda token_id: stream.step(backend, token_id)


def with_stops(tokenizer: HfTokenizer) -> Decoder:
    decoder = StopSequenceDecoder(tokenizer, StopConditions.of(stop=STOPS, stop_token_ids=[0]))
    return lambda token_id: decoder.process_token(token_id).text


def vllm_with_stops(tokenizer: HfTokenizer) -> Decoder:
    params = SamplingParams(stop=list(STOPS), stop_token_ids=[0])
    request = SimpleNamespace(sampling_params=params, prompt_token_ids=[], request_id="0")
    detokenizer = FastIncrementalDetokenizer(SimpleNamespace(_tokenizer=tokenizer.backend), request)

    def step(token_id: int) -> str:
        detokenizer.update([token_id], False)
        return str(detokenizer.get_next_output_text(finished=False, delta=True))

    return step


DECODERS: dict[str, Callable[[HfTokenizer], Decoder]] = {
    "mmroute": ours,
    "tokenizers": reference,
    "mmroute, stops": with_stops,
}
if FastIncrementalDetokenizer is not None:
    DECODERS["vllm, stops"] = vllm_with_stops


def in_turns(
    decoder: Callable[[HfTokenizer], Decoder], tokenizer: HfTokenizer, ids: list[int], streams: int
) -> list[list[str]]:
    """What each stream gives at each step."""
    steps = [decoder(tokenizer) for _ in range(streams)]
    return [[step(token_id) or "" for step in steps] for token_id in ids]


@pytest.mark.parametrize("streams", [1, 1000])
@pytest.mark.parametrize("name", DECODERS)
def test_decode(
    benchmark: Benchmark, name: str, tokenizer: HfTokenizer, ids: list[int], streams: int
) -> None:
    ids = ids[: ENOUGH // streams]
    given = benchmark(in_turns, DECODERS[name], tokenizer, ids, streams)
    benchmark.extra_info["tokens"] = len(ids) * streams
    right = tokenizer.decode(ids).rstrip("\N{REPLACEMENT CHARACTER}")
    held = max(map(len, STOPS)) - 1 if "stops" in name else 0
    for pieces in zip(*given, strict=True):
        text = "".join(pieces)
        assert right.startswith(text)
        assert len(right) - len(text) - held in {0, 1}  # a space before what is not whole yet
