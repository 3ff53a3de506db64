"""LLaVA-1.5: every image becomes the vision encoder's full grid, whatever its size.

Sources: vLLM 0.33.0 ``model_executor/models/llava.py``, ``clip.py``, ``siglip.py`` and
``vision.py`` (`get_num_selected_vision_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

VisionEncoder = Literal["clip_vision_model", "siglip_vision_model"]
SelectStrategy = Literal["default", "full", "class"]

_CLASS_TOKENS: Final[Mapping[str, int]] = {"clip_vision_model": 1, "siglip_vision_model": 0}


@dataclass(frozen=True, slots=True)
class EncoderGrid(OneByOne[ImageSize]):
    """The tokens of a vision encoder, the same number for every image.

    Attributes:
        vision_encoder: CLIP puts a class token before its patches, SigLIP does not.
        image_size: side of the encoder's input, in pixels.
        patch_size: side of a patch, in pixels.
        select_strategy: which of the encoder's outputs the model keeps.
    """

    vision_encoder: VisionEncoder
    image_size: int
    patch_size: int
    select_strategy: SelectStrategy

    def max_embeds(self, _: CachePlan) -> int:
        return self._tokens()

    def count(self, _: ImageSize) -> Count:
        return Count(whole=self._tokens())

    def _tokens(self) -> int:
        side = self.image_size // self.patch_size
        return selected_tokens(self.vision_encoder, side, self.select_strategy)


def selected_tokens(encoder: VisionEncoder, grid: int, strategy: SelectStrategy) -> int:
    """How many of a vision encoder's outputs become image tokens.

    >>> selected_tokens("clip_vision_model", 24, "default")
    576
    >>> selected_tokens("siglip_vision_model", 27, "full")
    729
    """
    tokens = grid * grid + _CLASS_TOKENS[encoder]
    return {"default": tokens - 1, "full": tokens, "class": 1}[strategy]
