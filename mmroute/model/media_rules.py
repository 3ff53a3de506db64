"""How a model takes the items of one modality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmroute.geometry import AnyGeometry, Overrides
from mmroute.items import IdentityForm

__all__ = ["MediaRules"]


@dataclass(frozen=True, slots=True)
class MediaRules:
    """How the items of one modality are counted, and what they replace.

    Attributes:
        geometry: items to replacements.
        overridden: the geometry under a request's overrides.
        target: the token IDs whose place an item takes, unless its replacement says otherwise.
        max_embeds: features of the largest item that the engine plans its encoder cache with.
        max_items: in one prompt.
        only_in_chats: whether the engine refuses items beside a prompt.
        identity: what the engine hashes of an item that has no name.
    """

    geometry: AnyGeometry
    overridden: Callable[[Overrides], AnyGeometry]
    target: tuple[int, ...]
    max_embeds: int
    max_items: int
    only_in_chats: bool
    identity: IdentityForm
