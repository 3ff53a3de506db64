"""Gemma 3n: every image is the same soft tokens, between start, end and blank lines.

Source: vLLM 0.33.0 ``model_executor/models/gemma3n_mm.py``; transformers 5.20.2
``models/gemma3n/processing_gemma3n.py`` (`full_image_sequence`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import check_absent, check_ignored
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class FixedSequence(OneByOne[ImageSize]):
    """Builds one replacement for images of any size.

    Attributes:
        image_token_id: a feature position.
        start_token_id: what opens an image.
        end_token_id: what closes it.
        tokens_per_image: feature positions.
        blank_line: token IDs of the blank line around an image.
    """

    image_token_id: int
    start_token_id: int
    end_token_id: int
    tokens_per_image: int
    blank_line: tuple[int, ...]

    def max_embeds(self, _: CachePlan) -> int:
        return self.tokens_per_image

    def with_overrides(self, overrides: Overrides) -> FixedSequence:
        """No count changes, and a ``shortest_edge`` is refused.

        Images of several shapes then make the processor fail.
        """
        check_absent(overrides.processor, "do_center_crop")
        check_ignored(overrides.processor)
        return self

    def replacement(self, _image: ImageSize, _: ModelContext) -> Replacement:
        before = [*self.blank_line, self.start_token_id]
        after = [self.end_token_id, *self.blank_line]
        run = FramedRun(before, self.tokens_per_image, after)
        return framed_runs(self.image_token_id, [run])
