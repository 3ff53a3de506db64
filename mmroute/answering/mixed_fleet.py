"""One request for workers of several engines, versions or model strings.

What they share is computed once: the items that were read, and the prompt where it is the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmroute.answering.pipeline import Prepare, prepare
from mmroute.answering.prepared import Prepared
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import ImageFile
from mmroute.requests.request import Request


def preparing_once() -> Prepare:
    """The first half of the way for one request, which is gone once for models of one prompt.

    The models are those of `mmroute.model.resolve.with_same_prompts`, and others.
    """
    known: list[tuple[ResolvedModel, Prepared]] = []

    def prepare_once(model: ResolvedModel, request: Request, **more: Any) -> Prepared:
        for first, prepared in known:
            if _same_prompt(first, model, prepared):
                return prepared
        known.append((model, prepare(model, request, **more)))
        return known[-1][1]

    return prepare_once


def _same_prompt(first: ResolvedModel, second: ResolvedModel, prepared: Prepared) -> bool:
    if first.chat is not second.chat:
        return False
    if first.engine.applies_exif_orientation == second.engine.applies_exif_orientation:
        return True
    files = [i for listed in prepared.items.values() for i in listed if isinstance(i, ImageFile)]
    return all(replace(file.size, uuid=None) == file.unturned for file in files)
