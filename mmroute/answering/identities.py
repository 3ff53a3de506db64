"""The identities that an engine gives to the items of one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmroute.geometry import Overrides
from mmroute.requests.items import (
    Identity,
    ImageFile,
    ImageSize,
    Item,
    Items,
    Modality,
    VideoFile,
    VideoSize,
)

if TYPE_CHECKING:
    from mmroute.geometry.frame_sampling import Frames
    from mmroute.model.resolved import ResolvedModel
    from mmroute.placement import PlaceholderRange
    from mmroute.requests.request import Request

_NO_OVERRIDES: Final = Overrides({}, {})
_NO_FLAGS: Final[Mapping[str, bool]] = {}
_MOST_KEPT: Final = 64  # identities of one image


def identities_of(
    model: ResolvedModel,
    request: Request,
    items: Items,
    placeholders: Sequence[PlaceholderRange],
    frames_of: Callable[[VideoSize], Frames],
) -> tuple[Identity | None, ...]:
    """The identity of the item at each placeholder; None if it cannot be computed.

    The engine gives the k-th identity of a modality to the k-th range of that modality.

    Args:
        model: the engine's model.
        request: the client's request, with its overrides.
        items: the request's items.
        placeholders: the places of the items, by position.
        frames_of: returns the frames of a video that are decoded.

    Raises:
        InexactError: an error of the engine's `Identify` or `check_names`.
    """
    if request.mm_hashes and model.engine.read_mm_hash is not None:
        return _by_mm_hashes(model, request.mm_hashes, placeholders)
    waiting = {modality: iter(listed) for modality, listed in items.items()}
    covered: dict[Modality, tuple[Overrides, Mapping[str, bool]]] = {}
    named: list[tuple[Item, Identity]] = []
    identities: list[Identity | None] = []
    for placed in placeholders:
        modality = placed.modality
        item = next(waiting[modality])
        if type(item) is ImageSize and item.uuid is None:
            identities.append(None)  # the commonest item, at the least cost
            continue
        if modality not in covered:
            flag = model.media[modality].identity_flag
            flags = {flag.name: len(items[modality]) <= flag.most_items} if flag else _NO_FLAGS
            covered[modality] = _overrides(model, request, modality), flags
        identity = _identity(model, item, frames_of, *covered[modality])
        if identity is not None:
            if request.lora is not None and model.engine.lora_in_identities:
                identity = identity._replace(value=f"{request.lora.name}:{identity.value}")
            named.append((item, identity))
        identities.append(identity)
    if named:
        forms = {modality: model.media[modality].identity for modality in items}
        model.engine.check_names(named, items, forms)
    return tuple(identities)


def _identity(
    model: ResolvedModel,
    item: Item,
    frames_of: Callable[[VideoSize], Frames],
    overrides: Overrides,
    flags: Mapping[str, bool],
) -> Identity | None:
    form = model.media[item.modality].identity
    known, key = None, None
    if isinstance(item, ImageFile) and item.size.uuid is None and not any(overrides):
        known, key = item.identities, (model.engine.identify, model.model_id, form, *flags.values())
    if known and key in known:
        return known[key]
    identity = model.engine.identify(
        item,
        overrides=overrides,
        frames=frames_of(item.size) if isinstance(item, VideoFile) else None,
        model_id=model.model_id,
        form=form,
        flags=flags,
    )
    if known is not None and identity is not None:
        if len(known) >= _MOST_KEPT:  # a server may replace its models for ever
            known.clear()
        known[key] = identity
    return identity


def _overrides(model: ResolvedModel, request: Request, modality: Modality) -> Overrides:
    """The request's overrides, without the processor's arguments that identities do not cover."""
    kwargs, media_io = request.mm_processor_kwargs, request.media_io_kwargs
    if not kwargs and not media_io:
        return _NO_OVERRIDES
    if unnamed := model.media[modality].unnamed & kwargs.keys():
        kwargs = {name: value for name, value in kwargs.items() if name not in unnamed}
    return Overrides(kwargs, media_io)


def _by_mm_hashes(
    model: ResolvedModel, entries: Sequence[Any], placeholders: Sequence[PlaceholderRange]
) -> tuple[Identity | None, ...]:
    """The identities in ``mm_hashes``. The engine ignores a list of another length."""
    read = model.engine.read_mm_hash
    if read is None or len(entries) != len(placeholders):
        return (None,) * len(placeholders)
    forms = [model.media[placed.modality].identity for placed in placeholders]
    return tuple(map(read, entries, forms))
