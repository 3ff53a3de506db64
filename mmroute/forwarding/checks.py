"""Checks that a routing answers a request, and that a route can carry the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.answering.routing import Routing
from mmroute.chat import MediaPart
from mmroute.engines.vllm.messages import parse_chat
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

# These change how the engine reads or counts images, and generate routes have no place for them.
_PROCESSOR_FIELDS: Final = ("mm_processor_kwargs", "media_io_kwargs")


def check_processor(request: Mapping[str, Any]) -> None:
    """Refuse fields that change how the engine reads media, where a route has no place for them."""
    refused = [name for name in _PROCESSOR_FIELDS if request.get(name)]
    if refused:
        raise ValueError(f"the route has no place for {', '.join(refused)}")


def text_ids(routing: Routing, request: Mapping[str, Any], with_images: str) -> list[int]:
    """The token IDs of a request without media; `with_images` says why media are refused."""
    token_ids: list[int] = routing.token_ids.tolist()
    if media_parts(routing, request):
        raise ValueError(f"{with_images}; forward it unchanged, or to its generate route")
    return token_ids


def media_parts(routing: Routing, request: Mapping[str, Any]) -> Sequence[MediaPart]:
    """The parts of the messages that stand for an item, by modality; completions have none."""
    media: Mapping[Modality, Sequence[MediaPart]] = {}
    if "messages" in request:
        media = parse_chat(Request(messages=request["messages"])).media
    counts = {modality: len(parts) for modality, parts in media.items()}
    if counts != Counter(placed.modality for placed in routing.placeholders):
        raise ValueError(
            f"the request has {sum(counts.values())} items and the routing has "
            f"{len(routing.placeholders)}, or their modalities differ: the routing answers another "
            "request"
        )
    return [part for parts in media.values() for part in parts]
