"""The requests of a validation: built in, random, or a user's own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.lab.parity.boundaries import boundary_sizes
from mmroute.lab.parity.cases import Case, json_objects
from mmroute.lab.parity.conversations import (
    IMAGE,
    TEXTS,
    WHITESPACE,
    as_prompt,
    conversations,
    own_texts,
    part,
    takes_chats,
    user,
)
from mmroute.lab.parity.media_cases import item_part, media_cases
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality
from mmroute.requests.lines import request_of

_CHAT_KINDS: Final = frozenset({"tools", "options"})
_REFUSED: Final = "order-first"
_MAX_PARTS: Final = 4
_MAX_IMAGES: Final = 4
_MAX_WORDS: Final = 12
_LONGEST_SIDE: Final = 3000
_MAX_PIXELS: Final = 1 << 22
_WORDS: Final = (
    "the", "image", "What", "is", "in", "this", "picture", "and", "a", "cat's", "12,345.67",
    "naïve", "東京", "здравствуй", "f(x)", "=>", "https://example.com/?q=1", "don't", "A.B.C.",
)  # fmt: skip


def built_in_cases(model: ResolvedModel) -> list[Case]:
    """The built-in requests for a model: the boundaries of its geometry, and unusual prompts.

    They are the same every time. A model without images gets the requests without images, and one
    with an image, which must be refused. A model without a chat template gets prompts with the same
    text, and the chats that have no such prompt.
    """
    cases = list(conversations(model))
    if takes_chats(model):
        cases += media_cases(model)
    rules = model.media.get(Modality.IMAGE)
    if rules is None:
        return [case for case in cases if not case.request.get("images") or case.id == _REFUSED]
    sizes = [
        Case(
            f"{kind}-{size}",
            kind,
            {
                "messages": [user(IMAGE, part("What is this?"))],
                "images": [{"width": size.width, "height": size.height}],
            },
        )
        for kind, size in boundary_sizes(rules.geometry, model.context)
    ]
    if takes_chats(model):
        return sizes + cases
    return [_without_chat(model, case) for case in sizes + cases]


def _without_chat(model: ResolvedModel, case: Case) -> Case:
    if "messages" not in case.request or case.kind in _CHAT_KINDS:
        return case
    return replace(case, request=as_prompt(model, case.request))


def random_cases(model: ResolvedModel, count: int, seed: int = 0) -> Iterator[Case]:
    """Random conversations and sizes, which are the same for the same model and seed."""
    source = _Random(model, seed)
    chats = takes_chats(model)
    for number in range(count):
        case = Case(f"random-{seed}-{number}", "random", source.request())
        yield case if chats else _without_chat(model, case)


def _answers_chats_with(model: ResolvedModel, modality: Modality) -> bool:
    """Whether chats may have items of a modality: some templates write none."""
    request = request_of({"messages": [user(item_part(modality, 0))]})
    return answer(model, request).exact


class _Random:
    """Draws random requests."""

    def __init__(self, model: ResolvedModel, seed: int) -> None:
        self.draw = random.Random(seed)
        self.others = [
            modality
            for modality in model.media
            if modality is not Modality.IMAGE and _answers_chats_with(model, modality)
        ]
        self.takes_images = Modality.IMAGE in model.media
        self.unusual = (*TEXTS, *WHITESPACE, *own_texts(model))

    def request(self) -> dict[str, Any]:
        """One request. Most are plain, because unusual options are refused more often."""
        draw = self.draw
        if self._sometimes(0.1):
            return {"prompt": self._text(), "add_special_tokens": self._sometimes(0.5)}
        images: list[dict[str, int]] = []
        messages: list[dict[str, Any]] = []
        if self._sometimes(0.3):
            messages.append({"role": "system", "content": self._text()})
        for turn in range(draw.randint(1, 3)):
            if turn:
                messages.append({"role": "assistant", "content": self._text()})
            parts = [self._part(images) for _ in range(draw.randint(1, _MAX_PARTS))]
            messages.append(user(*parts))
        request: dict[str, Any] = {"messages": messages, "images": images}
        if self._sometimes(0.1):
            request["add_generation_prompt"] = False
        return request

    def _sometimes(self, probability: float) -> bool:
        return self.draw.random() < probability

    def _part(self, images: list[dict[str, int]]) -> Mapping[str, Any]:
        may = self.takes_images and len(images) < _MAX_IMAGES
        if may and self._sometimes(0.4):
            images.append(self._size())
            return IMAGE
        if self.others and self._sometimes(0.2):
            return item_part(self.draw.choice(self.others), self.draw.randrange(3))
        return part(self._text())

    def _size(self) -> dict[str, int]:
        """A size with sides of any order of magnitude, each equally likely."""
        while True:
            width, height = (round(_LONGEST_SIDE ** self.draw.random()) for _ in range(2))
            if width * height <= _MAX_PIXELS and max(width, height) <= 100 * min(width, height):
                return {"width": width, "height": height}

    def _text(self) -> str:
        draw = self.draw
        words = draw.choices(_WORDS, k=draw.randint(1, _MAX_WORDS))
        if self._sometimes(0.3):
            words.insert(draw.randint(0, len(words)), draw.choice(self.unusual))
        return " ".join(words)


def cases_from_file(path: Path) -> list[Case]:
    """A user's own requests, one in a line as ``mmroute tokens`` reads them; kind ``file``.

    A line without ``id`` is named by its number.
    """
    cases: dict[str, Case] = {}
    for number, where, request in json_objects(path):
        try:
            request_of(request)
        except InexactError as inexact:
            # A field that is not covered belongs in the report, as a request without an answer.
            if inexact.reason is Reason.INVALID_REQUEST:
                raise MmrouteError(inexact.reason, f"{where}: {inexact}") from inexact
        name = request.pop("id", None)
        case_id = f"line-{number}" if name is None else str(name)
        if case_id in cases:
            raise MmrouteError(Reason.MALFORMED_FILE, f"{where}: the id {case_id!r} occurs twice")
        cases[case_id] = Case(case_id, "file", request)
    return list(cases.values())
