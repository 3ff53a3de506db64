"""Outputs to decode and ways to stop them, drawn at random for any tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmroute.text import StopConditions, StopSequenceDecoder, TokenDecoder

TEXTS = (
    "Hello world, STOP here",
    "the image is in the picture",
    "what is this?\n\nand this\n",
    "x 🎉 y 🦤 z",
    "日本語🎉 ok",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family \U0001f1e9\U0001f1ea",
    "e\u0301 a\u030a \u0928\u093f",
    "   many   spaces   ",
    "\t\ttabs\r\nand lines\n\n\n",
    "a\ufffdb",
    "\ufffd\ufffd",
    "\u03a9\u2248\xe7\u221a\u222b\u02dc\xb5\u2264\u2265\xf7",
    "привет мир",
    "مرحبا",
    "123 4,567.89",
    "</s><|im_end|>[INST]",
    "```python\nprint('hi')\n```",
    "\u201cquoted\u201d \u2013 dashed\u2026",
    "\xa0\u200b\u3000",
    "abcabcabc",
)
_OF_CONDITIONS = (
    "stop", "stop_token_ids", "eos_token_id", "include_stop_str_in_output", "min_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """What cases are drawn from.

    Attributes:
        size: IDs are below it.
        encode: text to IDs, without special tokens around it.
        decode: IDs to text, special tokens as they are written.
        special: IDs of special tokens.
        parts: IDs that are no whole character by themselves.
    """

    size: int
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    special: Sequence[int]
    parts: Sequence[int]


def draw_cases(vocabulary: Vocabulary, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Requests with the steps in which the engine gives their output."""
    draw = random.Random(seed)
    for _ in range(count):
        output = _token_ids(vocabulary, draw, draw.randrange(1, 7)) or [vocabulary.special[0]]
        stop_tokens = draw.choice([0, 0, 0, 1, 2])
        stop_token_ids = [_stop_token(vocabulary, output, draw) for _ in range(stop_tokens)]
        yield {
            "prompt_token_ids": _token_ids(vocabulary, draw, draw.randrange(4))
            or [draw.choice(vocabulary.special)],
            "steps": list(_steps(output, draw)),
            "stop": _stops(vocabulary.decode(output), draw),
            "stop_token_ids": stop_token_ids,
            "eos_token_id": _stop_token(vocabulary, output, draw) if draw.random() < 0.3 else None,
            "include_stop_str_in_output": draw.random() < 0.3,
            "min_tokens": min(draw.choice([0, 0, 0, 1, 2, 5]), len(output)),
            "skip_special_tokens": draw.random() < 0.7,
        }


def _token_ids(vocabulary: Vocabulary, draw: random.Random, segments: int) -> list[int]:
    ids: list[int] = []
    for _ in range(segments):
        kind = draw.random()
        if kind < 0.7:
            encoded = vocabulary.encode(draw.choice(TEXTS))
            start = draw.randrange(len(encoded) + 1)
            ids += encoded[: draw.randrange(len(encoded) + 1)] if kind < 0.4 else encoded[start:]
        elif kind < 0.8:
            ids += [draw.randrange(vocabulary.size) for _ in range(draw.randrange(4))]
        elif kind < 0.9:
            ids += draw.choices(vocabulary.parts, k=draw.randrange(4))
        else:
            ids += draw.choices(vocabulary.special, k=draw.randrange(3))
    return ids


def _stop_token(vocabulary: Vocabulary, output: list[int], draw: random.Random) -> int:
    return draw.choice(output) if draw.random() < 0.6 else draw.choice(vocabulary.special)


def _stops(text: str, draw: random.Random) -> list[str]:
    stops = []
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        if text and draw.random() < 0.7:
            start = draw.randrange(len(text))
            stops.append(text[start : start + draw.randrange(1, 8)])
        else:
            stops.append(draw.choice(["never met", "STOP", "\n\n", " ", "🎉", "e", "\ufffd"]))
    return stops


def _steps(output: list[int], draw: random.Random) -> Iterator[list[int]]:
    longest = draw.choice([1, 1, 2, 5])
    at = 0
    while at < len(output):
        size = draw.randrange(1, longest + 1)
        yield output[at : at + size]
        at += size


def output_of(tokenizer: TokenDecoder, case: Mapping[str, Any]) -> dict[str, Any]:
    """What mmroute makes of a case, in the form of vLLM's answer."""
    conditions = StopConditions.of(**{name: case[name] for name in _OF_CONDITIONS})
    decoder = StopSequenceDecoder(
        tokenizer,
        conditions,
        prompt_token_ids=case["prompt_token_ids"],
        skip_special_tokens=case["skip_special_tokens"],
    )
    deltas = []
    for step in case["steps"]:
        output = decoder.process_tokens(step)
        deltas.append(output.text)
        if output.stopped:
            break
    else:
        output = decoder.flush()
        deltas[-1] += output.text
    return {
        "deltas": deltas,
        "text": decoder.text,
        "token_ids": decoder.token_ids,
        "finish_reason": "stop" if output.stopped else "length",
        "stop_reason": output.matched,
    }
