"""The identities that an engine gives to the items of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from mmroute.geometry import Geometry, Overrides
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import (
    Identity,
    IdentityFlag,
    ImageFile,
    ImageSize,
    Item,
    Items,
    Modality,
    VideoFile,
)
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.model.resolved import ResolvedModel

_NO_FLAGS: Final[Mapping[str, bool]] = {}


def identities_of(
    model: ResolvedModel,
    request: Request,
    items: Items,
    geometries: Mapping[Modality, Geometry],
    placeholders: Sequence[PlaceholderRange],
) -> tuple[Identity | None, ...]:
    """The identity of the item at each placeholder; None if it cannot be computed."""
    if not placeholders:
        return ()
    naming = model.engine.naming
    each = [model.media[placed.modality].identity for placed in placeholders]
    covered = model.hashing.settings.model_id
    of_request = naming.of_request(request, items, each, covered)
    if of_request is not None:
        return of_request
    waiting: dict[Modality, Iterator[Identity | None]] = {}
    named: list[tuple[Item, Identity]] = []
    for modality, listed in items.items():
        if all(type(item) is ImageSize and item.uuid is None for item in listed):
            waiting[modality] = repeat(None)  # the commonest items, at the least cost
            continue
        identities = _of_modality(model, request, modality, listed, geometries[modality])
        waiting[modality] = iter(identities)
        pairs = zip(listed, identities, strict=True)
        named += [(item, identity) for item, identity in pairs if identity is not None]
    if named:
        forms = {modality: model.media[modality].identity for modality in items}
        naming.check(named, items, forms)
    return tuple([next(waiting[placed.modality]) for placed in placeholders])


def _of_modality(
    model: ResolvedModel,
    request: Request,
    modality: Modality,
    items: Sequence[Item],
    geometry: Geometry,
) -> list[Identity | None]:
    """The identities of the items of one modality, in their order."""
    naming, rules = model.engine.naming, model.media[modality]
    flag = rules.identity_flag
    flags = {flag.name: _holds(flag, len(items), geometry)} if flag else _NO_FLAGS
    overrides = Overrides(request.mm_processor_kwargs, request.media_io_kwargs)
    covered = model.hashing.settings.model_id
    key = (naming.identify, covered, rules.identity, *flags.values())
    by_lora = f"{request.lora.name}:" if request.lora and naming.lora_first else ""
    identities: list[Identity | None] = []
    for item in items:
        known = None
        if isinstance(item, ImageFile) and item.size.uuid is None and not any(overrides):
            known = item.identities
        identity = known.get(key) if known else None
        if identity is None:
            identity = naming.identify(
                item,
                overrides=overrides,
                frames=geometry.frames(item.size) if isinstance(item, VideoFile) else None,
                model_id=covered,
                form=rules.identity,
                flags=flags,
            )
            if known is not None and identity is not None and isinstance(item, ImageFile):
                item.kept(key, identity)
        if by_lora and identity is not None:
            identity = identity._replace(value=f"{by_lora}{identity.value}")
        identities.append(identity)
    return identities


def _holds(flag: IdentityFlag, count: int, geometry: Geometry) -> bool:
    number: bool = not flag.number or getattr(geometry.grid, flag.number)
    return number and count <= flag.most_items
