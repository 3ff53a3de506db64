"""How an engine calls all items of one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mmroute.errors import invalid, shown
from mmroute.items import (
    Identity,
    IdentityForm,
    ImageSize,
    Item,
    Modality,
    VideoFile,
    VideoSize,
    size_of,
)

if TYPE_CHECKING:
    from mmroute.geometry.frame_sampling import Frames
    from mmroute.model.resolved import ResolvedModel
    from mmroute.request import Request

__all__ = ["identities"]


def identities(
    model: ResolvedModel,
    request: Request,
    items: Mapping[Modality, Sequence[Item]],
    frames_of: Callable[[VideoSize], Frames],
) -> dict[Modality, list[Identity | None]]:
    """The identity of each item, in the order of `items`; None where too little is known of it.

    Args:
        model: of the engine.
        request: with its overrides.
        items: of the request, by modality.
        frames_of: the frames of a video that are decoded.

    Raises:
        InexactError: `invalid_request` for names that the engine refuses or confuses; what the
            engine's `Identify` raises.
    """
    found: dict[Modality, list[Identity | None]] = {}
    first_of: dict[str, Item] = {}
    for modality, listed in items.items():
        form = model.media[modality].identity
        if form is IdentityForm.VISION_CHUNK:
            _check_all_or_none_named(modality, listed)
        overrides = request.overrides_of(modality)
        found[modality] = []
        for item in listed:
            if isinstance(item, ImageSize) and item.uuid is None:
                found[modality].append(None)  # the commonest item, at the least cost
                continue
            identity = model.engine.identify(
                item,
                overrides=overrides,
                frames=frames_of(item.size) if isinstance(item, VideoFile) else None,
                model_id=model.model_id,
                form=form,
            )
            if identity is not None:
                if request.lora is not None and model.engine.lora_in_identities:
                    identity = replace(identity, value=f"{request.lora.name}:{identity.value}")
                _check_same_size(identity, first_of.setdefault(identity.value, item), item)
            found[modality].append(identity)
    return found


def _check_all_or_none_named(modality: Modality, items: Sequence[Item]) -> None:
    if len({size_of(item).uuid is None for item in items}) > 1:
        raise invalid(f"the engine wants a uuid for all {modality}s of a request, or for none")


def _check_same_size(identity: Identity, first: Item, second: Item) -> None:
    if first is second:
        return
    one, other = replace(size_of(first), uuid=None), replace(size_of(second), uuid=None)
    if one != other:
        raise invalid(
            f"the uuid {shown(identity.value)} names items of two sizes, {one} and {other}; the "
            "engine caches by it, and would reuse the first one's tokens"
        )
