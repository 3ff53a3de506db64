"""Identities before vLLM 0.33 and block hashes before 0.31, whose digests and keys were not framed.

Source: vLLM 0.30.0, 0.23.0 and 0.18.0 ``v1/core/kv_cache_utils.py``
(`generate_block_hash_extra_keys`, `hash_block_tokens`); vLLM 0.32.0 ``multimodal/image.py``; vLLM
0.30.0 ``multimodal/hasher.py`` and ``multimodal/media/image.py``; 0.28.0, 0.26.0, 0.23.0, 0.18.0
and 0.15.0 likewise.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mmroute.engines.vllm.identity import BACKGROUND, HASHERS, item_identity, media_io_of
from mmroute.errors import InexactError, RandomSeedError, Reason
from mmroute.geometry import Overrides
from mmroute.hashing.algorithms import METHODS, Algorithm
from mmroute.hashing.chain import link_blocks
from mmroute.hashing.extra_keys import EventKeys, HashedItem, event_extra_keys, extra_keys
from mmroute.hashing.vllm import SET_SEED, BlockHashes, known_hashes, none_hash
from mmroute.requests.items import Identity, IdentityForm, IdentitySource, ImageFile, Item
from mmroute.requests.request import Lora
from mmroute.token_ids import TokenIds


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


_PROTOCOL: Final = 5


def untagged_keys(items: Iterable[HashedItem] = (), **arguments: Any) -> tuple[EventKeys, ...]:
    """The extra keys of blocks as events have them: vLLM 0.19 to 0.30."""
    return tuple(event_extra_keys(extra_keys(items, **arguments)) or ())


def identity_keys(
    items: Iterable[HashedItem] = (),
    *,
    num_blocks: int,
    block_size: int,
    lora: Lora | None = None,
    cache_salt: str | None = None,
) -> tuple[EventKeys, ...]:
    """The same for vLLM 0.13 to 0.18, where the key of an item is its identity alone.

    The block that begins directly behind an item has the key as well.
    """
    ordered = sorted(items, key=lambda item: item.offset)
    size = block_size
    blocks: list[EventKeys] = []
    current = 0
    for start in range(0, num_blocks * size, size):
        keys: list[str] = [lora.name] if lora is not None else []
        if ordered and ordered[-1].stop >= start:
            while current < len(ordered) and start + size > ordered[current].offset:
                if start > ordered[current].stop:
                    current += 1
                    continue
                keys.append(ordered[current].identity)
                if start + size < ordered[current].stop:
                    break
                current += 1
        if start == 0 and cache_salt:
            keys.append(cache_salt)
        blocks.append(tuple(keys) or None)
    return tuple(blocks)


def encode_block(parent: bytes, token_ids: tuple[int, ...], keys: EventKeys) -> bytes:
    """The bytes that are hashed for one block, its parent's hash among them."""
    # Each text is an object of its own in the engine; pickle refers back to a shared one.
    own = keys and tuple([
        (key[0].encode().decode(), key[1]) if isinstance(key, tuple) else key.encode().decode()
        for key in keys
    ])  # fmt: skip
    return pickle.dumps((parent, token_ids, own), protocol=_PROTOCOL)


def hash_older_blocks(
    token_ids: TokenIds,
    keys: Sequence[EventKeys],
    *,
    algorithm: str,
    block_size: int,
    seed: str | None,
    random_root: bool = False,
    previous: BlockHashes | None = None,
) -> BlockHashes:
    """The block hashes of vLLM before 0.31, by older keys; `random_root` needs a seed."""
    chosen = Algorithm(algorithm)
    if seed is None and random_root:
        raise RandomSeedError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"this version of vLLM draws the seed of its block hashes at random: {SET_SEED}",
        )
    if chosen not in (Algorithm.SHA256, Algorithm.XXHASH):
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"--prefix-caching-hash-algo {chosen} is not covered for this version of vLLM",
        )
    known = known_hashes(previous, token_ids, keys, (chosen, block_size, seed, 0))
    reused = len(known)
    hashes = known + link_blocks(
        token_ids[reused * block_size :],
        keys[reused:],
        known[-1] if known else none_hash(chosen, seed),
        block_size=block_size,
        encode=encode_block,
        digest=METHODS[chosen].digest,
    )
    return BlockHashes(hashes, chosen, block_size, seed, 0, reused, token_ids, keys)
