"""The requests of a validation: built in, or a user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.lab.parity.boundaries import boundary_sizes
from mmroute.lab.parity.cases import Case, json_objects
from mmroute.lab.parity.conversations import (
    IMAGE,
    as_prompt,
    conversations,
    part,
    takes_chats,
    user,
)
from mmroute.lab.parity.media_cases import media_cases
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality
from mmroute.requests.lines import request_of

_CHAT_KINDS: Final = frozenset({"tools", "options"})
_REFUSED: Final = "order-first"


def built_in_cases(model: ResolvedModel) -> list[Case]:
    """The built-in requests for a model: the boundaries of its geometry, and unusual prompts.

    They are the same every time. A model without images gets the requests without images, and one
    with an image, which must be refused. A model without a chat template gets prompts with the same
    text, and the chats that have no such prompt.
    """
    cases = list(conversations(model))
    if takes_chats(model):
        cases += media_cases(model)
    rules = model.media.get(Modality.IMAGE)
    if rules is None:
        return [case for case in cases if not case.request.get("images") or case.id == _REFUSED]
    sizes = [
        Case(
            f"{kind}-{size}",
            kind,
            {
                "messages": [user(IMAGE, part("What is this?"))],
                "images": [{"width": size.width, "height": size.height}],
            },
        )
        for kind, size in boundary_sizes(rules.geometry, model.context)
    ]
    if takes_chats(model):
        return sizes + cases
    return [_without_chat(model, case) for case in sizes + cases]


def _without_chat(model: ResolvedModel, case: Case) -> Case:
    if "messages" not in case.request or case.kind in _CHAT_KINDS:
        return case
    return replace(case, request=as_prompt(model, case.request))


def cases_from_file(path: Path) -> list[Case]:
    """A user's own requests, one in a line as ``mmroute tokens`` reads them; kind ``file``.

    A line without ``id`` is named by its number.
    """
    cases: dict[str, Case] = {}
    for number, where, request in json_objects(path):
        try:
            request_of(request)
        except InexactError as inexact:
            # A field that is not covered belongs in the report, as a request without an answer.
            if inexact.reason is Reason.INVALID_REQUEST:
                raise MmrouteError(inexact.reason, f"{where}: {inexact}") from inexact
        name = request.pop("id", None)
        case_id = f"line-{number}" if name is None else str(name)
        if case_id in cases:
            raise MmrouteError(Reason.MALFORMED_FILE, f"{where}: the id {case_id!r} occurs twice")
        cases[case_id] = Case(case_id, "file", request)
    return list(cases.values())
