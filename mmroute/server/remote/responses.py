"""Reads a server's response: a rendered prompt, or the reason why there is none.

Source: vLLM ``entrypoints/scale_out/token_in_token_out/protocol.py`` (`GenerateRequest`,
`MultiModalFeatures`), ``entrypoints/serve/exception_handling``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from itertools import groupby
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.net.transport import Reply
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity, IdentitySource
from mmroute.server.remote.requests import COMPLETION, RenderRequest
from mmroute.token_ids import MAX_TOKEN_ID, TokenIds

_MAX_SHOWN: Final = 300
_INEXACT: Final = "InexactRouting"
# The values of `param` in vLLM's errors from which the reason follows.
_REASONS: Final[Mapping[str, Reason]] = {
    "input_tokens": Reason.PROMPT_TOO_LONG,
    "input_text": Reason.PROMPT_TOO_LONG,
    "mm_processor_kwargs": Reason.UNSUPPORTED_PROCESSOR_KWARGS,
    "image": Reason.TOO_MANY_ITEMS,  # "At most 1 image(s) may be provided in one prompt."
}
_REFUSALS: Final = frozenset({
    HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_IMPLEMENTED,
})  # fmt: skip
_IMAGE: Final = "image"

_TokenId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class _Range(msgspec.Struct):
    offset: _Index
    length: _Count
    # `mmroute serve` adds this key if not all positions are features; vLLM does not have it.
    is_embed: list[bool] | None = None


class _Features(msgspec.Struct):
    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[_Range]]


class _Response(msgspec.Struct):
    token_ids: list[_TokenId]
    features: _Features | None


_chat: Final = msgspec.json.Decoder(_Response)
_completion: Final = msgspec.json.Decoder(list[_Response])


class Rendered(NamedTuple):
    """A prompt as a server rendered it."""

    token_ids: TokenIds
    placeholders: tuple[PlaceholderRange, ...]  # by position
    identities: tuple[Identity, ...]  # in the same order


def read_response(reply: Reply, render: RenderRequest, server: str) -> Rendered:
    """The prompt in a response."""
    if reply.status != HTTPStatus.OK:
        raise _refused(reply, server)
    try:
        if render.path.startswith(COMPLETION):
            (response,) = _completion.decode(reply.raw)
        else:
            response = _chat.decode(reply.raw)
        # This header means that `mmroute serve` made the response, and did not forward it.
        is_ours = reply.headers.get("x-mmroute-outcome") == "exact"
        return _rendered(response, render.num_images, tells_features=is_ours)
    except (ValueError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE,
            f"{server} answered with something else than a rendered prompt ({error}); is it a "
            "vLLM server, or mmroute serve?",
        ) from error


def _rendered(response: _Response, num_images: int, *, tells_features: bool) -> Rendered:
    ids = np.array(response.token_ids, dtype=np.uint32)
    ids.setflags(write=False)
    features = response.features or _Features({}, {})
    others = (features.mm_hashes.keys() | features.mm_placeholders.keys()) - {_IMAGE}
    hashes = features.mm_hashes.get(_IMAGE, [])
    ranges = features.mm_placeholders.get(_IMAGE, [])
    if not len(ids) or others or not len(hashes) == len(ranges) == num_images:
        raise ValueError(
            f"{len(ids)} token IDs, {len(hashes)} image hashes and {len(ranges)} ranges for "
            f"{num_images} images{', and ' if others else ''}{', '.join(sorted(others))}"
        )
    # The engine's k-th hash belongs to its k-th range. Ranges are sorted here by position, because
    # the protocol does not promise that order.
    order = sorted(range(num_images), key=lambda item: ranges[item].offset)
    return Rendered(
        ids,
        tuple(_placeholder(item, ranges[item], len(ids), tells_features) for item in order),
        tuple(Identity(hashes[item], IdentitySource.REMOTE) for item in order),
    )


def _placeholder(item: int, place: _Range, num_tokens: int, embeds_known: bool) -> PlaceholderRange:
    if place.offset + place.length > num_tokens:
        raise ValueError(f"image {item + 1} ends behind the {num_tokens} tokens of the prompt")
    if place.is_embed is None:
        return PlaceholderRange(item, place.offset, place.length, embeds_known=embeds_known)
    if len(place.is_embed) != place.length:
        raise ValueError(f"image {item + 1} has {place.length} tokens, and features for others")
    runs = tuple((embed, len(list(run))) for embed, run in groupby(place.is_embed))
    return PlaceholderRange(item, place.offset, place.length, None if all(place.is_embed) else runs)


def _refused(reply: Reply, server: str) -> InexactError:
    message, param = reply.message[:_MAX_SHOWN], str(reply.error.get("param"))
    # `mmroute serve` states the reason: in a header, or in the body if vLLM would not refuse.
    of_body = param if reply.error.get("type") == _INEXACT else None
    stated = _reason_of(reply.headers.get("x-mmroute-reason", of_body))
    if stated is not None:
        return InexactError(stated, message)
    if reply.status in _REFUSALS:
        return InexactError(_REASONS.get(param, Reason.INVALID_REQUEST), message)
    too_large = reply.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return InexactError(
        Reason.REMOTE_INEXPRESSIBLE if too_large else Reason.REMOTE_UNAVAILABLE,
        f"{server} answered with status {reply.status}: {message}",
    )


def _reason_of(name: str | None) -> Reason | None:
    return next((reason for reason in Reason if reason.value == name), None)
