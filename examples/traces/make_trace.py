"""A synthetic trace: conversations about pictures that come back.

    python examples/traces/make_trace.py > trace.jsonl
    mmroute trace trace.jsonl --model pixtral-12b-2409 --workers 4

Conversations begin at random and go on in turns. Each one has one of a few system prompts and, in
its first turn, a picture of a shared stock; popular pictures are drawn more often (Zipf). Pictures
are sizes with a uuid: no file is needed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

TEXT = (
    "the invoice shows a total of three hundred euro which is due in march and the customer wants "
    "to know whether shipping is part of it or comes on top because the earlier one had none"
)
SIZES = ((1280, 720), (1024, 1024), (640, 480))


def make_trace(
    conversations: int, *, turns: int, pictures: int, systems: int, skew: float, seed: int
) -> Iterator[dict[str, Any]]:
    """Request lines in the order in which they come.

    Args:
        conversations: how many there are.
        turns: of each, on average.
        pictures: in the stock.
        systems: different system prompts.
        skew: exponent of Zipf's law for pictures; 0 for all alike.
        seed: the same one gives the same trace.
    """
    draw = random.Random(seed)
    prompts = [f"System {n}: {text(draw, 120)}" for n in range(systems)]
    weights = [1 / (rank + 1) ** skew for rank in range(pictures)]
    waiting = []
    for number in range(conversations):
        (picture,) = draw.choices(range(pictures), weights)
        width, height = SIZES[picture % len(SIZES)]
        image = {"width": width, "height": height, "uuid": f"picture-{picture}"}
        count = max(1, round(draw.expovariate(1 / turns)))
        waiting.append((f"c{number}", image, draw.choice(prompts), count))
    numbers = itertools.count()
    going: list[tuple[str, dict[str, Any], list[dict[str, Any]], int]] = []
    while waiting or going:
        if waiting and (not going or draw.random() < 1 / (1 + turns)):
            name, image, system, count = waiting.pop()
            going.append((name, image, [{"role": "system", "content": system}], count))
        at = draw.randrange(len(going))
        name, image, messages, left = going[at]
        question: Any = text(draw, 15)
        if len(messages) == 1:
            question = [{"type": "image"}, {"type": "text", "text": question}]
        messages = [*messages, {"role": "user", "content": question}]
        yield {
            "id": next(numbers),
            "session_id": name,
            "messages": messages,
            "images": [image],
        }
        answered = [*messages, {"role": "assistant", "content": text(draw, 60)}]
        going[at] = (name, image, answered, left - 1)
        if left == 1:
            del going[at]


def text(draw: random.Random, words: int) -> str:
    """Random words."""
    return " ".join(draw.choices(TEXT.split(), k=words))


def main() -> None:
    """Print a trace."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=60)
    parser.add_argument("--systems", type=int, default=5)
    parser.add_argument("--skew", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    settings = vars(parser.parse_args())
    for line in make_trace(settings.pop("conversations"), **settings):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
