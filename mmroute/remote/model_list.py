"""The models of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from mmroute.errors import InexactError, Reason
from mmroute.net.transport import Transport

__all__ = ["ServedModel", "served_models"]

_ROUTE: Final = "/v1/models"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model or an adapter, as its server lists it.

    Attributes:
        parent: the model that it is an adapter of; None if it is none.
        root: the engine's model string, or the adapter's path; empty if the server tells none.
            Source: vLLM 0.33.0 ``entrypoints/openai/models/serving.py``.
        max_model_len: its longest context; None if the server does not tell it.
    """

    parent: str | None
    root: str
    max_model_len: int | None


def served_models(transport: Transport) -> Mapping[str, ServedModel]:
    """Its models and adapters by their names, at least one.

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
        str(card.get("id")): ServedModel(
            card.get("parent") or None, str(card.get("root") or ""), card.get("max_model_len")
        )
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
