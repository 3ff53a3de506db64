"""Models whose identities cover how many items a request has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mmroute import ImageSize, Normalizer

# vLLM 0.33.0: MultiModalHasher.hash_kwargs("blake3", mm_hash="a", cropping=...)
CUT = "51c70bd2078bbae71cd4e65198473aa81a6c14c217c9f71ce7e791d8b74bba63"
WHOLE = "82d9691e9040589684a1188dde71ae43e33717d7a54fb9c01853366c66800d29"


@pytest.mark.parametrize(("name", "most"), [("small-deepseek-vl2", 2), ("small-unlimited-ocr", 1)])
def test_an_identity_covers_whether_images_are_cut(
    name: str, most: int, normalizer: Callable[[str], Normalizer]
) -> None:
    for count in (1, 2, 3):
        images = [ImageSize(900, 700, uuid="a")] * count
        routing = normalizer(name).normalize(prompt="<image>" * count, images=images)
        expected = CUT if count <= most else WHOLE
        assert [str(one) for one in routing.identities] == [expected] * count
