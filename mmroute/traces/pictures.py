"""Whether two files show the same picture."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
import pybase64
from PIL import Image

__all__ = ["same_picture"]

_SIDE: Final = 64  # pixels to which both are scaled
_MOST_DIFFERENCE: Final = 6.0  # of 255, on average


def same_picture(first: bytes | str, second: bytes | str) -> bool:
    """Whether two files or data URLs are pictures of one size that look alike.

    It decodes both, so it is nothing for the request path.
    """
    try:
        one, other = (Image.open(io.BytesIO(_data(file))) for file in (first, second))
        if one.size != other.size:
            return False
        pixels = [
            np.asarray(image.convert("RGB").resize((_SIDE, _SIDE)), dtype=np.float32)
            for image in (one, other)
        ]
    except (OSError, ValueError, Image.DecompressionBombError):
        return False  # no pictures
    return float(np.abs(pixels[0] - pixels[1]).mean()) <= _MOST_DIFFERENCE


def _data(file: bytes | str) -> bytes:
    if isinstance(file, bytes):
        return file
    head, _, encoded = file.partition(",")
    return pybase64.b64decode(encoded) if head.startswith("data:") else b""
