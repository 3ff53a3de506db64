"""The items of an answer: the place, the identity and the image hash of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from mmroute.errors import InexactError, Reason
from mmroute.hashing import ImageHash
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity, Modality


class PlacedItem(NamedTuple):
    """An item in the expanded prompt.

    Attributes:
        placeholder: its place in the prompt.
        identity: the engine's name for the item; None if it cannot be computed.
    """

    placeholder: PlaceholderRange
    identity: Identity | None


def identified(
    items: Iterable[tuple[PlaceholderRange, Identity | None]],
) -> list[tuple[PlaceholderRange, Identity]]:
    """The items, each with its identity.

    Raises:
        InexactError: `image_identity_unknown` or `item_identity_unknown`: one has none.
    """
    pairs = []
    for placeholder, identity in items:
        if identity is None:
            raise _nameless(placeholder)
        pairs.append((placeholder, identity))
    return pairs


def with_image_hashes(
    items: Iterable[tuple[PlaceholderRange, Identity]], item_hash: Callable[[str], ImageHash]
) -> list[tuple[PlaceholderRange, ImageHash]]:
    """The items, each with the image hash from which its pad value is made.

    Args:
        items: the items, as `identified` returns them.
        item_hash: computes the image hash of an identity.

    Raises:
        InexactError: `image_identity_unknown` for an empty uuid.
    """
    pairs = []
    for placeholder, identity in items:
        if not identity.value:
            raise InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                f"image {placeholder.item + 1} has an empty uuid, which has no hash; give another",
            )
        pairs.append((placeholder, item_hash(identity.value)))
    return pairs


def _nameless(placeholder: PlaceholderRange) -> InexactError:
    """The error of an item whose identity is not known."""
    number, modality = placeholder.item + 1, placeholder.modality
    match modality:
        case Modality.IMAGE:
            return InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                f"the engine's name for image {number} is not known: only its size is given, or "
                "the engine hashes its decoded pixels, as for Kimi-K2.5; give the `uuid` that the "
                "engine gets for it, or its file if only the size is given",
            )
        case Modality.VIDEO:
            why = "it is not given as a file, or its frames are smaller than its file"
        case Modality.AUDIO:
            why = "the engine hashes the decoded samples of audio"
    return InexactError(
        Reason.ITEM_IDENTITY_UNKNOWN,
        f"the engine's name for {modality} {number} is not known: {why}; give the `uuid` that the "
        "engine gets for it",
    )
