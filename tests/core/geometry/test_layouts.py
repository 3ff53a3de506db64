"""What layouts write, and what a tokenizer must know for it."""

from __future__ import annotations

import numpy as np
import pytest

from mmroute.errors import InexactError, Reason
from mmroute.geometry import Count, ModelContext
from mmroute.geometry.layout import Around
from mmroute.geometry.layouts.tile_text import SizedText, Tiles, TileText
from mmroute.token_ids import TokenIds


def _characters(text: str) -> TokenIds:
    return np.array([ord(character) for character in text], dtype=np.uint32)


def test_a_feature_position_that_is_several_tokens_is_refused() -> None:
    layout = TileText(fill=(60, 118), tile="Frame{row}: <v", between_rows="\n")
    context = ModelContext(max_model_len=4096, encode=_characters)
    with pytest.raises(InexactError) as refused:
        layout.replacement(Count(8, 1, 256), None, 0, context)
    assert refused.value.reason is Reason.SPECIAL_TOKEN_SPLIT


@pytest.mark.parametrize(
    ("count", "text", "features"),
    [
        (Count(12, 1, whole=12), "[12*1|" + "v" * 24 + "]", "v"),
        (Count(1, 2, whole=1), "[1*2|vvv]", "v"),
        (Count(1, 1, whole=1), "[1*1|vv]", "1"),  # of two as frequent the smaller ID
        (Count(0, 5), "[0*5|]", "*"),
    ],
)
def test_features_are_the_most_frequent_token(count: Count, text: str, features: str) -> None:
    context = ModelContext(max_model_len=4096, encode=_characters)
    placed = SizedText(ord("v"), "[{rows}*{columns}|v]").replacement(count, None, 0, context)
    assert placed.token_ids.tolist() == _characters(text).tolist()
    assert placed.embed_runs is not None
    flags = [flag for flag, length in placed.embed_runs for _ in range(length)]
    assert flags == [character == features for character in text]


@pytest.mark.parametrize(
    ("layout", "cut"),
    [
        (
            Tiles(9, Around((1,), (2,)), Around((3,), (4,)), between_rows=(5,)),
            [1, 9, 2, 1, 9, 2, 5, 1],
        ),
        (Tiles(9, Around((), ()), Around((3,), ()), between_tiles=(6,)), [9, 6, 9, 9, 6, 9, 3, 9]),
        (
            Tiles(
                9, Around((), (1,)), Around((2,), ()), Around((3,), (4,)),
                whole_first=True, opening=(7,), closing=(8,),
            ),
            [7, 3, 9, 4, 9, 1, 9, 1, 9, 1, 9, 1, 8],
        ),
    ],
    ids=["rows", "tiles", "the whole first"],
)  # fmt: skip
def test_words_stand_between_tiles_and_rows_and_not_behind_the_last(
    layout: Tiles, cut: list[int]
) -> None:
    context = ModelContext(max_model_len=4096, encode=_characters)
    found = layout.replacement(Count(2, 2, 1, 1), None, 0, context).token_ids.tolist()
    assert found[: len(cut)] == cut
    assert found.count(9) == 5


def test_an_item_that_is_not_cut_has_words_of_its_own() -> None:
    layout = Tiles(9, Around((), (1,)), Around((2,), ()), Around((3,), (4,)), closing=(8,))
    context = ModelContext(max_model_len=4096, encode=_characters)
    assert layout.replacement(Count(whole=2), None, 0, context).token_ids.tolist() == [2, 9, 9, 8]
