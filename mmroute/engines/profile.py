"""Backend profiles: engines and versions whose behaviour is matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mmroute.errors import ModelError, Reason, nearest

__all__ = ["BACKENDS", "BackendProfile", "find_backend"]


@dataclass(frozen=True, slots=True)
class BackendProfile:
    """What one engine does whatever the model.

    Attributes:
        name: as the caller gives it.
        version: what the profile was checked on.
        max_images: images in one prompt; more are refused.
        max_image_pixels: of one image; a larger one is refused.
        max_decoded_bytes: of all images of a request, at 4 bytes a pixel.
        min_encoder_cache: features of one image that the engine's encoder cache holds even
            if no image of the model needs as many by its own configuration.
        applies_exif_orientation: whether an image is counted as it is shown, or as it is
            stored in its file.
    """

    name: str
    version: str
    max_images: int
    max_image_pixels: int
    max_decoded_bytes: int
    min_encoder_cache: int
    applies_exif_orientation: bool


BACKENDS: Final[Mapping[str, BackendProfile]] = {
    # Defaults of --limit-mm-per-prompt, VLLM_MAX_IMAGE_PIXELS,
    # VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES, and of the scheduler's smallest batch of tokens.
    "vllm": BackendProfile(
        "vllm",
        "0.33.0",
        max_images=999,
        max_image_pixels=178_956_970,
        max_decoded_bytes=715_827_880,
        min_encoder_cache=2048,
        applies_exif_orientation=True,
    ),
}
"""The profiles by name."""


def find_backend(name: str) -> BackendProfile:
    """The profile of that name.

    Raises:
        ModelError: `unknown_backend`.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    near = nearest(name, BACKENDS)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"There is no backend profile {name!r}; there are: {', '.join(sorted(BACKENDS))}.{hint}",
    )
