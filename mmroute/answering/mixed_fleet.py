"""Answers one request for workers of several engines, versions or model strings.

Items are read once. Workers with the same prompt share its rendering and encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from mmroute.answering.caches import Caches
from mmroute.answering.pipeline import answer, prepare, with_adapter
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

    def prepare_once(model: ResolvedModel, links: ImageLinks | None, caches: Caches) -> Prepared:
        for first, prepared in known:
            if _same_prompt(first, model, prepared):
                own = prepared.request._replace(lora=with_adapter(model, request).lora)
                return prepared._replace(request=own)
        prepared = prepare(model, with_adapter(model, request), links=links, caches=caches)
        known.append((model, prepared))
        return prepared

    return [
        answer(
            model, request, caches=caches, first_half=partial(prepare_once, model, links, caches)
        )
        for model, links, caches in workers
    ]


def _same_prompt(first: ResolvedModel, second: ResolvedModel, prepared: Prepared) -> bool:
    if first.chat is not second.chat:
        return False
    one, other = first.engine.limits, second.engine.limits
    if one.applies_exif_orientation == other.applies_exif_orientation:
        return True
    files = [i for listed in prepared.items.values() for i in listed if isinstance(i, ImageFile)]
    return all(replace(file.size, uuid=None) == file.unturned for file in files)
