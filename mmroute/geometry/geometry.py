"""Makes the replacements of items of one modality: a grid counts, a layout makes tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Any, Final, NoReturn

from mmroute.errors import InexactError, Reason
from mmroute.geometry.arguments import Arguments
from mmroute.geometry.frame_sampling import Frames, sampling_of
from mmroute.geometry.grid import AnyGrid, CachePlan, Count, OneByOne, SampledVideos
from mmroute.geometry.layout import Layout
from mmroute.geometry.metadata import FieldRule, ItemMetadata, Source, metadata_of
from mmroute.geometry.replacement import ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize, Modality, VideoSize

_MOST_SIZES: Final = 4096


@dataclass(frozen=True, slots=True)
class Geometry:
    """The geometry of one modality of a family."""

    grid: AnyGrid
    layout: Layout
    accepts: Arguments
    fields: Mapping[str, FieldRule] | None = None  # of metadata; None: they are not known
    _seen: dict[tuple[int, int], Count] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _count: Callable[[ImageSize], Count] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count_one = None
        if self.accepts.modality is Modality.IMAGE and isinstance(self.grid, OneByOne):
            counts: object = type(self.grid).counts
            count_one = self.grid.count if counts is OneByOne.counts else None
        object.__setattr__(self, "_count", count_one)

    def with_overrides(self, overrides: Overrides) -> Geometry:
        """The geometry under a request's overrides."""
        kwargs = overrides.processor
        if self.accepts.modality is Modality.AUDIO:
            kwargs = {**kwargs, **overrides.media_io}  # none of which was observed
        grid = self.accepts.applied(self.grid, kwargs)
        if isinstance(grid, SampledVideos):
            grid = replace(grid, sampling=sampling_of(grid.sampler, overrides.media_io))
        return Geometry(grid, self.layout, self.accepts, self.fields)

    def replacements(self, items: Sequence[Any], context: ModelContext) -> Iterator[Replacement]:
        """Yield the replacement of each item."""
        counts = self._counts(items, context)
        return map(self.layout.replacement, counts, items, count(), repeat(context))

    def metadata(self, items: Sequence[Any], context: ModelContext) -> list[ItemMetadata]:
        """The fields of each item that the engine's processor has beside tensors."""
        if self.fields is None:
            raise InexactError(
                Reason.METADATA_UNKNOWN,
                f"the family spec has no [{self.accepts.modality}.metadata]: what the engine's "
                "processor has beside its tensors was not compared",
            )
        counts = self._counts(items, context)
        return metadata_of(
            self.fields,
            [Source(*one, self.grid, self.layout) for one in zip(items, counts, strict=True)],
        )

    def _counts(self, items: Sequence[Any], context: ModelContext) -> Iterable[Count]:
        if self._count is None:
            return self.grid.counts(items, context)
        return self._counts_of_images(self._count, items)

    def _counts_of_images(
        self, count_one: Callable[[ImageSize], Count], images: Sequence[ImageSize]
    ) -> Iterator[Count]:
        """Yield the count of each image. Images of one size are counted once."""
        seen = self._seen
        for image in images:
            size = image.width, image.height
            found = seen.get(size)
            if found is None:
                if len(seen) >= _MOST_SIZES:
                    seen.clear()
                found = seen[size] = count_one(image)
            yield found

    def frames(self, video: VideoSize) -> Frames:
        """The frames of a video that the engine decodes. Identities cover them."""
        if not isinstance(self.grid, SampledVideos | RefusedItems):
            raise TypeError(f"{type(self.grid).__name__} counts no videos")
        return self.grid.frames(video)


@dataclass(frozen=True, slots=True)
class RefusedItems:
    """A grid that refuses every item. The model still answers requests without items."""

    why: str  # with the engine's setting that was not observed, and the remedy

    def largest_item(self, _: CachePlan) -> int:
        """The least possible number, so that no cache is planned larger than the engine's."""
        return 1

    def counts(self, _: Sequence[Any], __: ModelContext) -> NoReturn:
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, self.why)

    def frames(self, _: VideoSize) -> NoReturn:
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, self.why)
