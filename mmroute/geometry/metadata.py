"""What the engine's processor says of an item beside its tensors: numbers of patches, sizes, times.

A disaggregated engine gets these fields in place of pixels. Which ones a family has, and by which
name, is said by ``[image.metadata]`` of its spec. Source: vLLM
``entrypoints/scale_out/token_in_token_out/mm_features.py`` (`_encode_metadata_items`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Source:
    """What the values of an item are made of.

    Attributes:
        item: the size or length of the item.
        count: its parts.
        grid: the grid that counted them.
        layout: the layout that placed them.
    """

    item: Any
    count: Count
    grid: Any
    layout: Any


def _integers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def _scalar(value: int) -> npt.NDArray[np.int64]:
    return np.array(value, np.int64)


def _merged(of: Source) -> FieldValue:
    merge: int = of.grid.merge_size
    return _integers(1, of.count.rows * merge, of.count.columns * merge)


VALUES: Final[Mapping[str, Callable[[Source], FieldValue]]] = {
    "fill": lambda of: _scalar(of.layout.fill),
    "merged": _merged,
    "padded": lambda of: _integers(*of.grid.padded(of.item)),
    "patch_count": lambda of: _scalar(math.prod(of.grid.patches(of.item))),
    "patches": lambda of: _integers(*of.grid.patches(of.item)),
    "size": lambda of: _integers(of.item.height, of.item.width),
    "tile_grid": lambda of: _integers(max(1, of.count.rows), max(1, of.count.columns)),
    "tiles": lambda of: _scalar(of.count.rows * of.count.columns + bool(of.count.whole)),
    "times": lambda of: list(of.count.times),
}
"""The values that a spec may name. Integers are int64.

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
