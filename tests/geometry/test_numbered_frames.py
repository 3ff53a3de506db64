"""InternVL's frames: what a tokenizer must know of them."""

from __future__ import annotations

import numpy as np
import pytest

from mmroute.errors import InexactError, Reason
from mmroute.geometry import ModelContext, TokenIds
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.video_frames import NumberedFrames
from mmroute.requests.items import VideoSize


def _characters(text: str) -> TokenIds:
    return np.array([ord(character) for character in text], dtype=np.uint32)


def test_a_feature_position_that_is_several_tokens_is_refused() -> None:
    geometry = NumberedFrames(
        frame="Frame{number}: ",
        fill="<video>",
        end="",
        separator="\n",
        tokens_per_frame=256,
        sampler=Sampler.OPENCV,
    )
    context = ModelContext(max_model_len=4096, encode=_characters)
    with pytest.raises(InexactError) as refused:
        list(geometry.replacements([VideoSize(64, 48, 8, 25.0)], context))
    assert refused.value.reason is Reason.SPECIAL_TOKEN_SPLIT
