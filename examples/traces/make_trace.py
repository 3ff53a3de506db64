"""A synthetic trace: conversations about pictures that come back.

    python examples/traces/make_trace.py > trace.jsonl
    mmroute trace trace.jsonl --model pixtral-12b-2409 --workers 4

Conversations arrive as a Poisson process and go on in turns, with pauses between them. Each one has
one of a few system prompts and, in its first turn, a picture of a shared stock. Prompts and
pictures are drawn by Zipf's law. A later turn may show a picture again: one of the conversation, or
another one of the stock. Pictures are sizes with a uuid: no file is needed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

TEXT = (
    "the invoice shows a total of three hundred euro which is due in march and the customer wants "
    "to know whether shipping is part of it or comes on top because the earlier one had none"
)
SIZES = ((1280, 720), (1024, 1024), (640, 480))
HOUR = 3600.0


@dataclass(frozen=True)
class Parameters:
    """What a trace is made by. The same parameters give the same trace."""

    requests: int = 500
    rate: float = 0.2  # conversations that begin, a second
    turns: float = 4.0  # of a conversation, on average
    pause: float = 30.0  # seconds between two turns, on average
    systems: int = 5  # different system prompts
    clocks: int = 1  # of them, those drawn most, begin with the time of the conversation
    pictures: int = 60  # in the stock
    pictured: float = 1.0  # of the conversations begin with a picture
    skew: float = 0.8  # exponent of Zipf's law for prompts and pictures; 0 for all alike
    again: float = 0.2  # of the later turns show a picture
    same: float = 0.5  # of these show one of the conversation
    system_words: int = 120
    question_words: int = 15
    answer_words: int = 60
    seed: int = 0


@dataclass
class Conversation:
    """One conversation, up to its next turn."""

    number: int
    turns_left: int
    messages: list[dict[str, Any]]
    pictured: bool = False
    images: list[dict[str, Any]] = field(default_factory=list)


def make_trace(parameters: Parameters) -> Iterator[dict[str, Any]]:
    """Request lines in the order in which they come."""
    draw = random.Random(parameters.seed)
    prompts = [text(draw, parameters.system_words) for _ in range(parameters.systems)]
    of_systems, of_pictures = (
        list(itertools.accumulate((rank + 1) ** -parameters.skew for rank in range(count)))
        for count in (parameters.systems, parameters.pictures)
    )

    def picture() -> dict[str, Any]:
        (number,) = draw.choices(range(parameters.pictures), cum_weights=of_pictures)
        width, height = SIZES[number % len(SIZES)]
        return {"width": width, "height": height, "uuid": f"picture-{number}"}

    def begin(number: int, now: float) -> Conversation:
        (system,) = draw.choices(range(parameters.systems), cum_weights=of_systems)
        clock = f"It is {now / HOUR % 24:.2f} h. " if system < parameters.clocks else ""
        turns = max(1, round(draw.expovariate(1 / parameters.turns)))
        content = f"{clock}System {system}: {prompts[system]}."
        system_message = {"role": "system", "content": content}
        pictured = parameters.pictured == 1 or draw.random() < parameters.pictured
        return Conversation(number, turns, [system_message], pictured)

    waiting = [(draw.expovariate(parameters.rate), 0, Conversation(0, 0, []))]
    numbers = itertools.count(1)
    for request in range(parameters.requests):
        now, order, conversation = heapq.heappop(waiting)
        if not conversation.messages:
            conversation = begin(order, now)
            arrival = now + draw.expovariate(parameters.rate)
            heapq.heappush(waiting, (arrival, next(numbers), Conversation(0, 0, [])))
        question: Any = text(draw, parameters.question_words) + "?"
        first = not conversation.images
        if conversation.pictured and (first or draw.random() < parameters.again):
            known = not first and draw.random() < parameters.same
            image = draw.choice(conversation.images) if known else picture()
            conversation.images = [*conversation.images, image]
            question = [{"type": "image"}, {"type": "text", "text": question}]
        asked = [*conversation.messages, {"role": "user", "content": question}]
        answer = max(1, round(draw.expovariate(1 / parameters.answer_words)))
        yield {
            "id": request,
            "session_id": f"c{conversation.number}",
            "timestamp": round(now * 1000),
            "output_length": answer,
            "messages": asked,
            "images": conversation.images,
        }
        conversation.messages = [*asked, {"role": "assistant", "content": text(draw, answer)}]
        conversation.turns_left -= 1
        if conversation.turns_left:
            later = now + draw.expovariate(1 / parameters.pause)
            heapq.heappush(waiting, (later, next(numbers), conversation))


def text(draw: random.Random, words: int) -> str:
    """Random words."""
    return " ".join(draw.choices(TEXT.split(), k=words))


def main() -> None:
    """Print a trace."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for each in fields(Parameters):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default
        )
    for line in make_trace(Parameters(**vars(parser.parse_args()))):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
