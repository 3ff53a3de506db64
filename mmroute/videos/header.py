"""What a video file's header says of it, as far as it decides token IDs.

Source: vLLM 0.33.0 ``multimodal/video_decoders/opencv.py``, which asks OpenCV's FFmpeg reader.
"""

from __future__ import annotations

from mmroute.errors import InexactError, Reason


def not_predictable(found: str) -> InexactError:
    """The error of a video whose frames cannot be told from its header."""
    return InexactError(
        Reason.VIDEO_NOT_PREDICTABLE,
        f"the header does not tell what the engine will read: {found}; give the video's numbers in "
        "`videos` if they are known for sure",
    )
