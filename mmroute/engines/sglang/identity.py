"""The numbers by which SGLang tells images apart: of a request's own, or of the bytes of a file.

Source: SGLang 0.5.23 ``srt/multimodal/cache/identity.py``;
``srt/multimodal/media_artifacts/base.py`` (`artifact_preprocess_kwargs`),
``srt/multimodal/processors/base_processor.py`` (`preprocess_fingerprint_payload`) and
``qwen_vl.py`` (`uses_media_artifacts_without_cache`);
``srt/managers/tokenizer_manager.py`` (`_tokenize_one_request`).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from mmroute.families.processors import named_class
from mmroute.hashing.pad_values import image_hash
from mmroute.requests.items import (
    Identity,
    IdentityForm,
    IdentitySource,
    ImageFile,
    Item,
    Items,
    Modality,
)

if TYPE_CHECKING:
    from mmroute.engines.sglang.settings import SglangSettings
    from mmroute.model_directory import ModelFiles
    from mmroute.requests.request import Request

_LAST_64_BITS: Final = (1 << 64) - 1
_HASH: Final = re.compile(r"[0-9A-Fa-f]{16}")
_PROCESSOR: Final = "sglang.srt.multimodal.processors.qwen_vl.QwenVLImageProcessor"
_TRANSFORMERS: Final = "transformers.models.{}.processing_{}.{}"
# The processors of transformers that `_PROCESSOR` wraps, by the class that a model's files name.
_WRAPPED: Final = {
    "Qwen2VLProcessor": "qwen2_vl",
    "Qwen2_5_VLProcessor": "qwen2_5_vl",
    "Qwen3VLProcessor": "qwen3_vl",
}
_WITH_CACHE: Final = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_5", "qwen3_5_moe"})
_PLAIN_DETAIL: Final = (None, "auto", "default")
_FRAMED: Final = 8


def hashes_files(files: ModelFiles, settings: SglangSettings) -> bool:
    """Whether the identities of a model's images are made of their files under the settings."""
    return settings.caches_images and files.object("config.json").get("model_type") in _WITH_CACHE


def processor_fingerprint(files: ModelFiles, settings: SglangSettings, pinned: str) -> str:
    """What the server is, which every identity of a file covers; empty if it is not known.

    `pinned` is the version of transformers that this version of SGLang requires.
    """
    name, _ = named_class(files)
    if not isinstance(name, str) or name not in _WRAPPED:
        return ""
    model, config = _WRAPPED[name], files.object("config.json")
    options = settings.mm_process_config
    processor = {
        "wrapper_class": _TRANSFORMERS.format(model, model, name),
        "gpu_image_decode": True,
        "image_processor_backend": settings.image_processor_backend,
        "feature_transport": settings.feature_transport,
        "image_config": options.get("image", {}),
        "video_config": options.get("video", {}),
        "audio_config": options.get("audio", {}),
        "wrapped_processor": None,
    }
    server = {
        "transformers": settings.transformers or pinned,
        "processor_class": _PROCESSOR,
        "model_type": config.get("model_type"),
        "architectures": config.get("architectures"),
        "model_revision": settings.revision,
        "processor_revision": settings.revision,
        "disable_fast_image_processor": settings.disable_fast_image_processor,
        "mm_process_config": options,
        "processor": processor,
        "extra": {},
    }
    return _digest(_packed(server))


def request_identities(
    request: Request, items: Items, forms: Sequence[IdentityForm], fingerprint: str
) -> tuple[Identity | None, ...] | None:
    """The identities of a chat's images, or of those that ``mm_hashes`` name; None for others.

    A uuid in a chat names no image.
    """
    if request.messages is not None and IdentityForm.UNCONVERTED_FILE in forms:
        images, details = items.get(Modality.IMAGE, ()), _details(request.messages)
        pairs = zip(images, details, strict=True)
        return tuple([_of_file(image, fingerprint, detail) for image, detail in pairs])
    if not request.mm_hashes and request.messages is None:
        return None
    if len(request.mm_hashes) != len(forms):  # the engine ignores a list of another length
        return (None,) * len(forms)
    return tuple(map(_of_hash, request.mm_hashes, forms))


def item_identity(item: Item, *, model_id: str, form: IdentityForm, **_: Any) -> Identity | None:
    """See `mmroute.engine.Identify`. The uuid of an item beside a prompt is its ``mm_hashes``."""
    if form is IdentityForm.UNCONVERTED_FILE:
        return _of_file(item, model_id, None)
    uuid = item.size.uuid
    if not uuid or form is not IdentityForm.FILE:
        return None
    if _HASH.fullmatch(uuid):
        return Identity(uuid.lower(), IdentitySource.UUID)
    return Identity(f"{image_hash(uuid):016x}", IdentitySource.UUID_HASH)


def _of_hash(entry: Any, form: IdentityForm) -> Identity | None:
    try:
        number = int(entry, 16)  # as the engine reads it
    except (TypeError, ValueError):
        return None
    if form is not IdentityForm.FILE:  # pads are written before the entry is read, or by tile
        return None
    return Identity(f"{number & _LAST_64_BITS:016x}", IdentitySource.UUID)


def _of_file(item: Item, fingerprint: str, detail: str | None) -> Identity | None:
    if not isinstance(item, ImageFile) or not fingerprint:
        return None
    place = (_of_file, fingerprint, detail)
    if item.identities and place in item.identities:
        return item.identities[place]
    key = {
        "content_digest": _digest(item.data),
        "modality": "image",
        "processor_fingerprint": fingerprint,
        "preprocess_kwargs": {} if detail in _PLAIN_DETAIL else {"detail": detail},
    }
    hasher = sha256()
    for part in (b"multimodal-feature-v1", sha256(_packed(key)).digest(), b"\0"):
        hasher.update(len(part).to_bytes(_FRAMED, "big"))
        hasher.update(part)
    identity = Identity(hasher.hexdigest()[:16], IdentitySource.CONTENT_HASH)
    return item.kept(place, identity)


def _details(messages: Sequence[Mapping[str, Any]]) -> Iterator[str | None]:
    """The ``detail`` of each image of a chat whose messages were checked."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part["type"] in ("image", "image_url"):
                yield part.get("image_url", {}).get("detail")


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _packed(value: object) -> bytes:
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":")).encode()


def _canonical(value: object) -> dict[str, Any]:
    """A value with its kind, as the engine writes it before it is hashed."""
    if value is None:
        return {"type": "none"}
    if isinstance(value, Mapping):
        pairs = [[_canonical(key), _canonical(entry)] for key, entry in value.items()]
        pairs.sort(key=lambda pair: json.dumps(pair[0], sort_keys=True, separators=(",", ":")))
        return {"type": "mapping", "items": pairs}
    if isinstance(value, list):
        return {"type": "list", "items": [_canonical(entry) for entry in value]}
    if isinstance(value, float):
        return {"type": "float64", "bits": struct.pack("!d", value).hex()}
    if type(value) is int:
        return {"type": "int", "value": str(value)}
    return {"type": type(value).__name__, "value": value}  # a text, or true or false
