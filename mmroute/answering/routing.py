"""The answer to one request, in all the forms routers look up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mmroute.answering.placed_items import PlacedItem, identified, with_image_hashes
from mmroute.engines.hashes import Hashes, HashSettings, RefusedHashes
from mmroute.errors import InexactError, NoTokenIdsError, Reason
from mmroute.geometry import TokenIds
from mmroute.hashing import (
    BlockHashes,
    DynamoHashes,
    HashedItem,
    ImageHash,
    PageHashes,
    hash_pages,
    local_block_hashes,
    pad_value_ids,
    sequence_hashes,
    wide_pad_value_ids,
)
from mmroute.hashing.cache import HashCache
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity, IdentitySource
from mmroute.requests.request import Lora

_UNKNOWN: Final = RefusedHashes(HashSettings(), "nothing is known of the engine")


@dataclass(slots=True, eq=False, repr=False)
class Routing:
    """The answer to one request: exact token IDs, or the reason why there are none.

    Not to be changed. (It is not frozen: that would take a fifth of the time of a short request.)

    Attributes:
        placeholders: where each item stands, by position; empty if not exact.
        identities: the engine's name for each item, in the same order; None where too little is
            known of it.
        lora: the adapter of the request.
        cache_salt: the request's cache salt.
        reason: None if exact.
        message: what was found, and what to do; empty if exact.
        hashing: the engine's way to hash prompts, with its settings and defaults.
    """

    placeholders: tuple[PlaceholderRange, ...] = ()
    identities: tuple[Identity | None, ...] = ()
    lora: Lora | None = None
    cache_salt: str | None = None
    reason: Reason | None = None
    message: str = ""
    hashing: Hashes = _UNKNOWN
    _token_ids: TokenIds | None = None
    _unexpanded: TokenIds | None = None
    _hash_cache: HashCache | None = None

    def __repr__(self) -> str:
        if self._token_ids is None:
            return f"<Routing without token IDs: {self.reason}: {self.message}>"
        items = "".join(f", {placeholder!r}" for placeholder in self.placeholders)
        return f"<Routing of {len(self._token_ids)} token IDs{items}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: all but the cache of the normalizer it came from."""
        return Routing, (
            self.placeholders,
            self.identities,
            self.lora,
            self.cache_salt,
            self.reason,
            self.message,
            self.hashing,
            self._token_ids,
            self._unexpanded,
        )

    @property
    def exact(self) -> bool:
        """Whether these are the engine's token IDs, one for one."""
        return self._token_ids is not None

    @property
    def items(self) -> tuple[PlacedItem, ...]:
        """The items by position."""
        return tuple(map(PlacedItem, self.placeholders, self.identities))

    @property
    def token_ids(self) -> TokenIds:
        """The expanded prompt as the engine stores it: contiguous uint32, read-only, (n,).

        Raises:
            InexactError: the request is inexact; there are no IDs that could be mistaken for exact.
        """
        if self._token_ids is None:
            raise NoTokenIdsError(self.reason or Reason.INVALID_REQUEST, self.message)
        return self._token_ids

    @property
    def unexpanded_token_ids(self) -> TokenIds:
        """The prompt before its images took their places: contiguous uint32, read-only, (n,).

        What an engine wants that is given the pictures beside it, and expands it itself. The same
        as `token_ids` where there are no images, and for models in Mistral format, whose prompts
        are never without them.

        Raises:
            InexactError: as `token_ids`; `remote_inexpressible` if a server answered, which tells
                only the expanded prompt.
        """
        if self._unexpanded is not None:
            return self._unexpanded
        if self.placeholders:
            raise NoTokenIdsError(
                Reason.REMOTE_INEXPRESSIBLE,
                "a server tells the expanded prompt only; load the model here for the other one",
            )
        return self.token_ids

    def block_hashes(
        self,
        algorithm: str | None = None,
        *,
        block_size: int | None = None,
        seed: str | None = None,
        previous: BlockHashes | None = None,
    ) -> BlockHashes:
        """The hashes vLLM computes for the full blocks of this prompt, and publishes.

        Args:
            algorithm: the engine's ``--prefix-caching-hash-algo``: ``sha256``, ``sha256_cbor``,
                ``xxhash`` or ``xxhash_cbor``; None for that of `hashing.settings`.
            block_size: the engine's, in tokens; None for that of `hashing.settings`.
            seed: the engine's ``PYTHONHASHSEED``; None for that of `hashing.settings`,
                which is none unless the engine's settings say it; the xxhash algorithms need
                theirs.
            previous: hashes of an earlier prompt of the same conversation. Blocks at the
                beginning that are the same in both are not hashed again. None: the
                normalizer's own cache is asked for one (`FastPaths.hash_cache_bytes`).

        Raises:
            InexactError: the request is inexact; `image_identity_unknown` if only the size is
                known of one of its images; `block_size_unknown` if there is none;
                `unsupported_engine_setting` if the engine hashes more than the prompt.
            ValueError: there is no such algorithm, it needs a seed, or `block_size` is no
                positive integer.
        """
        return self.hashing.block_hashes(
            self,
            algorithm,
            block_size=block_size,
            seed=seed,
            previous=previous,
            reuse=self._hash_cache,
        )

    def page_hashes(self, page_size: int) -> PageHashes:
        """The hashes SGLang computes for the full pages of this prompt, and publishes.

        Args:
            page_size: the server's ``--page-size``, in tokens.

        Raises:
            InexactError: the request is inexact, or has a LoRA adapter; `image_identity_unknown`
                if the number by which the worker tells an image from others is not known.
            ValueError: `page_size` is no positive integer.
        """
        if self.lora is not None:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                "lora: the page hashes of requests to a LoRA adapter are not covered for SGLang",
            )
        token_ids = self.token_ids
        if None in self.identities:
            raise InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                "SGLang hashes the decoded pictures unless the request has mm_hashes: give each "
                "image's entry as its `uuid`. For Qwen3-VL it ignores them, and no page hash of a "
                "request with images can be told",
            )
        padded = (
            wide_pad_value_ids(token_ids, self._hashed_items()) if self.placeholders else token_ids
        )
        return hash_pages(padded, page_size=page_size, cache_salt=self.cache_salt)

    def dynamo_hashes(self, block_size: int | None = None) -> DynamoHashes:
        """The hashes by which Dynamo's router looks this prompt up, of the form of `pad_value_ids`.

        Args:
            block_size: the worker's, in tokens; None for that of `hashing.settings`.

        Raises:
            InexactError: as for `pad_value_ids`; `block_size_unknown` if there is none.
            ValueError: `block_size` is no positive integer.
        """
        known = self.hashing.settings
        known.warn_of_model_id(self)
        local = local_block_hashes(
            self.pad_value_ids(),
            block_size=known.size(block_size),
            lora_name=None if self.lora is None else self.lora.name,
        )
        return DynamoHashes(local, sequence_hashes(local))

    def extra_keys(self, *, block_size: int | None = None) -> tuple[tuple[Any, ...] | None, ...]:
        """What else enters the hash of each full block: LoRA, images, cache salt; or None.

        The keys of a block have the form of the engine's version: `mmroute.hashing.ExtraKey` since
        vLLM 0.31; before it what an event has of them, and before 0.19 the identity of an image
        alone.

        Raises:
            InexactError: as for `block_hashes`.
            ValueError: `block_size` is no positive integer.
        """
        return self.hashing.extra_keys(self, block_size)

    @property
    def covers_model_id(self) -> bool:
        """Whether identities cover the engine's model string: all do but a client's own uuid."""
        return bool(self.hashing.settings.model_id) and any(
            i is not None and i.source is not IdentitySource.UUID for i in self.identities
        )

    def hashed_items(self) -> list[HashedItem]:
        """The items as block hashes cover them, by position.

        Raises:
            InexactError: as `identified`.
        """
        return [
            HashedItem(identity.value, placeholder.offset, placeholder.length)
            for placeholder, identity in self.identified()
        ]

    def pad_value_ids(self) -> TokenIds:
        """The prompt with every feature position replaced by a number made of its image.

        The form of Dynamo's router, and of SGLang before 0.5.23 for callers that send
        `image_hashes` as ``mm_hashes``: shape (n,), uint32. SGLang counts images as they are
        stored in their files, so it holds there for images without EXIF orientation.

        Raises:
            InexactError: as for `image_hashes`; `feature_positions_unknown` if a server told
                where an image stands, and not which of these positions are features.
        """
        pairs = self._hashed_items()
        for placeholder, _ in pairs:
            if not placeholder.embeds_known:
                raise InexactError(
                    Reason.FEATURE_POSITIONS_UNKNOWN,
                    f"the server told where image {placeholder.item + 1} stands, and not which of "
                    "these positions receive features; `mmroute serve` tells both",
                )
        return pad_value_ids(self.token_ids, pairs)

    def image_hashes(self) -> list[str]:
        """The images by position, as 16 hexadecimal digits each: SGLang's ``mm_hashes``.

        Raises:
            InexactError: as for `block_hashes`; and for an image with an empty uuid, which has
                no number.
        """
        return [f"{number:016x}" for _, number in self._hashed_items()]

    def identified(self) -> list[tuple[PlaceholderRange, Identity]]:
        """Where each image stands, and who it is, by position.

        Raises:
            InexactError: `image_identity_unknown`: only the size is known of an image;
                `item_identity_unknown`: what the engine calls a video or audio does not follow
                from what is known of it.
        """
        return identified(zip(self.placeholders, self.identities, strict=True))

    def _hashed_items(self) -> list[tuple[PlaceholderRange, ImageHash]]:
        return with_image_hashes(self.identified(), self.hashing.item_hash)
