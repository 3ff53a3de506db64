"""The fields of an item that the engine's processor gives beside tensors: patches, sizes, times.

A disaggregated engine gets these fields in place of pixels. Which ones a family has, and by which
name, is said by ``[image.metadata]`` of its spec. Source: vLLM
``entrypoints/scale_out/token_in_token_out/mm_features.py`` (`_encode_metadata_items`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry.grid import Count

if TYPE_CHECKING:
    import numpy.typing as npt


FieldValue: TypeAlias = "npt.NDArray[Any] | list[Any] | int"
"""An array in the place of a tensor, with its dtype and shape; a list of them; or plain numbers."""

FieldKind: TypeAlias = Literal["batched", "shared", "flat"]
"""Whether each item has a value of its own, all items of a request have one, or each has its part
of one that is cut along its first dimension."""

FieldForm: TypeAlias = Literal["tensor", "filled", "tensors", "numbers"]
"""Whether a field is a tensor, one that zeros fill up to the longest of the request, a list of
tensors, or numbers that are no tensor."""

FIELD_TYPES: Final = ("int64", "int32", "bool", "float32", "model")
"""The engine's names for the types of a tensor's numbers; ``model``: the one it computes with."""

BFLOAT16: Final = "bfloat16"
"""A type that numpy lacks."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How a field of an item is made."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    value: str  # a name of `VALUES`
    kind: FieldKind = "batched"
    form: FieldForm = "tensor"
    dtype: str = "int64"  # one of `FIELD_TYPES`
    keep_on_cpu: bool = True  # the engine's flag of this name
    declared: bool = False  # whether the engine's ``embedding_fields`` call it metadata

    def formed(self, value: Any) -> FieldValue:
        """The value in its form."""
        match self.form:
            case "tensor" | "filled":
                return self._tensor(value)
            case "tensors":
                return [self._tensor(part) for part in value]
        return value if isinstance(value, int) else list(value)

    def _tensor(self, value: Any) -> npt.NDArray[Any]:
        if self.dtype == "model":
            raise InexactError(
                Reason.METADATA_UNKNOWN,
                "config.json has no dtype of bfloat16 or float16, so the type that the engine "
                "computes with is not known; give its --dtype",
            )
        if self.dtype != BFLOAT16:
            return np.array(value, self.dtype)
        bits = np.array(value, np.float32).view(np.uint32)
        bits = bits + 0x7FFF + (bits >> 16 & 1)  # to the nearest, of two the even one
        return np.asarray(bits & 0xFFFF0000, np.uint32).view(np.float32)


class MetadataField(NamedTuple):
    """A field of an item."""

    value: FieldValue  # an array, a list of arrays, or plain numbers
    kind: FieldKind  # the engine's name for how items share it
    keep_on_cpu: bool  # the engine's flag of this name
    # Whether the engine wants it beside embeddings, which it then needs nothing else for.
    declared: bool
    # The engine's name for the type of its numbers. Those of `bfloat16` are a float32 array,
    # because numpy has no such type.
    dtype: str
    # The length of the value's first dimension for each item of the request, if it is `flat`; of
    # another kind 1 for each.
    lengths: tuple[int, ...]


ItemMetadata: TypeAlias = "Mapping[str, MetadataField]"
"""The fields of an item by name, in the engine's order."""


@dataclass(frozen=True, slots=True)
class Source:
    """An item, its parts, and who counted and wrote them."""

    item: Any
    count: Count
    grid: Any
    layout: Any


def metadata_of(rules: Mapping[str, FieldRule], items: Sequence[Source]) -> list[ItemMetadata]:
    """The fields of each item of a request."""
    columns: dict[str, list[MetadataField]] = {}
    for name, rule in rules.items():
        made = [VALUES[rule.value](item) for item in items]
        if rule.form == "filled":
            longest = max(map(len, made), default=0)
            made = [[*value, *[0] * (longest - len(value))] for value in made]
        values = [rule.formed(value) for value in made]
        lengths = tuple(np.shape(value)[0] if rule.kind == "flat" else 1 for value in values)
        columns[name] = [
            MetadataField(value, rule.kind, rule.keep_on_cpu, rule.declared, rule.dtype, lengths)
            for value in values
        ]
    return [{name: column[n] for name, column in columns.items()} for n in range(len(items))]


def _merged(of: Source) -> tuple[int, int, int]:
    merge = of.grid.merge_size
    return 1, of.count.rows * merge, of.count.columns * merge


def _row_ends(of: Source) -> list[bool]:
    columns, tiles = of.count.columns, of.count.rows * of.count.columns
    return [n % columns == 0 and n < tiles for n in range(1, tiles + 1)]


def _roles(of: Source) -> Any:
    tokens = of.layout.replacement(of.count, of.item, 0, None).token_ids
    return tokens.astype(np.int64) - of.layout.start


def _row_roles(of: Source) -> list[int]:
    return [0, *([*[1] * (of.count.columns - 1), 2] * of.count.rows), 3]


def _by_grid(name: str) -> Callable[[Source], Any]:
    return lambda of: getattr(of.grid, name)(of.item)


_BY_GRID: Final = (  # methods of grids, of an item
    "cells",  # rows and columns of cells
    "chunk_frames",  # the frames of each chunk of an audio
    "chunks",  # the number of these chunks
    "crop_count",  # the number of crops, with the whole image
    "frame_mask",  # a one for each frame of an audio, and zeros as far as the last stacked one
    "marked",  # the number of tokens, with those around the crops
    "mel_frames",  # the number of frames of an audio
    "mel_mask",  # a one for each of them, and zeros as far as the audio is filled up
    "merges",  # whether the encoder merges patches
    "padded",  # height and width in pixels after the padding
    "padded_tokens",  # the number of tokens of as much
    "parts",  # rows and columns of patches of each part
    "patch_count",  # the number of patches
    "patch_rows",  # rows and columns of patches
    "patches",  # frames, rows and columns of patches
    "pooled",  # the number of feature positions of the crops
    "samples",  # the number of samples that the model is given
    "seconds_per_pair",  # from one pair of frames to the next
)
VALUES: Final[Mapping[str, Callable[[Source], Any]]] = {
    **{name: _by_grid(name) for name in _BY_GRID},
    # Rows and columns of crops, or columns and rows.
    "crops": lambda of: of.grid.crops(of.item, of.count),
    "crops_across": lambda of: of.grid.crops(of.item, of.count)[::-1],
    # A switch. A request with another value is refused.
    "false": lambda _: False,
    # The token of a feature position.
    "fill": lambda of: np.ravel(of.layout.fill)[0],
    # Of a video: width and height, and feature positions, of each row; the number of rows.
    "frame_sizes": lambda of: [(of.item.width, of.item.height)] * of.count.rows,
    "frame_tokens": lambda of: [of.count.tile] * of.count.rows,
    "frames": lambda of: of.count.rows,
    # Frames, rows and columns of patches, where a count has the rows and columns of tokens.
    "merged": _merged,
    "merged_sides": lambda of: _merged(of)[1:],
    # Height and width in pixels after the resize.
    "resized": lambda of: of.grid.resized(of.count),
    # What each token stands for, counted from the first one.
    "roles": _roles,
    # Whether each tile is the last of a row that another follows.
    "row_ends": _row_ends,
    # What each token of one ID stands for: 0 for the first, 1 in a row, 2 at its end, 3 the last.
    "row_roles": _row_roles,
    # Height and width in pixels, or a list of width and height.
    "size": lambda of: (of.item.height, of.item.width),
    "size_across": lambda of: ((of.item.width, of.item.height),),
    # The feature positions of a tile.
    "tile": lambda of: of.count.tile,
    # The number of tiles, their rows and columns, and their number with the whole image.
    "tile_count": lambda of: of.count.rows * of.count.columns,
    "tile_grid": lambda of: (max(1, of.count.rows), max(1, of.count.columns)),
    "tiles": lambda of: of.count.rows * of.count.columns + bool(of.count.whole),
    # The seconds of a video's rows.
    "times": lambda of: of.count.times,
    # The number of feature positions.
    "total": lambda of: of.count.total,
    "zero": lambda _: 0,
}
"""What a spec may name."""

OF_GRIDS: Final[Mapping[str, str]] = {
    **{name: name for name in _BY_GRID},
    "crops": "crops", "crops_across": "crops", "merged": "merge_size", "merged_sides": "merge_size",
    "resized": "resized",
}  # fmt: skip
"""Values that not every grid gives, each with what a grid has that does."""
