"""Causes that lie in the images: another count, orientation or placement.

Each is a hypothesis that is tried: the request is answered again with the part replaced, and the
cause is found if this gives the oracle's answer, every ID of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.answering.pipeline import Prepared, expand, geometry_of, prepare
from mmroute.errors import InexactError
from mmroute.geometry import AnyGeometry, Replacement, TokenIds
from mmroute.parity.alternatives import alternatives
from mmroute.parity.cases import Range
from mmroute.parity.causes import Cause, Diagnosis, Difference
from mmroute.placement.targets import RenderedByTokenizer
from mmroute.requests.items import ImageSize, Modality

__all__ = ["orientation", "placement_order", "unexplained_count", "wrong_count"]

_MOST_PERMUTED = 5
_MOST_ALTERNATIVES = 4


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of the request, and how we count them."""

    difference: Difference
    prepared: Prepared
    geometry: AnyGeometry
    sizes: tuple[ImageSize, ...]

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        return tuple(insertion.replacement for insertion in self.prepared.insertions)

    def counted(
        self, sizes: Sequence[ImageSize], geometry: AnyGeometry | None = None
    ) -> tuple[Replacement, ...]:
        """The replacements of other sizes, or by another geometry."""
        context = self.difference.model.context
        return tuple((geometry or self.geometry).replacements(sizes, context))

    def explain_with(self, others: Sequence[Replacement]) -> bool:
        """Whether the oracle's answer is ours with these replacements."""
        difference = self.difference
        if isinstance(difference.model.placement, RenderedByTokenizer):
            # The renderer has its own geometry; what it rendered can be taken apart instead.
            return np.array_equal(_spliced(difference, others), difference.theirs)
        pairs = zip(self.prepared.insertions, others, strict=True)
        insertions = [insertion._replace(replacement=other) for insertion, other in pairs]
        try:
            expansion = expand(difference.model, self.prepared._replace(insertions=insertions))
        except InexactError:
            return False
        return np.array_equal(expansion.token_ids, difference.theirs)

    def first_changed(self, others: Sequence[Replacement]) -> int:
        pairs = enumerate(zip(self.replacements, others, strict=True))
        changed = (k for k, (a, b) in pairs if not np.array_equal(a.token_ids, b.token_ids))
        return next(changed, 0)


def _images(difference: Difference) -> _Images | None:
    if not difference.our_ranges:
        return None
    prepared = prepare(difference.model, difference.request)
    sizes = tuple(
        ImageSize(found.width, found.height)
        for found in [item.size for item in prepared.items[Modality.IMAGE]]
        if isinstance(found, ImageSize)
    )
    geometry = geometry_of(difference.model, difference.request, Modality.IMAGE)
    return _Images(difference, prepared, geometry, sizes)


def _spliced(difference: Difference, replacements: Sequence[Replacement]) -> TokenIds:
    parts = []
    end = 0
    for (offset, length), replacement in zip(difference.our_ranges, replacements, strict=True):
        parts += [difference.ours[end:offset], replacement.token_ids]
        end = offset + length
    answer: TokenIds = np.concatenate([*parts, difference.ours[end:]])
    return answer


def orientation(difference: Difference) -> Diagnosis | None:
    """The oracle sees an image with its sides swapped."""
    images = _images(difference)
    if images is None:
        return None
    every = range(len(images.sizes))
    for turned in ({*every}, *({k} for k in every)):
        sizes = [
            ImageSize(size.height, size.width) if k in turned else size
            for k, size in enumerate(images.sizes)
        ]
        try:
            others = images.counted(sizes)
        except InexactError:  # refused with these sizes, so this is not the cause
            continue
        if images.explain_with(others):
            k = images.first_changed(others)
            size = images.sizes[k]
            return difference.found(
                Cause.ORIENTATION,
                f"Image {k + 1} is counted as {size} by mmroute and as {sizes[k]} by the oracle. "
                "Is its EXIF orientation applied by only one of them, or are width and height "
                "swapped?",
            )
    return None


def wrong_count(difference: Difference) -> Diagnosis | None:
    """Another value of one field of the geometry gives the oracle's answer."""
    images = _images(difference)
    if images is None:
        return None
    ours = sum(len(replacement.token_ids) for replacement in images.replacements)
    wanted = ours + len(difference.theirs) - len(difference.ours)
    fitting = []
    context = difference.model.context
    for other in alternatives(images.geometry, images.sizes, context, wanted):
        replacements = images.counted(other.sizes or images.sizes, other.geometry)
        if images.explain_with(replacements):
            fitting.append((other, replacements))
    if not fitting:
        return None
    first, replacements = fitting[0]
    k = images.first_changed(replacements)
    named = [other.name + f" ({other.note})" * bool(other.note) for other, _ in fitting]
    shown = ", or ".join(named[:_MOST_ALTERNATIVES])
    subject = "The size is seen with " if first.sizes is not None else "With "
    return difference.found(
        Cause.WRONG_COUNT,
        f"Image {k + 1} of {images.sizes[k]} has {len(images.replacements[k].token_ids)} tokens "
        f"in mmroute and {len(replacements[k].token_ids)} in the oracle. {subject}{shown} "
        f"{type(images.geometry).__name__} gives the oracle's answer.",
        tuple(other.name for other, _ in fitting),
    )


def placement_order(difference: Difference) -> Diagnosis | None:
    """The same images and the same text, in another order."""
    images = _images(difference)
    if images is None or len(difference.ours) != len(difference.theirs):
        return None
    for order in _orders(len(images.sizes)):
        if images.explain_with([images.replacements[k] for k in order]):
            shown = ", ".join(str(k + 1) for k in order)
            return difference.found(
                Cause.PLACEMENT_ORDER,
                f"The oracle's placeholders take the images in the order {shown}; mmroute's take "
                "the k-th image each, in the placement rule's own order.",
            )
    theirs = difference.their_ranges
    if theirs is None or len(theirs) != len(difference.our_ranges):
        return None
    pieces = Counter(_pieces(difference.ours, difference.our_ranges))
    same_pieces = pieces == Counter(_pieces(difference.theirs, theirs))
    rest = _rest(difference.ours, difference.our_ranges)
    if same_pieces and np.array_equal(rest, _rest(difference.theirs, theirs)):
        return difference.found(
            Cause.PLACEMENT_ORDER,
            f"The same text and images are put together otherwise: mmroute's images begin at "
            f"{[offset for offset, _ in difference.our_ranges][:8]}, the oracle's at "
            f"{[offset for offset, _ in theirs][:8]}.",
        )
    return None


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    if count <= _MOST_PERMUTED:
        yield from itertools.islice(itertools.permutations(range(count)), 1, None)
        return
    natural = tuple(range(count))
    yield from (natural[::-1], (*natural[1:], 0), (count - 1, *natural[:-1]))
    for k in range(count - 1):
        yield (*natural[:k], k + 1, k, *natural[k + 2 :])


def _pieces(ids: TokenIds, ranges: Sequence[Range]) -> Iterator[bytes]:
    return (ids[offset : offset + length].tobytes() for offset, length in ranges)


def _rest(ids: TokenIds, ranges: Sequence[Range]) -> TokenIds:
    kept = np.ones(len(ids), dtype=bool)
    for offset, length in ranges:
        kept[offset : offset + length] = False
    rest: TokenIds = ids[kept]
    return rest


def unexplained_count(difference: Difference) -> Diagnosis | None:
    """Only an image's length differs, and nothing that was tried gives the oracle's."""
    images = _images(difference)
    ours, theirs = difference.our_ranges, difference.their_ranges
    if theirs is None and len(ours) == 1:  # it stands where all around it is as with us
        ((offset, length),) = ours
        theirs = ((offset, length + len(difference.theirs) - len(difference.ours)),)
    if images is None or theirs is None or len(theirs) != len(ours):
        return None
    changed = (
        k for k, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one[1] != other[1]
    )
    k = next(changed, None)
    if k is None or theirs[k][1] < 0:
        return None
    if not np.array_equal(_rest(difference.ours, ours), _rest(difference.theirs, theirs)):
        return None
    return difference.found(
        Cause.WRONG_COUNT,
        f"The image at {ours[k][0]}, number {k + 1} of {len(ours)} (sizes "
        f"{', '.join(map(str, images.sizes[:8]))}), has {ours[k][1]} tokens in mmroute and "
        f"{theirs[k][1]} in the oracle. No other value of one field of "
        f"{type(images.geometry).__name__} that was tried gives this.",
    )
