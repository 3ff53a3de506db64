"""What one request needs beside its body, and what its response is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.errors import Reason
from mmroute.requests.items import Modality
from mmroute.server.front.http import NO_HEADERS
from mmroute.server.loading import LoadedModel
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

_NO_ITEMS: Final[Mapping[Modality, tuple[int, int]]] = {}


class HandlerContext(NamedTuple):
    """What a handler needs beside the request.

    Attributes:
        models: of the server.
        settings: of the server.
        request_id: of the ``X-Request-Id`` header; None if there is none.
        own_id: of the log line, for a request that brings none.
        blocks: which block hashes are wanted; None for none.
        path: of the request.
    """

    models: Models
    settings: ServerSettings
    request_id: str | None = None
    own_id: str = ""
    blocks: BlockForm | None = None
    path: str = ""


class HandlerResult(NamedTuple):
    """What a handler found.

    Attributes:
        body: ready for JSON.
        model: that was asked; None where none was.
        tokens: of all prompts.
        items: how many there are in them of each modality, and how many tokens these have.
        headers: beside the usual ones.
        status: of the response.
        inexact: why it is not the whole prompt; None if it is.
    """

    body: Any
    model: str | None = None
    tokens: int = 0
    items: Mapping[Modality, tuple[int, int]] = _NO_ITEMS
    headers: Mapping[str, str] = NO_HEADERS
    status: int = 200
    inexact: Reason | None = None


def result_of(
    loaded: LoadedModel,
    body: Any,
    routings: Sequence[Routing] = (),
    headers: Mapping[str, str] | None = None,
    inexact: Reason | None = None,
) -> HandlerResult:
    """A result with the numbers of the prompts it was made of."""
    items: dict[Modality, tuple[int, int]] = {}
    for routing in routings:
        for placed in routing.placeholders:
            count, tokens = items.get(placed.modality, (0, 0))
            items[placed.modality] = count + 1, tokens + placed.length
    return HandlerResult(
        body,
        model=loaded.name,
        tokens=sum([len(routing.token_ids) for routing in routings]),
        items=items,
        headers=headers or NO_HEADERS,
        inexact=inexact,
    )
