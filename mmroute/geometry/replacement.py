"""What takes one placeholder's place in the expanded prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from mmroute.errors import InexactError, Reason, quoted
from mmroute.requests.items import VideoSize

if TYPE_CHECKING:
    import numpy.typing as npt

    from mmroute.geometry.frame_sampling import Frames

TokenIds: TypeAlias = "npt.NDArray[np.uint32]"
"""Token IDs: one contiguous uint32 array of shape (n,)."""

_MOST_TOKENS: Final = 1 << 23
_RUN: Final = 1 << 14

EmbedRuns: TypeAlias = tuple[tuple[bool, int], ...]
"""Run lengths of `is_embed`: (True, n) for n feature positions, (False, n) for n others."""


ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


class Replacement(NamedTuple):
    """The token IDs of one item.

    Attributes:
        token_ids: all of them, shape (n,); not to be written to.
        embed_runs: which of them receive features; None if all do.
        target: the token IDs whose place it takes; None for the target of its modality.
    """

    token_ids: TokenIds
    embed_runs: EmbedRuns | None = None
    target: tuple[int, ...] | None = None

    @property
    def num_embeds(self) -> int:
        """How many positions receive features."""
        if self.embed_runs is None:
            return len(self.token_ids)
        return sum(count for is_embed, count in self.embed_runs if is_embed)


class ModelContext(NamedTuple):
    """What a geometry may know beside a request's items.

    Attributes:
        max_model_len: tokens of the longest context.
        encode: the model's tokenizer, without special tokens, for replacements that are text.
        processor_cache_off: whether the engine keeps no processed items.
    """

    max_model_len: int
    encode: Callable[[str], TokenIds]
    processor_cache_off: bool = False


class CachePlan(NamedTuple):
    """What the engine plans its encoder cache with, beside a model's own values.

    Attributes:
        max_model_len: tokens of the longest context.
        largest_image: features of the largest image that it plans with; 0 without images.
        takes_images: whether a request may have an image.
    """

    max_model_len: int
    largest_image: int = 0
    takes_images: bool = True

    @property
    def beside_an_image(self) -> int:
        """Tokens of the longest context that the largest image leaves; it may be negative."""
        return self.max_model_len - self.largest_image * self.takes_images

    def pairs_like_images(self, most: int) -> int:
        """Features of the largest video whose pairs of frames are counted as images are.

        Args:
            most: pairs that the engine plans with, if the context holds them.

        Source: vLLM 0.33.0 ``model_executor/models/qwen2_vl.py``
        (``Qwen2VLProcessingInfo.get_max_video_tokens``).
        """
        pairs = self.max_model_len // max(1, self.largest_image)
        return min(most, max(1, pairs)) * self.largest_image


class Overrides(NamedTuple):
    """What a request changes of how its items are processed.

    Attributes:
        processor: its ``mm_processor_kwargs``.
        media_io: its ``media_io_kwargs`` of this modality.
    """

    processor: Mapping[str, Any]
    media_io: Mapping[str, Any]


class Geometry(Protocol[ItemT_contra]):
    """Items of one modality to replacements: pure functions of integers, no I/O.

    It gets all items of a request at once, because some models share one budget among them.
    """

    def max_embeds(self, plan: CachePlan, /) -> int:
        """Feature positions of the largest item that the engine plans its encoder cache with.

        It is the engine's own estimate, which is not always the most that an item can have.
        """

    def with_overrides(self, overrides: Overrides) -> Geometry[ItemT_contra]:
        """The geometry under a request's overrides.

        Raises:
            InexactError: `unsupported_processor_kwargs`.
        """

    def replacements(
        self, items: Sequence[ItemT_contra], context: ModelContext
    ) -> Iterator[Replacement]:
        """One replacement for each item, made when it is taken.

        Raises:
            InexactError: `image_refused`.
        """


class VideoGeometry(Geometry[VideoSize], Protocol):
    """Videos to replacements. Identities cover which frames are decoded, so it must tell that."""

    def frames(self, video: VideoSize) -> Frames:
        """The frames of a video that the engine decodes.

        Raises:
            InexactError: `item_refused` if it decodes none.
        """


AnyGeometry: TypeAlias = Geometry[Any]
"""A geometry of some modality."""


def check_count(count: int) -> None:
    """Refuse what fits no context before it takes memory: a request may ask for any number.

    Raises:
        InexactError: `item_too_large`.
    """
    if count > _MOST_TOKENS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE, f"an item would have {quoted(count)} tokens; no engine holds it"
        )


def fill(token_id: int, count: int) -> Replacement:
    """``count`` feature positions in one run.

    Raises:
        InexactError: `item_too_large`.
    """
    if count <= _RUN:
        return Replacement(_run(token_id)[:count])
    check_count(count)
    return Replacement(np.full(count, token_id, dtype=np.uint32))


@lru_cache(maxsize=64)
def _run(token_id: int) -> TokenIds:
    """What most images are a piece of: no copy for each."""
    run = np.full(_RUN, token_id, dtype=np.uint32)
    run.setflags(write=False)
    return run


def framed(start_id: int, image_id: int, count: int, end_id: int) -> Replacement:
    """``count`` feature positions between a start and an end token.

    >>> framed(1, 10, 3, 2).token_ids.tolist()
    [1, 10, 10, 10, 2]

    Raises:
        InexactError: `item_too_large`.
    """
    check_count(count)
    token_ids = np.full(count + 2, image_id, dtype=np.uint32)
    token_ids[0], token_ids[-1] = start_id, end_id
    return Replacement(token_ids, ((False, 1), (True, count), (False, 1)))


def with_features(token_ids: TokenIds, image_id: int) -> Replacement:
    """A replacement whose feature positions are those of one token.

    >>> with_features(np.array([1, 10, 10, 2], dtype=np.uint32), 10).embed_runs
    ((False, 1), (True, 2), (False, 1))
    """
    is_embed = token_ids == image_id
    starts = [0, *(np.flatnonzero(np.diff(is_embed)) + 1).tolist()]
    ends = [*starts[1:], len(token_ids)]
    runs = [(bool(is_embed[start]), end - start) for start, end in zip(starts, ends, strict=True)]
    return Replacement(token_ids, tuple(runs))


def rows(*, image_id: int, break_id: int, end_id: int, columns: int, count: int) -> Replacement:
    """``count`` rows of ``columns`` feature positions, each closed by a break, the last by an end.

    >>> rows(image_id=10, break_id=12, end_id=13, columns=2, count=2).token_ids.tolist()
    [10, 10, 12, 10, 10, 13]

    Raises:
        InexactError: `item_too_large`.
    """
    check_count(columns * count)
    row = np.full(columns + 1, image_id, dtype=np.uint32)
    row[-1] = break_id
    token_ids = np.tile(row, count)
    token_ids[-1] = end_id
    return Replacement(token_ids, ((True, columns), (False, 1)) * count)


def repeated(text: TokenIds, image_id: int, counts: Sequence[int]) -> Replacement:
    """An encoded text whose k-th image token is repeated ``counts[k]`` times, each a feature.

    A token that is split off the text as a whole is encoded the same however often it is repeated.

    >>> repeated(np.array([7, 10, 8, 10], dtype=np.uint32), 10, [2, 1]).token_ids.tolist()
    [7, 10, 10, 8, 10]

    Raises:
        InexactError: `special_token_split` if the text has not one image token for each count;
            `item_too_large`.
    """
    places = (text == image_id).nonzero()[0]
    if len(places) != len(counts):
        raise InexactError(
            Reason.SPECIAL_TOKEN_SPLIT,
            f"the text around {len(counts)} parts of an item has the token {image_id} "
            f"{len(places)} times",
        )
    check_count(sum(counts))
    repeats = np.ones(len(text), dtype=np.int64)
    repeats[places] = counts
    return with_features(np.repeat(text, repeats), image_id)
