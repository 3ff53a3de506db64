"""The identities of images in SGLang's prefix cache: numbers of 64 bits.

The number is the client's own if its request has ``mm_hashes``. Otherwise it is a hash of the
decoded picture, which the worker's processor computes and nobody else can know. Only ``/generate``
has the field: the chat route reads neither ``mm_hashes`` nor the ``uuid`` of a part. Source: SGLang
``srt/managers/tokenizer_manager.py`` (`_tokenize_one_request`),
``srt/entrypoints/openai/serving_chat.py`` (`_convert_to_internal_request`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mmroute.hashing.pad_values import image_hash
from mmroute.requests.items import Identity, IdentityForm, IdentitySource, Item
from mmroute.requests.request import Request

_LAST_64_BITS: Final = (1 << 64) - 1
_HASH: Final = re.compile(r"[0-9A-Fa-f]{16}")


def identity_of_hash(entry: Any, form: IdentityForm) -> Identity | None:
    """The identity of an image by its entry of ``mm_hashes``; None if SGLang ignores the entry."""
    try:
        number = int(entry, 16)  # as the engine reads it
    except (TypeError, ValueError):
        return None
    if form is IdentityForm.FEATURES:
        return None
    return Identity(f"{number & _LAST_64_BITS:016x}", IdentitySource.UUID)


def identities_of_request(
    request: Request, forms: Sequence[IdentityForm]
) -> tuple[Identity | None, ...] | None:
    """The identities by ``mm_hashes``. A uuid in a chat names no image."""
    if not request.mm_hashes and request.messages is None:
        return None
    if len(request.mm_hashes) != len(forms):  # the engine ignores a list of another length
        return (None,) * len(forms)
    return tuple(map(identity_of_hash, request.mm_hashes, forms))


def item_identity(item: Item, *, form: IdentityForm, **_: Any) -> Identity | None:
    """The entry in ``mm_hashes`` for an item beside a prompt, as 16 hexadecimal digits, or None."""
    uuid = item.size.uuid
    if not uuid or form is IdentityForm.FEATURES:
        return None
    if _HASH.fullmatch(uuid):
        return Identity(uuid.lower(), IdentitySource.UUID)
    return Identity(f"{image_hash(uuid):016x}", IdentitySource.UUID_HASH)
