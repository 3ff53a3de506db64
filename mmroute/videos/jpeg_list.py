"""Videos that a client sends as single frames: ``data:video/jpeg;base64,FRAME,FRAME,...``.

Source: vLLM ``multimodal/media/video.py`` (`VideoMediaIO.load_base64`).
"""

from __future__ import annotations

import io
from typing import Final

import pybase64

from mmroute.errors import InexactError, Reason
from mmroute.images.header import read_header
from mmroute.requests.items import VideoSize

_FPS: Final = 1.0


def read_frame_list(text: str, most: int) -> tuple[VideoSize, bytes]:
    """The size of the video that the engine reads from a list of frames, and the list as bytes."""
    frames = text.split(",") if most < 0 else text.split(",", most)[:most]
    sizes = set()
    for frame in frames:
        try:
            data = pybase64.b64decode(frame, validate=True)
        except ValueError as error:
            raise _unreadable(f"a frame is not strict base64 ({error})") from error
        sizes.add(read_header(io.BytesIO(data)).upright)
    if len(sizes) != 1:
        raise _unreadable(f"its frames have {len(sizes)} sizes")
    ((width, height),) = sizes
    return VideoSize(width, height, len(frames), _FPS, frame_list=True), text.encode()


def _unreadable(why: str) -> InexactError:
    return InexactError(Reason.ITEM_UNREADABLE, f"the engine cannot read the list of frames: {why}")
