"""Metadata of items as vLLM's render and generate routes write it: base64 of msgpack.

Source: vLLM ``entrypoints/scale_out/token_in_token_out/mm_serde.py``, ``v1/serial_utils.py``
(`MsgpackEncoder`), ``multimodal/inputs.py`` (`BaseMultiModalField` and its kinds).
"""

from __future__ import annotations

import base64
from itertools import accumulate, pairwise
from typing import Any, Final

import msgspec
import numpy as np

from mmroute.engines.forwarding import Answer
from mmroute.geometry.metadata import BFLOAT16, ItemMetadata, MetadataField

_RAW: Final = 3  # CUSTOM_TYPE_RAW_VIEW


def mm_metadata(routing: Answer) -> dict[str, list[str | None]] | None:
    """The items' metadata by modality, in their order; None if the family has none."""
    found: dict[str, list[str | None]] = {}
    for (placed, identity), item in zip(routing.items, routing.metadata(), strict=True):
        modality = (identity and identity.modality) or placed.modality.value
        found.setdefault(modality, []).append(_encoded(item) if item else None)
    return {modality: items for modality, items in found.items() if any(items)} or None


def _encoded(item: ItemMetadata) -> str:
    packed = msgspec.msgpack.encode({name: _element(field) for name, field in item.items()})
    return base64.b64encode(packed).decode("ascii")


def _element(field: MetadataField) -> dict[str, Any]:
    kind: dict[str, Any] = {"keep_on_cpu": field.keep_on_cpu}
    if field.kind == "shared":
        kind["batch_size"] = len(field.lengths)
    elif field.kind == "flat":
        ends = [*accumulate(field.lengths, initial=0)]
        kind |= {"slices": [[[*part, None]] for part in pairwise(ends)], "dim": 0}
    return {"data": _data(field.value, field.dtype), "field": (field.kind, kind)}


def _data(value: Any, dtype: str) -> Any:
    if isinstance(value, np.ndarray):
        if dtype == BFLOAT16:
            value = (value.view(np.uint32) >> 16).astype(np.uint16)
        return dtype, value.shape, msgspec.msgpack.Ext(_RAW, value.tobytes())
    return [_data(part, dtype) for part in value] if isinstance(value, list) else value
