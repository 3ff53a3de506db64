"""Requests that every model must answer, and checks of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.errors import Reason
from mmroute.geometry import Replacement
from mmroute.model.resolved import ResolvedModel
from mmroute.placement import PlaceholderRange
from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.requests.items import Image, ImageSize, Modality
from mmroute.requests.request import Request

_QUESTION: Final = "What is in this picture?"
# One size in each orientation; no side is a multiple of a patch size.
_SIZES: Final = (ImageSize(641, 479), ImageSize(300, 899))
# Reasons for which a healthy model may have no answer to a probe.
_LIMITS: Final = frozenset({
    Reason.CHAT_RENDERER_UNSUPPORTED, Reason.CHAT_TEMPLATE_MISSING,
    Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE, Reason.PROMPT_TOO_LONG,
    Reason.UNPROVED_VERSION, Reason.UNSUPPORTED_ENGINE_SETTING,
})  # fmt: skip


def _probes(model: ResolvedModel) -> Iterator[tuple[str, Request]]:
    """The requests for a model by name: text, one image, two images; as a prompt and as a chat."""
    text = {"type": "text", "text": _QUESTION}
    yield "text prompt", Request(prompt=_QUESTION)
    yield "text chat", Request(messages=[{"role": "user", "content": [text]}])
    spec, rules = model.family.image, model.media.get(Modality.IMAGE)
    if spec is None:
        return
    for count in (1, 2) if rules is None else range(1, min(2, rules.max_items) + 1):
        name, images = f"{count} image{'s' * (count > 1)}", _SIZES[:count]
        parts = [{"type": "image"}] * count + [text]
        messages = [{"role": "user", "content": parts}]
        yield f"chat with {name}", Request(messages=messages, images=images)
        placed = [written_image(model, number) for number in range(1, count + 1)]
        if not spec.only_in_chats and None not in placed:
            prompt = "".join(filter(None, placed)) + _QUESTION
            yield f"prompt with {name}", Request(prompt=prompt, images=images)


def written_image(model: ResolvedModel, number: int) -> str | None:
    """The text that the engine writes for an image into a chat; None if no prompt may have it."""
    spec, rules = model.family.image, model.media.get(Modality.IMAGE)
    if spec is None or spec.chat_text is None or rules is None:
        return None
    text = spec.chat_text.replace("{n}", str(number))
    return text if set(rules.target) <= set(model.encode_plain(text).tolist()) else None


def run_probes(model: ResolvedModel) -> tuple[list[str], list[str], list[str]]:
    """Answer every probe twice, and check what must hold for the answers."""
    exact: list[str] = []
    problems: list[str] = []
    limits: list[str] = []
    for name, request in _probes(model):
        first, second = answer(model, request), answer(model, request)
        if first.reason is not None:
            listed = limits if first.reason in _LIMITS else problems
            listed.append(f"{name} is inexact: {first.reason}: {first.message}")
        elif not second.exact or not _same(first, second):
            problems.append(f"{name} has two different answers")
        elif wrong := _wrong(model, request.images, first):
            problems.append(f"{name}: {wrong}")
        else:
            exact.append(name)
    if not exact and not problems and not model.engine.release.unproved:
        problems.append("no built-in request has an exact answer")
    return exact, problems, limits


def token_ids_of_spec(model: ResolvedModel) -> dict[str, int]:
    """The IDs of the family spec's tokens, by name."""
    names = {f"{name}_token_id": name for name in model.family.tokens}
    return {
        names[origin.name]: origin.value
        for origin in model.origins
        if origin.name in names and isinstance(origin.value, int)
    }


def _same(first: Routing, second: Routing) -> bool:
    ids = np.array_equal(first.token_ids, second.token_ids)
    return ids and first.placeholders == second.placeholders


def _wrong(model: ResolvedModel, images: Sequence[Image], routing: Routing) -> str | None:
    """The first error in an exact answer, in words; None for a right answer."""
    ids = routing.token_ids
    if len(ids) and int(ids.max()) > model.max_token_id:
        return f"has the ID {ids.max()}, and the vocabulary ends at {model.max_token_id}"
    counted: list[Replacement] = []
    if images:
        geometry = model.media[Modality.IMAGE].geometry
        counted += geometry.replacements(images, model.context)
    if [p.item for p in routing.placeholders] != list(range(len(counted))):
        return f"has {len(routing.placeholders)} ranges for {len(counted)} images"
    features = np.zeros(len(ids), dtype=np.bool_)
    end = 0
    for placed, replacement in zip(routing.placeholders, counted, strict=True):
        if wrong := _range_wrong(model, placed, replacement, end=end, limit=len(ids)):
            return f"image {placed.item + 1} {wrong}"
        end = placed.offset + placed.length
        features[placed.offset : end] |= _is_embed(placed)
    known = set(token_ids_of_spec(model).values())
    fills = set(ids[features].tolist())
    filled = np.isin(ids, list(fills & known))
    if known and not np.array_equal(features, filled):
        num_filled, num_features = int(filled.sum()), int(features.sum())
        return (
            f"has {num_filled} image tokens and {num_features} positions for features, and these "
            "are not the same positions"
        )
    return None


def _range_wrong(
    model: ResolvedModel,
    placed: PlaceholderRange,
    replacement: Replacement,
    *,
    end: int,
    limit: int,
) -> str | None:
    shared = isinstance(model.placement, MergedBlankLines)
    if placed.offset < end - shared or placed.offset + placed.length > limit:
        return f"stands at {placed.offset}, over its neighbour or the end of the prompt"
    if placed.length != len(replacement.token_ids):
        return f"takes {placed.length} tokens; the geometry counts {len(replacement.token_ids)}"
    embeds = int(_is_embed(placed).sum())
    if embeds != replacement.num_embeds:
        return f"has {embeds} features; the geometry counts {replacement.num_embeds}"
    return None


def _is_embed(placed: PlaceholderRange) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if placed.embed_runs is None:
        return np.ones(placed.length, dtype=np.bool_)
    values, counts = zip(*placed.embed_runs, strict=True)
    return np.repeat(np.array(values, dtype=np.bool_), counts)
