"""What the bodies that are sent on to engines share: uuids, and the parts that carry a file."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mmroute.chat import MediaPart
from mmroute.chat.renderer import ParsedChat
from mmroute.geometry.metadata import ItemMetadata
from mmroute.hashing.hashes import Hashes
from mmroute.images.data_url import is_data_url
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

# These change how the engine reads or counts images, and generate routes have no place for them.
_PROCESSOR_FIELDS: Final = ("mm_processor_kwargs", "media_io_kwargs")


Parser: TypeAlias = Callable[[Request], ParsedChat]
"""The function by which an engine parses messages."""


class Answer(Protocol):
    """The exact answer to a request, such as a `Routing`; see there."""

    @property
    def token_ids(self) -> TokenIds: ...

    @property
    def unexpanded_token_ids(self) -> TokenIds: ...

    @property
    def placeholders(self) -> Sequence[PlaceholderRange]: ...

    @property
    def items(self) -> Iterable[tuple[PlaceholderRange, Identity | None]]: ...

    @property
    def cache_salt(self) -> str | None: ...

    @property
    def hashing(self) -> Hashes: ...

    def identified(self) -> Sequence[tuple[PlaceholderRange, Identity]]: ...

    def image_hashes(self) -> list[str]: ...

    def metadata(self) -> Sequence[ItemMetadata]: ...


class _Carrier(NamedTuple):
    """A type of parts that may hold a file."""

    modality: Modality
    key: str = "url"  # the key of the file within the value of the part's type


CARRIERS: Final[Mapping[str, _Carrier]] = {
    "image_url": _Carrier(Modality.IMAGE), "video_url": _Carrier(Modality.VIDEO),
    "audio_url": _Carrier(Modality.AUDIO), "input_audio": _Carrier(Modality.AUDIO, "data"),
}  # fmt: skip
"""The types of parts that may hold a file."""


def with_uuids(request: Mapping[str, Any], *, tenant_key: bytes | None = None) -> dict[str, Any]:
    """The request with a uuid for each image, video and audio that it holds as a data URL.

    The uuid is a hash of the file's base64, so one file always has the same uuid. Route the
    returned request, and forward it or a body made of it: then router and engine know each item by
    the same uuid. Without one, the engine may hash decoded data that a router does not have, such
    as samples of audio. Links without a uuid stay as they are.

    Args:
        request: the client's request. One without a list of ``messages`` is returned unchanged.
        tenant_key: a secret of the client's tenant. All uuids, also the client's
            own, are then hashed with it (HMAC-SHA256): no tenant can name another one's item, or
            learn from the time of an answer that an engine holds it. None keeps a client's uuids.

    Raises:
        ValueError: the key is empty.
    """
    if tenant_key == b"":
        raise ValueError("tenant_key is empty: give a secret of 32 random bytes, or None")
    return changed_parts(request, lambda part, _: _with_uuid(part, tenant_key))


def changed_parts(
    request: Mapping[str, Any], change: Callable[[Mapping[str, Any], int], Mapping[str, Any]]
) -> dict[str, Any]:
    """The request with each part that carries a file changed, which is told by its type."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return dict(request)
    seen: Counter[Modality] = Counter()

    def changed(part: Any) -> Any:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or kind not in CARRIERS or kind not in part:
            return part
        modality = CARRIERS[kind].modality
        seen[modality] += 1
        return change(part, seen[modality] - 1)

    written = [
        {**message, "content": [*map(changed, message["content"])]}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for message in messages
    ]
    return {**request, "messages": written}


def _with_uuid(part: Mapping[str, Any], key: bytes | None) -> Mapping[str, Any]:
    kind, uuid = part["type"], part.get("uuid")
    if uuid is not None:
        if key is None or not isinstance(uuid, str):
            return part
        return {**part, "uuid": _keyed(key, f"uuid {uuid}")}
    modality, name = CARRIERS[kind]
    carrier = part[kind]
    text = carrier.get(name) if isinstance(carrier, Mapping) else None
    if not isinstance(text, str) or (kind != "input_audio" and not is_data_url(text)):
        return part
    content = text if kind == "input_audio" else text.partition(",")[2]
    # One name for images and videos of one file would mix them up in the engine's cache.
    # A lone surrogate is no base64: such a part is refused where its file is read.
    if key is not None:
        return {**part, "uuid": _keyed(key, f"{modality} {content}")}
    digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
    return {**part, "uuid": f"{modality}-{digest}"}


def _keyed(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode(errors="surrogatepass"), "sha256").hex()


def check_processor(request: Mapping[str, Any]) -> None:
    """Refuse fields that change how the engine reads media, where a route has no place for them."""
    refused = [name for name in _PROCESSOR_FIELDS if request.get(name)]
    if refused:
        raise ValueError(f"the route has no place for {', '.join(refused)}")


def text_ids(
    routing: Answer, request: Mapping[str, Any], parse: Parser, with_images: str
) -> list[int]:
    """The token IDs of a request without media; `with_images` says why media are refused."""
    token_ids: list[int] = routing.token_ids.tolist()
    if media_parts(routing, request, parse):
        raise ValueError(f"{with_images}; forward it unchanged, or to its generate route")
    return token_ids


def media_parts(routing: Answer, request: Mapping[str, Any], parse: Parser) -> Sequence[MediaPart]:
    """The parts of the messages that stand for an item, by modality; completions have none."""
    media: Mapping[Modality, Sequence[MediaPart]] = {}
    if "messages" in request:
        media = parse(Request(messages=request["messages"])).media
    counts = {modality: len(parts) for modality, parts in media.items()}
    if counts != Counter(placed.modality for placed in routing.placeholders):
        raise ValueError(
            f"the request has {sum(counts.values())} items and the routing has "
            f"{len(routing.placeholders)}, or their modalities differ: the routing answers another "
            "request"
        )
    return [part for parts in media.values() for part in parts]
