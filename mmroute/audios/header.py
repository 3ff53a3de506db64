"""The error for audio files whose header does not decide token IDs."""

from __future__ import annotations

from mmroute.errors import InexactError, Reason


def not_predictable(why: str) -> InexactError:
    """The error for audio whose length is not certain from its header."""
    return InexactError(
        Reason.AUDIO_NOT_PREDICTABLE,
        f"the header does not tell what the engine will decode: {why}; if the number of samples "
        "and the rate are known for sure, give them in `audios`",
    )
