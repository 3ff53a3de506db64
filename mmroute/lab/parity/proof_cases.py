"""The requests of a proof: those of a validation that fit an engine, and repeated prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.conversations import IMAGE, as_prompt, part, takes_chats, user
from mmroute.lab.parity.oracles.pictures import data_url, has_media
from mmroute.lab.parity.suite import built_in_cases
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality

_MAX_PIXELS: Final = 1_500_000  # a larger picture takes a CPU seconds
_TEXT: Final = (
    "The quick brown fox jumps over the lazy dog while five boxing wizards jump quickly, and a "
    "jury of twelve judges the vow of the sphinx of black quartz. "
)
_SIZE: Final = {"width": 320, "height": 240}


def proof_cases(model: ResolvedModel) -> list[Case]:
    """The built-in requests for a model."""
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
    chats = _chats(Modality.IMAGE in model.media)
    for name, request in chats:
        if takes_chats(model):
            yield Case(f"repeated-{name}", "repeated", request)
        elif not has_media(request["messages"]):
            kept = {k: v for k, v in request.items() if k == "cache_salt"}
            yield Case(f"repeated-{name}", "repeated", {**as_prompt(model, request), **kept})
    ids = list(range(100, 356))
    for name, tokens in (("ids", ids), ("ids-again", ids), ("ids-longer", [*ids, *ids[:70]])):
        yield Case(f"repeated-{name}", "repeated", {"prompt_token_ids": tokens})


def _chats(images: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
    statement, question = part(_TEXT * 8), part("What? " + _TEXT * 2)
    reply = {"role": "assistant", "content": _TEXT}

    def chat(*messages: Mapping[str, Any], count: int = 0, **fields: Any) -> dict[str, Any]:
        return {"messages": list(messages), "images": [_SIZE] * count, **fields}

    yield "text", chat(user(statement))
    yield "text-again", chat(user(statement))
    yield "text-longer", chat(user(statement, question))
    yield "next-turn", chat(user(statement), reply, user(question))
    yield "third-turn", chat(user(statement), reply, user(question), reply, user(part("And then?")))
    yield "salted", chat(user(statement), cache_salt="tenant-1")
    yield "salted-again", chat(user(statement), cache_salt="tenant-1")
    yield "other-salt", chat(user(statement), cache_salt="tenant-2")
    if not images:
        return
    yield "image", chat(user(IMAGE, question), count=1)
    yield "image-again", chat(user(IMAGE, question), count=1)
    yield "image-other-question", chat(user(IMAGE, statement), count=1)
    yield (
        "image-other-size",
        chat(user(IMAGE, question)) | {"images": [{"width": 300, "height": 200}]},
    )
    yield "image-next-turn", chat(user(IMAGE, question), reply, user(statement), count=1)
    yield "images", chat(user(IMAGE, IMAGE, question), count=2)
    named = {"type": "image_url", "image_url": {"url": data_url(256, 256)}, "uuid": "picture-1"}
    yield "named", chat(user(named, question))
    yield "named-again", chat(user(named, question))
    yield "named-otherwise", chat(user({**named, "uuid": "picture-2"}, question))
