"""The models of a server."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from mmroute.errors import InexactError, Reason
from mmroute.net.transport import Transport

__all__ = ["served_models"]

_ROUTE: Final = "/v1/models"


def served_models(transport: Transport) -> Mapping[str, str | None]:
    """The names of its models, at least one; and for an adapter, of which other it is one.

    Raises:
        InexactError: `remote_unavailable`: it does not say.
    """
    reply = transport.ask("GET", _ROUTE)
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE, f"{transport.name} wants an API key, or another one"
        )
    body = reply.body
    cards = body.get("data") if isinstance(body, dict) else None
    names = {
        str(card.get("id")): card.get("parent") or None
        for card in (cards if isinstance(cards, list) else ())
        if isinstance(card, dict)
    }
    if reply.status != HTTPStatus.OK or not names:
        raise InexactError(
            Reason.REMOTE_UNAVAILABLE,
            f"{transport.name}{_ROUTE} answered with status {reply.status} and names no model; is "
            "it a vLLM server, or mmroute serve?",
        )
    return names
