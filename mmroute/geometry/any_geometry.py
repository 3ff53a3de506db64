"""The protocol of the geometry of one modality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mmroute.geometry.frame_sampling import Frames
    from mmroute.geometry.grid import CachePlan
    from mmroute.geometry.metadata import ItemMetadata
    from mmroute.geometry.replacement import ModelContext, Overrides, Replacement
    from mmroute.requests.items import VideoSize


class AnyGeometry(Protocol):
    """Counts the items of a model, and makes their replacements. Pure: no I/O."""

    def max_embeds(self, plan: CachePlan, /) -> int:
        """The number of features of the largest item for which the engine plans its cache."""

    def with_overrides(self, overrides: Overrides) -> AnyGeometry:
        """The geometry under a request's overrides.

        Raises:
            InexactError: `unsupported_processor_kwargs`.
        """

    def replacements(self, items: Sequence[Any], context: ModelContext) -> Iterator[Replacement]:
        """Yield the replacement of each item.

        Raises:
            InexactError: as `mmroute.geometry.grid.Grid` and `mmroute.geometry.layout.Layout`.
        """

    def metadata(self, items: Sequence[Any], context: ModelContext) -> Sequence[ItemMetadata]:
        """The fields of each item that the engine's processor has beside tensors.

        Raises:
            InexactError: `metadata_unknown` where they were not compared with the engine's.
        """

    def frames(self, video: VideoSize) -> Frames:
        """The frames of a video that the engine decodes. Identities cover them.

        Raises:
            InexactError: `item_refused` if it decodes none; `video_not_predictable`.
        """
