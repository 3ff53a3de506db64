"""The requests of a validation and of a proof: built in, or a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.lab.parity.boundaries import boundary_sizes
from mmroute.lab.parity.cases import Case, json_objects
from mmroute.lab.parity.conversations import (
    IMAGE,
    as_prompt,
    chat,
    conversations,
    part,
    takes_chats,
    user,
)
from mmroute.lab.parity.media_cases import media_cases
from mmroute.lab.parity.oracles.pictures import data_url
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality
from mmroute.requests.lines import request_of

_MAX_PIXELS: Final = 1_500_000  # of a picture for an engine on a CPU; a larger one takes seconds
_TEXT: Final = (
    "The quick brown fox jumps over the lazy dog while five boxing wizards jump quickly, and a "
    "jury of twelve judges the vow of the sphinx of black quartz. "
)
_STATEMENT: Final = part(_TEXT * 8)
_QUESTION: Final = part("What? " + _TEXT * 2)
_REPLY: Final = {"role": "assistant", "content": _TEXT}
_STATED, _ASKED, _SEEN = user(_STATEMENT), user(_QUESTION), user(IMAGE, _QUESTION)
_NAMED: Final = {
    "type": "image_url",
    "image_url": {"url": data_url(256, 256)},
    "uuid": "picture-1",
}
_REPEATED_TEXTS: Final = {
    "text": chat(_STATED),
    "text-again": chat(_STATED),
    "text-longer": chat(user(_STATEMENT, _QUESTION)),
    "next-turn": chat(_STATED, _REPLY, _ASKED),
    "third-turn": chat(_STATED, _REPLY, _ASKED, _REPLY, user(part("And then?"))),
    "salted": chat(_STATED, cache_salt="tenant-1"),
    "salted-again": chat(_STATED, cache_salt="tenant-1"),
    "other-salt": chat(_STATED, cache_salt="tenant-2"),
}
_REPEATED_IMAGES: Final = {
    "image": chat(_SEEN),
    "image-again": chat(_SEEN),
    "image-other-question": chat(user(IMAGE, _STATEMENT)),
    "image-other-size": chat(_SEEN) | {"images": [{"width": 300, "height": 200}]},
    "image-next-turn": chat(_SEEN, _REPLY, _STATED),
    "images": chat(user(IMAGE, IMAGE, _QUESTION)),
    "named": chat(user(_NAMED, _QUESTION)),
    "named-again": chat(user(_NAMED, _QUESTION)),
    "named-otherwise": chat(user({**_NAMED, "uuid": "picture-2"}, _QUESTION)),
}
_CHAT_KINDS: Final = frozenset({"tools", "options"})
_REFUSED: Final = "order-first"


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
    asked = user(IMAGE, part("What is this?"))
    sizes = []
    for kind, size in boundary_sizes(rules.geometry, model.context):
        images = [{"width": size.width, "height": size.height}]
        sizes.append(Case(f"{kind}-{size}", kind, {"messages": [asked], "images": images}))
    return [_without_chat(model, case) for case in (*sizes, *cases)]


def _without_chat(model: ResolvedModel, case: Case) -> Case:
    """The same as a prompt, where the model takes no chats and there is such a prompt."""
    if "messages" not in case.request or case.kind in _CHAT_KINDS or takes_chats(model):
        return case
    return replace(case, request=as_prompt(model, case.request))


def proof_cases(model: ResolvedModel) -> list[Case]:
    """The built-in requests that an engine on a CPU can be sent, and repeated prefixes."""
    small = [case for case in built_in_cases(model) if _is_small(case)]
    return [*_repeated(model), *small, *_named(small)]


def _is_small(case: Case) -> bool:
    images = case.request.get("images") or ()
    if images and "messages" not in case.request:
        return False  # vLLM's completion routes take no images
    pixels: int = sum(image["width"] * image["height"] for image in images)
    return pixels <= _MAX_PIXELS


def _named(cases: Iterable[Case]) -> Iterator[Case]:
    """The videos once more under a name: before vLLM 0.31, mmroute names no files of videos."""
    for case in cases:
        if case.kind == Modality.VIDEO:
            video, question = case.request["messages"][0]["content"]
            request = {"messages": [user({**video, "uuid": case.id}, question)]}
            yield Case(f"{case.id}-named", case.kind, request)


def _repeated(model: ResolvedModel) -> Iterator[Case]:
    """Requests that share their beginning with an earlier one, or seem to."""
    takes_images = Modality.IMAGE in model.media and takes_chats(model)
    ids = list(range(100, 356))
    requests = {
        **_REPEATED_TEXTS,
        **(_REPEATED_IMAGES if takes_images else {}),
        "ids": {"prompt_token_ids": ids},
        "ids-again": {"prompt_token_ids": ids},
        "ids-longer": {"prompt_token_ids": [*ids, *ids[:70]]},
    }
    for name, request in requests.items():
        yield _without_chat(model, Case(f"repeated-{name}", "repeated", request))


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
