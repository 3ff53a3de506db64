"""What a trace loses, by cause: its suspects are explained, each with its two requests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mmroute.errors import InexactError
from mmroute.normalizer import Normalizer
from mmroute.request_lines import json_object, request_of
from mmroute.traces.changes import Cause
from mmroute.traces.explain import Explanation, explain
from mmroute.traces.sources import numbered_lines
from mmroute.traces.suspects import Suspect
from mmroute.traces.workers import Processes

__all__ = ["Loss", "losses_by_cause"]

_Task: TypeAlias = "tuple[Suspect, bytes, bytes]"


@dataclass(slots=True)
class Loss:
    """What one cause costs a trace.

    Attributes:
        cause: the cause.
        tokens: that are the same in two requests and not shared. An estimate where not all
            suspects were explained.
        pairs: of requests, likewise.
        example: the pair that lost most.
        explanation: of this pair.
    """

    cause: Cause
    tokens: float
    pairs: float
    example: Suspect
    explanation: Explanation


def losses_by_cause(
    path: str, suspects: Sequence[Suspect], block_size: int, processes: Processes
) -> list[Loss]:
    """The causes, those that lost most tokens first.

    Args:
        path: of the trace.
        suspects: that are explained.
        block_size: tokens in a block.
        processes: that explain.
    """
    wanted = {line for suspect in suspects for line in (suspect.first, suspect.second)}
    lines = {n: line for n, line in numbered_lines(path) if n in wanted} if wanted else {}
    tasks = [(suspect, lines[suspect.first], lines[suspect.second]) for suspect in suspects]
    losses: dict[Cause, Loss] = {}
    explained = processes.map(functools.partial(_explained, block_size=block_size), tasks)
    for suspect, found in zip(suspects, explained, strict=True):
        if found is None or found.cause is None or not found.lost_tokens:
            continue
        loss = losses.setdefault(found.cause, Loss(found.cause, 0, 0, suspect, found))
        loss.tokens += found.lost_tokens * suspect.stands_for
        loss.pairs += suspect.stands_for
        if found.lost_tokens > loss.explanation.lost_tokens:
            loss.example, loss.explanation = suspect, found
    return sorted(losses.values(), key=lambda loss: -loss.tokens)


def _explained(
    normalizer: Normalizer | None, task: _Task, *, block_size: int
) -> Explanation | None:
    if normalizer is None:
        return None
    _, *lines = task
    first, second = (request_of(json_object(line)) for line in lines)
    try:
        return explain(
            first,
            second,
            normalizer.answer,
            normalizer.model.tokenizer,
            block_size=block_size,
        )
    except InexactError:  # a link, for example, that is gone meanwhile
        return None
