"""Writes a request in the form that a server accepts: the route and the body."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pybase64

from mmroute.answering.media import left_over, with_uuid
from mmroute.chat import MediaPart
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.images.data_url import is_data_url
from mmroute.requests.items import Image, ImageFile, Modality
from mmroute.requests.request import Message, Request, integers
from mmroute.token_ids import MAX_TOKEN_ID

CHAT: Final = "/v1/chat/completions/render"
COMPLETION: Final = "/v1/completions/render"
# With this query `mmroute serve` checks that token IDs are in the vocabulary, as the engine does
# and the engine's renderer does not. No prompt has a block of that size, so nothing is hashed.
_IN_VOCABULARY: Final = f"?block_size={1 << 20}"
_OPTIONAL: Final = (
    "tools", "reasoning_effort", "documents", "chat_template_kwargs", "mm_processor_kwargs",
    "truncate_prompt_tokens",
)  # fmt: skip
# The response is to have no tensors. The engine requires room for at least one token of output.
_ALWAYS: Final = {"mm_payload": "none", "max_tokens": 1}


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """One request to a server, and the number of images that the response must have."""

    path: str
    body: bytes
    num_images: int = 0


def chat_request(model: str, request: Request) -> RenderRequest:
    """A request to a server, for a chat."""
    media = parse_chat(request).media
    others = media.keys() - {Modality.IMAGE}
    if others or request.videos or request.audios or request.media_io_kwargs:
        raise _inexpressible("only images can be asked of a server; load the model here")
    parts = media.get(Modality.IMAGE, ())
    filled = list(_filled(parts, request.images))
    _check_names(filled)
    messages: Sequence[Message] = request.messages or ()
    body = {
        "model": model,
        "messages": _with_parts(messages, parts, filled) if parts else messages,
        "add_special_tokens": request.add_special_tokens,
        "add_generation_prompt": request.add_generation_prompt,
        "continue_final_message": request.continue_final_message,
        **_ALWAYS,
    }
    options = {name: getattr(request, name) for name in _OPTIONAL}
    body |= {name: value for name, value in options.items() if value not in (None, {})}
    return RenderRequest(CHAT, _json({**request.api_fields, **body}), len(parts))


def prompt_request(model: str, request: Request) -> RenderRequest:
    """A request to a server, for a prompt of text or token IDs."""
    if request.images or request.videos or request.audios:
        raise _inexpressible("the route for prompts takes no items; send messages")
    body = {"model": model, "add_special_tokens": request.add_special_tokens, **_ALWAYS}
    if request.truncate_prompt_tokens is not None:
        body["truncate_prompt_tokens"] = request.truncate_prompt_tokens
    if request.prompt_token_ids is not None:
        ids = integers("prompt_token_ids", request.prompt_token_ids)
        if not ids:
            raise InexactError(Reason.EMPTY_PROMPT, "the prompt has no token")
        if not 0 <= min(ids) <= max(ids) <= MAX_TOKEN_ID:
            raise InexactError(
                Reason.TOKEN_OUT_OF_VOCABULARY,
                f"prompt_token_ids must be 0 to {MAX_TOKEN_ID}, found {quoted(min(ids))} to "
                f"{quoted(max(ids))}",
            )
        return RenderRequest(f"{COMPLETION}{_IN_VOCABULARY}", _json({**body, "prompt": ids}))
    if not isinstance(request.prompt, str):
        raise invalid(
            f"prompt must be a string, found {json_type(request.prompt)}; token IDs go into "
            "prompt_token_ids"
        )
    return RenderRequest(COMPLETION, _json({**body, "prompt": request.prompt}))


@dataclass(frozen=True, slots=True)
class _Filled:
    """An image part, completed with the data that a server needs."""

    body: Message
    url: str | None
    uuid: str | None


def _filled(parts: Sequence[MediaPart], images: Sequence[Image]) -> Iterator[_Filled]:
    """The image parts of a chat, completed from `images`.

    The parts take images in the same order as for a loaded model. Only links take none: the server
    follows them, or refuses to.
    """
    waiting = iter(images)
    for part in parts:
        carried = part.url is not None and is_data_url(part.url)
        image = None if carried else next(waiting, None)
        if image is not None:
            yield _with_image(part, with_uuid(image, part.uuid))
        elif part.url is not None:
            yield _Filled(part.source, part.url, part.uuid)
        else:
            raise InexactError(
                Reason.IMAGE_COUNT_MISMATCH,
                f"`images` has nothing for image part {part.number}; give the file of every image "
                "that is no link and no data URL, in order",
            )
    left = len(list(waiting))
    if left:
        raise left_over(Modality.IMAGE, left, len(images))


def _with_image(part: MediaPart, image: Image) -> _Filled:
    uuid = image.size.uuid
    named = {} if uuid is None else {"uuid": uuid}
    if isinstance(image, ImageFile):
        link = part.source["image_url"] if part.url is not None else {}
        kept = part.source if part.url is not None else {}
        content = pybase64.b64encode(image.data).decode("ascii")
        # Engines detect the format from the file itself, and ignore the media type in the URL.
        url = f"data:application/octet-stream;base64,{content}"
        body = {**kept, "type": "image_url", "image_url": {**link, "url": url}, **named}
        return _Filled(body, url, uuid)
    if part.url is not None:
        return _Filled({**part.source, **named}, part.url, uuid)
    raise _inexpressible(
        f"of image {part.number} only the size is known ({image}), and a server must see its "
        "file; give mmroute.read_image(...) in `images`, or send a data URL or a link"
    )


def _check_names(parts: Sequence[_Filled]) -> None:
    """Refuse two images with one uuid, because engines cache by it and would mix them up."""
    named: dict[str, str | None] = {}
    for part in parts:
        if part.uuid is not None and named.setdefault(part.uuid, part.url) != part.url:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD, f"the uuid {quoted(part.uuid)} names two images"
            )


def _with_parts(
    messages: Sequence[Message], parts: Sequence[MediaPart], filled: Sequence[_Filled]
) -> list[Message]:
    """The messages with their completed parts. One object may be several parts of the messages."""
    sources, bodies = {id(part.source) for part in parts}, iter(filled)
    result: list[Message] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = [next(bodies).body if id(part) in sources else part for part in content]
            result.append({**message, "content": content})
        else:
            result.append(message)
    return result


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        # msgspec would write null for NaN, and fails for lone surrogates, which engines accept.
        return json.dumps(body, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(f"the request cannot be written as JSON: {quoted(str(error))}") from error


def _inexpressible(message: str) -> InexactError:
    return InexactError(Reason.REMOTE_INEXPRESSIBLE, message)
