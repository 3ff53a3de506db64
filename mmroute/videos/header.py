"""The error for video files whose header does not decide their token IDs.

Source: vLLM ``multimodal/video_decoders/opencv.py``, which asks OpenCV's FFmpeg reader.
"""

from __future__ import annotations

from mmroute.errors import InexactError, Reason


def not_predictable(why: str) -> InexactError:
    """The error for a video whose frames are not certain from its header."""
    return InexactError(
        Reason.VIDEO_NOT_PREDICTABLE,
        f"the header does not tell what the engine will read: {why}; if the video's size, frame "
        "count and rate are known for sure, give them in `videos`",
    )
