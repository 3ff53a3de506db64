"""What the engine's processor says of an item beside its tensors: numbers of patches, sizes, times.

A disaggregated engine gets these fields in place of pixels. Which ones a family has, and by which
name, is said by ``[image.metadata]`` of its spec. Source: vLLM
``entrypoints/scale_out/token_in_token_out/mm_features.py`` (`_encode_metadata_items`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from mmroute.geometry.grid import Count

FieldValue: TypeAlias = "npt.NDArray[Any] | list[float]"
"""An array in the place of a tensor, with its dtype and shape; or numbers that are no tensor."""

FieldKind: TypeAlias = Literal["batched", "shared"]
"""Whether each item has a value of its own, or all items of a request have one."""


class FieldRule(NamedTuple):
    """How a field of an item is made.

    Attributes:
        value: a name of `VALUES`.
        kind: the engine's name for how items share it.
        keep_on_cpu: the engine's flag of this name.
        declared: whether the engine's ``embedding_fields`` call it metadata.
    """

    value: str
    kind: FieldKind = "batched"
    keep_on_cpu: bool = True
    declared: bool = False


class MetadataField(NamedTuple):
    """A field of an item.

    Attributes:
        value: an array, or a list of numbers.
        kind: the engine's name for how items share it.
        keep_on_cpu: the engine's flag of this name.
        declared: whether the engine wants it beside embeddings, which it then needs nothing else
            for.
        batch_size: the number of items that share it, of a request.
    """

    value: FieldValue
    kind: FieldKind
    keep_on_cpu: bool
    declared: bool
    batch_size: int


ItemMetadata: TypeAlias = "Mapping[str, MetadataField]"
"""The fields of an item by name, in the engine's order."""


def _integers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def _scalar(value: int) -> npt.NDArray[np.int64]:
    return np.array(value, np.int64)


def _patches(item: Any, _: Count, grid: Any, __: Any) -> FieldValue:
    return _integers(*grid.patches(item))


def _patch_count(item: Any, _: Count, grid: Any, __: Any) -> FieldValue:
    return _scalar(math.prod(grid.patches(item)))


def _merged(_: Any, count: Count, grid: Any, __: Any) -> FieldValue:
    return _integers(1, count.rows * grid.merge_size, count.columns * grid.merge_size)


def _padded(item: Any, _: Count, grid: Any, __: Any) -> FieldValue:
    return _integers(*grid.padded(item))


def _size(item: Any, _: Count, __: Any, ___: Any) -> FieldValue:
    return _integers(item.height, item.width)


def _tiles(_: Any, count: Count, __: Any, ___: Any) -> FieldValue:
    return _scalar(count.rows * count.columns + bool(count.whole))


def _tile_grid(_: Any, count: Count, __: Any, ___: Any) -> FieldValue:
    return _integers(max(1, count.rows), max(1, count.columns))


def _fill(_: Any, __: Count, ___: Any, layout: Any) -> FieldValue:
    return _scalar(layout.fill)


def _times(_: Any, count: Count, __: Any, ___: Any) -> FieldValue:
    return list(count.times)


VALUES: Final[Mapping[str, Callable[[Any, Count, Any, Any], FieldValue]]] = {
    "fill": _fill,
    "merged": _merged,
    "padded": _padded,
    "patch_count": _patch_count,
    "patches": _patches,
    "size": _size,
    "tile_grid": _tile_grid,
    "tiles": _tiles,
    "times": _times,
}
"""What a spec may name, made of an item, its count, the grid and the layout. Integers are int64.

``fill``: the token of a feature position. ``patches``: frames, rows and columns of patches, as the
grid gives them; ``merged``: of an image whose count has the rows and columns of its tokens;
``patch_count``: their number. ``size``: height and width in pixels; ``padded``: those after the
grid's padding. ``tiles``: the number of tiles, with the whole image if it stands beside them;
``tile_grid``: their rows and columns. ``times``: the seconds of a video's rows, no tensor.
"""

OF_GRIDS: Final[Mapping[str, str]] = {
    "merged": "merge_size", "padded": "padded", "patch_count": "patches", "patches": "patches",
}  # fmt: skip
"""Values that not every grid gives, each with what a grid has that does."""
