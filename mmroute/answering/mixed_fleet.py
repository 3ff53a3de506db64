"""Answers one request for workers of several engines, versions or model strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mmroute.answering.pipeline import Caches, complete, prepare, refused, with_adapter
from mmroute.answering.prepared import Prepared
from mmroute.answering.routing import Routing
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.requests.items import ImageFile
from mmroute.requests.request import Request


def answer_for(
    workers: Iterable[tuple[ResolvedModel, ImageLinks | None, Caches]], request: Request
) -> list[Routing]:
    """The answer of each kind of workers to one request."""
    known: list[tuple[ResolvedModel, Prepared]] = []
    routings = []
    for model, links, caches in workers:
        try:
            same = (own for first, own in known if _same_prompt(first, model, own))
            if (shared := next(same, None)) is None:
                prepared = prepare(model, request, links=links, caches=caches)
                known.append((model, prepared))
            else:
                lora = with_adapter(model, request).lora
                prepared = shared._replace(request=shared.request._replace(lora=lora))
            routings.append(complete(model, prepared, caches))
        except Exception as error:  # noqa: BLE001 - what is no refusal is raised again
            routings.append(refused(request, error))
    return routings


def _same_prompt(first: ResolvedModel, second: ResolvedModel, prepared: Prepared) -> bool:
    if first.chat is not second.chat:
        return False
    one, other = first.engine.limits, second.engine.limits
    if one.applies_exif_orientation == other.applies_exif_orientation:
        return True
    files = [i for listed in prepared.items.values() for i in listed if isinstance(i, ImageFile)]
    return all(replace(file.size, uuid=None) == file.unturned for file in files)
