"""Metadata of items as vLLM's render and generate routes write it: base64 of msgpack.

Source: vLLM ``entrypoints/scale_out/token_in_token_out/mm_serde.py``, ``v1/serial_utils.py``
(`MsgpackEncoder`), ``multimodal/inputs.py`` (`BaseMultiModalField` and its kinds).
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
import numpy as np

from mmroute.answering.routing import Routing
from mmroute.geometry.metadata import ItemMetadata, MetadataField

_RAW: Final = 3  # CUSTOM_TYPE_RAW_VIEW


def mm_metadata(routing: Routing) -> dict[str, list[str | None]] | None:
    """The items' metadata by modality, in their order; None if the family has none.

    Raises:
        InexactError: as `Routing.metadata`.
    """
    found: dict[str, list[str | None]] = {}
    for placed, item in zip(routing.placeholders, routing.metadata(), strict=True):
        found.setdefault(placed.modality.value, []).append(_encoded(item) if item else None)
    return {modality: items for modality, items in found.items() if any(items)} or None


def _encoded(item: ItemMetadata) -> str:
    packed = msgspec.msgpack.encode({name: _element(field) for name, field in item.items()})
    return base64.b64encode(packed).decode("ascii")


def _element(field: MetadataField) -> dict[str, Any]:
    value: Any = field.value
    if isinstance(value, np.ndarray):
        value = value.dtype.name, value.shape, msgspec.msgpack.Ext(_RAW, value.tobytes())
    kind: dict[str, Any] = {"keep_on_cpu": field.keep_on_cpu}
    if field.kind == "shared":
        kind["batch_size"] = field.batch_size
    return {"data": value, "field": (field.kind, kind)}
