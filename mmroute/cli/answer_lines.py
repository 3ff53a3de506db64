"""The answers of ``mmroute tokens`` and ``mmroute blocks`` to one line, as values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, invalid, quoted
from mmroute.normalizer import Normalizer
from mmroute.requests.items import Modality
from mmroute.requests.lines import json_object, request_of
from mmroute.requests.request import Request

Answer: TypeAlias = Callable[[Routing], dict[str, Any]]
"""The fields of an exact answer, without its id."""


def answer_line(
    line: str | bytes, answer_of: Callable[[Request], Routing], answer: Answer
) -> dict[str, Any]:
    """The answer to one line, as values for JSON. A bad line has an inexact answer."""
    line_id: str | int | None = None
    try:
        value = json_object(line)
        own_id = value.get("id")
        if own_id is not None and not isinstance(own_id, str) and type(own_id) is not int:
            raise invalid(f"id must be a text or an integer, found {quoted(own_id)}")
        line_id = own_id
        routing = answer_of(request_of(value))
    except InexactError as inexact:
        routing = Routing(reason=inexact.reason, message=str(inexact))
    return {"id": line_id, **_answered(routing, answer)}


def answer_line_for_each(
    line: str | bytes, fleet: Mapping[str, Normalizer], answer: Answer
) -> dict[str, Any]:
    """The answers to one line for several kinds of workers, by their names."""
    first, *others = fleet.values()
    routings: list[Routing] = []

    def answer_of(request: Request) -> Routing:
        routings.extend(first.answer_with(others, request))
        return next(filter(attrgetter("exact"), routings), routings[0])

    def answer_all(_: Routing) -> dict[str, Any]:
        each = zip(fleet, routings, strict=True)
        return {"backends": {name: _answered(routing, answer) for name, routing in each}}

    return answer_line(line, answer_of, answer_all)


def _answered(routing: Routing, answer: Answer) -> dict[str, Any]:
    try:
        if routing.reason is None:
            return {"exact": True, **answer(routing)}
        reason, message = routing.reason, routing.message
    except InexactError as inexact:
        reason, message = inexact.reason, str(inexact)
    return {"exact": False, "reason": reason.value, "message": message}


def tokens_answer(routing: Routing) -> dict[str, Any]:
    """The fields of an answer of ``mmroute tokens``: token IDs, and the ranges of items."""
    placeholders = [
        {"offset": p.offset, "length": p.length}
        | ({} if p.modality is Modality.IMAGE else {"modality": p.modality.value})
        | ({"embed_runs": [[int(e), n] for e, n in p.embed_runs]} if p.embed_runs else {})
        for p in routing.placeholders
    ]
    return {"token_ids": routing.token_ids.tolist(), "placeholders": placeholders}


def blocks_answer(routing: Routing, form: BlockForm) -> dict[str, Any]:
    """The fields of an answer of ``mmroute blocks``: block hashes, and the images they cover."""
    hashes = form.of(routing)
    identities = [identity for identity in routing.identities if identity is not None]
    return {
        **hashes,
        "image_identities": [identity.value for identity in identities],
        "image_identity_sources": [identity.source.value for identity in identities],
        **({"model_id": routing.hashing.settings.model_id} if routing.covers_model_id else {}),
    }
