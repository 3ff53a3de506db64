"""The hashes of SGLang, which cover pages of token IDs with pad values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, NoReturn

from mmroute.engines.sglang.pages import hash_pages, wide_pad_value_ids
from mmroute.errors import InexactError, Reason
from mmroute.hashing import ImageHash, PageHashes
from mmroute.hashing.hashes import HashedPrompt, HashSettings

_DEFAULTS: Final = HashSettings()


@dataclass(frozen=True, slots=True)
class SglangHashes:
    """See `mmroute.hashing.hashes.Hashes`."""

    settings: HashSettings = _DEFAULTS  # the values on which the hashes depend beside the request

    of_kind: ClassVar = PageHashes

    def with_settings(self, settings: HashSettings) -> SglangHashes:
        return replace(self, settings=settings)

    def extra_keys(self, *_prompt: object) -> NoReturn:
        """See `Hashes`."""
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING, "SGLang's hashes of pages have no extra keys"
        )

    def of(self, prompt: HashedPrompt, *, block_size: int | None, **_how: object) -> PageHashes:
        size = self.settings.block_size if block_size is None else block_size
        if size is None:
            raise InexactError(
                Reason.BLOCK_SIZE_UNKNOWN,
                "the engine chooses the size of its pages by its attention backend; give the "
                "worker's (its --page-size, or block_size of its BlockStored events)",
            )
        if prompt.lora is not None:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                "lora: the page hashes of requests to a LoRA adapter are not covered for SGLang",
            )
        ids = prompt.token_ids
        if None in prompt.identities:
            raise InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                "SGLang hashes the decoded pictures unless /generate gets mm_hashes: give an entry "
                "for each image, and send the same. Its chat route ignores them, and the uuid of a "
                "part. For Qwen3-VL it ignores mm_hashes everywhere, so the page hashes of a "
                "request with images are not known",
            )
        padded = wide_pad_value_ids(ids, prompt.placed_hashes()) if prompt.identities else ids
        return hash_pages(padded, page_size=size, cache_salt=prompt.cache_salt)

    def item_hash(self, identity: str) -> ImageHash:
        """See `Hashes`: identities are hexadecimal numbers."""
        return ImageHash(int(identity, 16))
