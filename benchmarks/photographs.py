"""JPEG files of which every one is new, and costs as much to decode as any photograph.

A picture is made once. Each file has the same picture, and a comment of its own in front of it:
whoever knows a file by its bytes has not seen it before.
"""

from __future__ import annotations

import base64
import io
from functools import cache

from PIL import Image

SIZE = (1280, 720)
_START = b"\xff\xd8"
_COMMENT = b"\xff\xfe"


@cache
def _picture(quality: int) -> bytes:
    bands = [Image.effect_noise(SIZE, 40 + 10 * band) for band in range(3)]
    file = io.BytesIO()
    Image.merge("RGB", bands).save(file, "JPEG", quality=quality)
    return file.getvalue()


def photograph_url(number: int, quality: int = 60) -> str:
    """A 1280x720 photograph as a data URL, 300 kB by default; another file for each number."""
    comment = str(number).encode()
    segment = _COMMENT + (len(comment) + 2).to_bytes(2, "big") + comment
    data = _START + segment + _picture(quality).removeprefix(_START)
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
