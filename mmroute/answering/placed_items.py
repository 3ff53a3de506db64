"""The items of an answer: the place and the identity of each."""

from __future__ import annotations

from typing import NamedTuple

from mmroute.errors import InexactError, Reason
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


def nameless(placeholder: PlaceholderRange) -> InexactError:
    """The error of an item whose identity is not known."""
    number, modality = placeholder.item + 1, placeholder.modality
    match modality:
        case Modality.IMAGE:
            return InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                f"the engine's name for image {number} is not known: only its size is given, or "
                "the engine hashes its decoded pixels; give the `uuid` or the entry of "
                "`mm_hashes` that the engine gets for it, or its file if only the size is given",
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
