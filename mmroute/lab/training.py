"""Conversations as training examples: the engine's token IDs, and which of them the loss covers.

A trainer's own tokens may differ from those of the engine that generated the text or will serve the
model: in the template, in a special token, or in the number of an image's features. Here they are
the engine's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import InexactError, Reason, invalid
from mmroute.images.data_url import is_data_url
from mmroute.normalizer import Normalizer
from mmroute.requests.items import Modality
from mmroute.requests.request import Request


class Example(NamedTuple):
    """A conversation to train on.

    Attributes:
        routing: the whole conversation, expanded: token IDs, ranges of items, metadata.
        loss_ranges: start and end of the tokens of each turn of the model, by position. What ends a
            turn belongs to it, as the template writes it.
    """

    routing: Routing
    loss_ranges: tuple[tuple[int, int], ...]

    def loss_mask(self) -> npt.NDArray[np.bool_]:
        """Which tokens the loss covers, shape (n,)."""
        mask = np.zeros(len(self.routing.token_ids), np.bool_)
        for start, end in self.loss_ranges:
            mask[start:end] = True
        return mask


def training_example(normalizer: Normalizer, request: Request) -> Example:
    """A conversation with the model's turns in it, as the engine would have seen and written them.

    A turn's tokens are those between two prompts: the conversation before it, for which the engine
    would generate, and the conversation up to its end.

    Args:
        normalizer: the model's.
        request: the conversation, with at least one turn of the role ``assistant``.

    Raises:
        InexactError: a prompt has no exact answer; `invalid_request` without a turn of the model;
            `unsupported_field` if the template writes a turn otherwise once the conversation goes
            on, as those do that leave out earlier reasoning. Train on ``messages[:n]`` then, which
            the message names.
    """
    messages = list(request.messages or ())
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    if not turns:
        raise invalid("messages has no turn of the role assistant, so there is nothing to learn")
    whole = normalizer.answer(_begun(request, len(messages), generate=False))
    ranges = []
    for turn in turns:
        before = normalizer.answer(_begun(request, turn, generate=True)).token_ids
        through = whole.token_ids
        if turn + 1 < len(messages):
            through = normalizer.answer(_begun(request, turn + 1, generate=False)).token_ids
        start, end = len(before), len(through)
        if not (
            start < end
            and np.array_equal(before, whole.token_ids[:start])
            and np.array_equal(through, whole.token_ids[:end])
        ):
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"messages[{turn}] has other tokens in the whole conversation than when it was "
                f"generated; make an example of messages[:{turn + 1}] and train on its last turn",
            )
        ranges.append((start, end))
    return Example(whole, tuple(ranges))


def _begun(request: Request, count: int, *, generate: bool) -> Request:
    """The first messages of a conversation, with the items of these messages."""
    messages = list(request.messages or ())[:count]
    media = parse_chat(Request(messages=messages)).media

    def taken(modality: Modality, items: Any) -> Any:
        parts = media.get(modality, ())
        return items[: sum(part.url is None or not is_data_url(part.url) for part in parts)]

    return request._replace(
        messages=messages,
        add_generation_prompt=generate,
        continue_final_message=False,
        images=taken(Modality.IMAGE, request.images),
        videos=taken(Modality.VIDEO, request.videos),
        audios=taken(Modality.AUDIO, request.audios),
    )
