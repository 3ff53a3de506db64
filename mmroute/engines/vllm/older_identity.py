"""Identities of items before vLLM 0.33, and before 0.31, where digests were not framed.

Source: vLLM 0.32.0 ``multimodal/image.py``; vLLM 0.30.0 ``multimodal/hasher.py`` and
``multimodal/media/image.py``; 0.28.0, 0.26.0, 0.23.0, 0.18.0 and 0.15.0 likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from mmroute.engines.vllm.identity import BACKGROUND, HASHERS, item_identity, media_io_of
from mmroute.geometry import Overrides
from mmroute.requests.items import Identity, IdentityForm, IdentitySource, ImageFile, Item


def framed_identity(
    item: Item,
    *,
    flags: Mapping[str, bool] = MappingProxyType({}),  # noqa: ARG001 - not to be handed on
    **known: Any,
) -> Identity | None:
    """As `item_identity`, for 0.31 and 0.32.

    Pictures that are RGB were left as they are, even those with a transparent colour. The flags
    were not hashed. Source: vLLM 0.32.0 ``model_executor/models/h2ovl.py``.
    """
    if isinstance(item, ImageFile) and item.mode == "RGB":
        item = replace(item, converted=False)
    return item_identity(item, **known)


def unframed_identity(
    item: Item,
    *,
    overrides: Overrides,
    model_id: str,
    form: IdentityForm = IdentityForm.FILE,
    algorithm: str = "blake3",
    covers_conversion: bool = True,
    flags: Mapping[str, bool] = MappingProxyType({}),
    sorts_arguments: bool = True,
    **_frames: Any,
) -> Identity | None:
    """See `mmroute.engine.Identify`; for 0.13 to 0.30.

    The identity is known for items with a uuid and for files of images, without overrides. Before
    0.27 it did not cover the conversion of a picture (`covers_conversion`). Before 0.16 the model
    string came before the item (`sorts_arguments`).
    """
    if overrides.processor or media_io_of(item, form, overrides) or flags:
        return None
    uuid = item.size.uuid
    if uuid is not None:
        return Identity(uuid, IdentitySource.UUID)
    if form not in (IdentityForm.FILE, IdentityForm.UNCONVERTED_FILE):
        return None
    if not isinstance(item, ImageFile):
        return None
    converted = covers_conversion and item.mode != "RGB" and form is IdentityForm.FILE
    arguments = [b"image", *_image(item, converted=converted)], [b"model_id", model_id.encode()]
    hasher = HASHERS[algorithm]()
    for argument in arguments if sorts_arguments else reversed(arguments):
        for chunk in argument:
            hasher.update(chunk)
    return Identity(hasher.hexdigest(), IdentitySource.CONTENT_HASH)


def _image(image: ImageFile, *, converted: bool) -> Iterator[bytes]:
    if not converted:
        yield from (b"image", image.data)
        return
    yield from (b"image.io_config.image_mode", b"RGB")
    for index, value in enumerate(BACKGROUND):
        yield f"image.io_config.rgba_background_color.{index}".encode()
        yield np.array(value).tobytes()
    yield from (b"image.data", image.data)
