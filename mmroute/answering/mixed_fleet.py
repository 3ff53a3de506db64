"""One request for workers of several engines, versions or model strings.

What they share is computed once: the items that were read, and the prompt where it is the same.
"""

from __future__ import annotations

from dataclasses import replace

from mmroute.answering.caches import Caches
from mmroute.answering.identities import identities_of
from mmroute.answering.pipeline import Prepared, answer, frames_of
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.requests.items import ImageFile


def answer_again(
    routing: Routing, model: ResolvedModel, *, links: ImageLinks | None = None, caches: Caches
) -> Routing:
    """The answer to the request of a routing, as other workers hold it.

    Args:
        routing: of another `ResolvedModel` of the same model; an inexact one is handed back.
        model: as those workers have it.
        links: permission to follow links to images, where the prompt must be made anew.
        caches: of their normalizer.

    Raises:
        ValueError: it comes from another process, or from a server.
    """
    if not routing.exact:
        return routing
    if routing.asked is None:
        raise ValueError("a routing of another process, or of a server, knows no other workers")
    first, request, prepared = routing.asked
    if first is model:
        return routing
    if not _same_prompt(first, model, prepared):
        return answer(model, request, links=links, caches=caches)
    try:
        identities = identities_of(
            model,
            prepared.request,
            prepared.items,
            routing.placeholders,
            lambda video: frames_of(prepared.geometries, video),
        )
    except InexactError as inexact:
        return Routing(reason=inexact.reason, message=str(inexact))
    return replace(routing, identities=identities, hashing=model.hashing)


def _same_prompt(first: ResolvedModel, second: ResolvedModel, prepared: Prepared) -> bool:
    if first.chat is not second.chat:
        return False
    if first.engine.applies_exif_orientation == second.engine.applies_exif_orientation:
        return True
    files = [i for listed in prepared.items.values() for i in listed if isinstance(i, ImageFile)]
    return all(replace(file.size, uuid=None) == file.unturned for file in files)
