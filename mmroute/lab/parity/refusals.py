"""The causes by which an engine refuses what mmroute answers, or the reverse."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mmroute.answering.pipeline import prepare
from mmroute.answering.prepared import Prepared
from mmroute.answering.routing import Routing
from mmroute.engines.vllm.settings import as_vllm
from mmroute.errors import Reason
from mmroute.lab.parity.causes import Cause, Remedy, merged
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

# Source: vLLM ``renderers/params.py``, ``v1/engine/input_processor.py``. Encoders have another one.
_CONTEXT: Final = re.compile(
    r"maximum context length is (\d+) tokens|The decoder prompt .* maximum model length of (\d+)"
)
# Source: vLLM ``multimodal/processing/context.py`` (`validate_num_items`).
_LIMIT: Final = re.compile(r"At most (\d+) (\w+)\(s\) may be provided in one prompt")
# Source: vLLM ``multimodal/media/image.py``.
_PIXELS: Final = re.compile(r"exceed the maximum of (\d+) pixels\. Set VLLM_MAX_IMAGE_PIXELS")


def engine_refuses(model: ResolvedModel, refusal: str) -> Iterator[Remedy]:
    """The causes by which an engine refuses what mmroute answers."""
    if context := _CONTEXT.search(refusal):
        yield _context_remedy(model, int(context[1] or context[2]))
    elif limit := _LIMIT.search(refusal):
        yield _limit_remedy(model, Modality(limit[2]), int(limit[1]))
    elif pixels := _PIXELS.search(refusal):
        why = f"The engine takes images of at most {pixels[1]} pixels."
        yield Remedy(Cause.LIMIT, why, f"VLLM_MAX_IMAGE_PIXELS={pixels[1]}")
    why = f"The engine refuses this request ({refusal}), and mmroute answers it."
    yield Remedy(Cause.ORACLE_REFUSES, why)


def mmroute_refuses(
    model: ResolvedModel, request: Request, routing: Routing, context: int | None
) -> Iterator[Remedy]:
    """The settings by which mmroute refuses what an engine answers; none if it is another cause."""
    if routing.reason is Reason.PROMPT_TOO_LONG and context:
        yield _context_remedy(model, context)
    elif routing.reason is Reason.TOO_MANY_ITEMS:
        for modality, items in _prepared(model, request).items.items():
            if len(items) > model.engine.limits.max_items[modality]:
                yield _limit_remedy(model, modality, len(items))


def _prepared(model: ResolvedModel, request: Request) -> Prepared:
    """The request of a model that takes any number of items."""
    media = {m: replace(rules, max_items=sys.maxsize) for m, rules in model.media.items()}
    return prepare(replace(model, media=media), request)


def _context_remedy(model: ResolvedModel, tokens: int) -> Remedy:
    return Remedy(
        Cause.CONTEXT,
        f"The engine's context has {tokens} tokens, and mmroute used {model.max_model_len}.",
        f"--max-model-len {tokens}",
    )


def _limit_remedy(model: ResolvedModel, modality: Modality, count: int) -> Remedy:
    return Remedy(
        Cause.LIMIT,
        f"The engine takes {count} {modality}s in one prompt, and mmroute used "
        f"{model.engine.limits.max_items[modality]} as the most.",
        merged("limit-mm-per-prompt", as_vllm(model.settings).limits, {modality.value: count}),
    )
