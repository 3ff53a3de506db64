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
from mmroute.requests.checks import integers
from mmroute.requests.items import Image, ImageFile, Modality
from mmroute.requests.request import Message, Request
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


def _filled(parts: Sequence[MediaPart], images: Sequence[Image]) -> Iterator[Message]:
    """The image parts of a chat, completed from `images` with the data that a server needs.

    The parts take images in the same order as for a loaded model. Only links take none: the server
    follows them, or refuses to. Two images with one uuid are refused, because engines cache by it
    and would mix them up.
    """
    waiting, named = iter(images), dict[str, str | None]()
    for part in parts:
        carried = part.url is not None and is_data_url(part.url)
        image = None if carried else next(waiting, None)
        body, url, uuid = part.source, part.url, part.uuid
        if image is not None:
            image = with_uuid(image, uuid)
            body, url = _with_image(part, image)
            uuid = image.size.uuid
            body = body if uuid is None else {**body, "uuid": uuid}
        elif url is None:
            raise InexactError(
                Reason.IMAGE_COUNT_MISMATCH,
                f"`images` has nothing for image part {part.number}; give the file of every image "
                "that is no link and no data URL, in order",
            )
        if uuid is not None and named.setdefault(uuid, url) != url:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD, f"the uuid {quoted(uuid)} names two images"
            )
        yield body
    left = len(list(waiting))
    if left:
        raise left_over(Modality.IMAGE, left, len(images))


def _with_image(part: MediaPart, image: Image) -> tuple[Message, str]:
    """The part of an image, and its URL."""
    if isinstance(image, ImageFile):
        kept = part.source if part.url is not None else {}
        content = pybase64.b64encode(image.data).decode("ascii")
        # Engines detect the format from the file itself, and ignore the media type in the URL.
        url = f"data:application/octet-stream;base64,{content}"
        link = {**kept.get("image_url", {}), "url": url}
        return {**kept, "type": "image_url", "image_url": link}, url
    if part.url is not None:
        return part.source, part.url
    raise _inexpressible(
        f"of image {part.number} only the size is known ({image}), and a server must see its "
        "file; give mmroute.read_image(...) in `images`, or send a data URL or a link"
    )


def _with_parts(
    messages: Sequence[Message], parts: Sequence[MediaPart], filled: Sequence[Message]
) -> list[Message]:
    """The messages with their completed parts. One object may be several parts of the messages."""
    sources, bodies = {id(part.source) for part in parts}, iter(filled)
    result: list[Message] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = [next(bodies) if id(part) in sources else part for part in content]
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
