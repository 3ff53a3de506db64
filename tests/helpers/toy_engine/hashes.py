"""The names of pictures, and the hashes of pages: xxh3 over tokens, and the pictures in them."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, NoReturn

from xxhash import xxh3_64_digest

from mmroute.errors import InexactError, Reason
from mmroute.hashing import PageHashes, image_hash
from mmroute.hashing.extra_keys import check_block_size
from mmroute.hashing.hashes import HashedPrompt, HashSettings
from mmroute.requests.items import Identity, IdentitySource, ImageFile, Item


def identify(item: Item, **_: Any) -> Identity | None:
    if not isinstance(item, ImageFile):
        return None  # only its size is known
    return Identity(sha256(item.data).hexdigest(), IdentitySource.CONTENT_HASH)


@dataclass(frozen=True, slots=True)
class ToyHashes:
    settings: HashSettings
    of_kind: ClassVar = PageHashes
    item_hash = staticmethod(image_hash)

    def extra_keys(self, *_prompt: object) -> NoReturn:
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, "the toy's pages have no extra keys")

    content_keys = extra_keys

    def of(self, prompt: HashedPrompt, *, block_size: int | None, **_how: object) -> PageHashes:
        page_size = self.settings.size(block_size)
        check_block_size(page_size)
        ids, pictures = prompt.token_ids.astype("<u4"), prompt.hashed_items()
        hashes: list[bytes] = []
        for start in range(0, len(ids) - page_size + 1, page_size):
            stop, before = start + page_size, hashes[-1:]
            inside = [
                picture.identity.encode()
                for picture in pictures
                if picture.offset < stop and start < picture.offset + picture.length
            ]
            hashes.append(xxh3_64_digest(b"".join([*before, ids[start:stop].tobytes(), *inside])))
        return PageHashes(tuple(hashes), page_size)
