"""Four routers: what each of them looks at when it picks a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chats import Turn

from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, Weights, WorkerState, pick

WEIGHTS = Weights(request=1.0)  # one request is answered after the other: those sent stand for load
CHUNK = 64  # characters of text that are looked up at once
LEAST_SHARE = 0.3  # of a text must have been at a worker before
MOST_MORE, MOST_TIMES = 32, 1.5  # requests that a worker may have had more than another one


@dataclass(frozen=True, slots=True)
class Asked:
    """What a router may look at.

    Attributes:
        turn: the request.
        prompt: the lengths that mmroute computes for it.
        held: the number of the prompt's leading blocks at each worker, by its KV events.
        sent: the number of requests that each worker has had.
    """

    turn: Turn
    prompt: Prompt
    held: Sequence[int]
    sent: Sequence[int]


Router: TypeAlias = Callable[[Asked], int]


def in_turn(asked: Asked) -> int:
    """The workers one after the other."""
    return sum(asked.sent) % len(asked.sent)


def by_session(asked: Asked) -> int:
    """All turns of a chat go to one worker."""
    return asked.turn.chat % len(asked.sent)


def by_text() -> Router:
    """The worker that was sent the longest beginning of the text; pictures are no text."""
    worker_of: dict[str, int] = {}

    def router(asked: Asked) -> int:
        text = "".join(map(_text, asked.turn.messages))
        beginnings = [text[:end] for end in range(CHUNK, len(text) + CHUNK, CHUNK)]
        known = [worker_of[beginning] for beginning in beginnings if beginning in worker_of]
        least, most = min(asked.sent), max(asked.sent)
        unbalanced = most - least > MOST_MORE and most > MOST_TIMES * least
        matched = len(known) > LEAST_SHARE * len(beginnings)
        worker = known[-1] if matched and not unbalanced else asked.sent.index(least)
        worker_of.update(dict.fromkeys(beginnings, worker))
        return worker

    return router


def by_blocks(asked: Asked) -> int:
    """The worker where the prompt costs least: it holds its blocks, pictures included."""
    states = {
        worker: WorkerState(Blocks(held), Blocks(held), requests)
        for worker, (held, requests) in enumerate(zip(asked.held, asked.sent, strict=True))
    }
    return pick(asked.prompt, states, WEIGHTS).worker


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
