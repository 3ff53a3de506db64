"""The requests to time: built-in mixes, and the lines of a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from benchmarks.words import english, unseen
from mmroute.lab.cli.bench import read_requests
from mmroute.normalizer import Normalizer
from mmroute.requests.items import ImageSize

_WORDS_OF_A_MESSAGE: Final = 188  # 1,000 characters


@dataclass(frozen=True, slots=True)
class Mix:
    """Requests of one kind.

    Attributes:
        name: the name by which the mix is chosen.
        says: a description of a request.
        request: returns the request of a number, from 0; those of a built-in mix all differ.
        before: returns the requests that are answered first and not timed.
    """

    name: str
    says: str
    request: Callable[[int], Mapping[str, Any]]
    before: Callable[[], Sequence[Mapping[str, Any]]] = tuple


def chat_request(
    seed: int, *, words: int, images: Sequence[tuple[int, int]] = (), known: bool = True
) -> Mapping[str, Any]:
    """A chat of one user message: each image is followed by its share of the words."""
    chooser = random.Random(seed)
    text = english if known else unseen
    if not images:
        return {"messages": [{"role": "user", "content": text(chooser, words)}]}
    parts: list[dict[str, str]] = []
    for number in range(len(images)):
        share = words // len(images) + (number < words % len(images))
        parts.append({"type": "image"})
        if share:
            parts.append({"type": "text", "text": text(chooser, share)})
    # The images have a uuid, because without an identity there are no block hashes.
    sizes = [ImageSize(*size, f"{seed}-{number}") for number, size in enumerate(images)]
    return {"messages": [{"role": "user", "content": parts}], "images": sizes}


def conversation(seed: int, turns: int, *, branch: int | None = None) -> Mapping[str, Any]:
    """A chat of turns of 2,000 characters, each a question and an answer; then a question."""
    last = (seed, turns) if branch is None else (seed, turns, branch)
    turned = [_turn(seed, number) for number in range(turns - 1)]
    messages = [message for turn in turned for message in turn]
    if branch is not None and messages:
        messages[-1] = _message("assistant", f"{last}-answer")
    messages.append(_message("user", f"{last}" if branch is not None else f"{seed, turns - 1}"))
    return {"messages": messages}


@lru_cache(maxsize=2048)
def _turn(seed: int, number: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return _message("user", f"{seed, number}"), _message("assistant", f"{seed, number}-answer")


def _message(role: str, seed: str) -> Mapping[str, str]:
    chooser = random.Random(seed)
    return {"role": role, "content": english(chooser, _WORDS_OF_A_MESSAGE)}


def conversation_mix(name: str, turns: int) -> Mix:
    """A mix of the last turn of such a chat; each request has another last turn."""
    size = f"{2000 * turns:,} characters"
    says = f"turn {turns} of a chat of {size}, whose earlier turns were asked before"
    return Mix(
        name,
        says,
        lambda seed: conversation(0, turns, branch=seed),
        lambda: [conversation(0, turns - 1)],
    )


_HD: Final = (1280, 720)
MIXES: Final[Mapping[str, Mix]] = {
    mix.name: mix
    for mix in (
        Mix("text", "1,000 words", partial(chat_request, words=1000)),
        Mix("chat", "1,000 words and a 1280x720 image",
            partial(chat_request, words=1000, images=[_HD])),
        Mix("pictures", "1,000 words and four 1280x720 images",
            partial(chat_request, words=1000, images=[_HD] * 4)),
        Mix("documents", "100 words and eight 1792x1792 images (4,096 tokens each on Qwen2.5-VL)",
            partial(chat_request, words=100, images=[(1792, 1792)] * 8)),
        conversation_mix("conversation", 50),
        Mix("new-words", "1,000 words that no encoder has seen before, and no image",
            partial(chat_request, words=1000, known=False)),
    )
}  # fmt: skip
"""The built-in mixes by name. Texts and the images' uuids differ from request to request."""


def read_mix(path: Path, reference: Normalizer) -> Mix:
    """The requests of a file that have an exact answer, one in a line."""
    requests = [request._asdict() for request, _ in read_requests(path, reference)[0]]
    says = f"{len(requests)} requests of a file"
    return Mix(path.name, says, lambda number: requests[number % len(requests)])
