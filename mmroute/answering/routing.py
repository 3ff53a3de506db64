"""The answer to one request, in all the forms in which routers look prompts up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

from mmroute.errors import InexactError, NoTokenIdsError, Reason
from mmroute.geometry import Geometry, ModelContext
from mmroute.geometry.metadata import ItemMetadata
from mmroute.hashing import (
    BlockHashes,
    DynamoHashes,
    HashedItem,
    ImageHash,
    PageHashes,
    local_block_hashes,
    pad_value_ids,
    sequence_hashes,
)
from mmroute.hashing.hashes import HashCache, Hashes, HashSettings, RefusedHashes
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity, IdentitySource, Modality
from mmroute.requests.request import Lora
from mmroute.token_ids import TokenIds


class PlacedItem(NamedTuple):
    """An item in the expanded prompt.

    Attributes:
        placeholder: its place in the prompt.
        identity: the engine's name for the item; None if it cannot be computed.
    """

    placeholder: PlaceholderRange
    identity: Identity | None


def nameless(placeholder: PlaceholderRange) -> InexactError:
    """The error of an item whose identity is not known."""
    number, modality = placeholder.item + 1, placeholder.modality
    match modality:
        case Modality.IMAGE:
            return InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                f"the engine's name for image {number} is not known: only its size is given, or "
                "the engine hashes its decoded pixels; give the `uuid` or the entry of "
                "`mm_hashes` that the engine gets for it, or its file if only the size is given",
            )
        case Modality.VIDEO:
            why = "it is not given as a file, or its frames are smaller than its file"
        case Modality.AUDIO:
            why = "the engine hashes the decoded samples of audio"
    return InexactError(
        Reason.ITEM_IDENTITY_UNKNOWN,
        f"the engine's name for {modality} {number} is not known: {why}; give the `uuid` that the "
        "engine gets for it",
    )


SizedItems: TypeAlias = "tuple[ModelContext, *tuple[tuple[Modality, Geometry, Sequence[Any]], ...]]"
"""What counts the items of a request, and by modality their sizes, from which metadata follow.

It is one tuple, because a router keeps many routings.
"""
_UNKNOWN: Final = RefusedHashes(HashSettings(), "nothing is known of the engine")


@dataclass(slots=True, eq=False, repr=False)
class Routing:
    """The answer to one request: exact token IDs, or the reason why there are none.

    Do not change a routing. (It is not frozen, because that would make a short request a fifth
    slower.)

    Attributes:
        placeholders: the range of each item, by position; empty if not exact.
        identities: the engine's name for each item, in the same order; None if it cannot be
            computed.
        lora: the adapter of the request.
        cache_salt: the request's cache salt.
        reads_cache: whether the engine looks for the prompt in its prefix cache. If not, it
            reuses nothing, whatever it holds. It stores the prompt's blocks nevertheless.
        reason: None if exact.
        message: what was found and what to do about it; empty if exact.
        hashing: the functions by which the engine hashes prompts, with its settings.
    """

    placeholders: tuple[PlaceholderRange, ...] = ()
    identities: tuple[Identity | None, ...] = ()
    lora: Lora | None = None
    cache_salt: str | None = None
    reason: Reason | None = None
    message: str = ""
    hashing: Hashes = _UNKNOWN
    reads_cache: bool = True
    _token_ids: TokenIds | None = None
    _unexpanded: TokenIds | None = None
    _hash_cache: HashCache | None = None
    _sized_items: SizedItems | None = None

    def __repr__(self) -> str:
        if self._token_ids is None:
            return f"<Routing without token IDs: {self.reason}: {self.message}>"
        items = "".join(f", {placeholder!r}" for placeholder in self.placeholders)
        return f"<Routing of {len(self._token_ids)} token IDs{items}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all but the cache and the geometries of the normalizer that made it."""
        return Routing, (
            self.placeholders,
            self.identities,
            self.lora,
            self.cache_salt,
            self.reason,
            self.message,
            self.hashing,
            self.reads_cache,
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
        """The prompt before placeholders were replaced: contiguous uint32, read-only, (n,).

        An engine that gets the media beside the prompt expands it itself, so it wants this form.
        It equals `token_ids` if the request has no media, and for models in Mistral format, whose
        tokenizer renders expanded prompts.

        Raises:
            InexactError: as `token_ids`; `remote_inexpressible` if a server answered, because it
                sends only the expanded prompt.
        """
        if self._unexpanded is not None:
            return self._unexpanded
        if self.placeholders:
            raise NoTokenIdsError(
                Reason.REMOTE_INEXPRESSIBLE,
                "a server sends only the expanded prompt; load the model here "
                "for unexpanded_token_ids",
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
                ``xxhash`` or ``xxhash_cbor``; None for the one in `hashing.settings`.
            block_size: the engine's block size, in tokens; None for the one in `hashing.settings`.
            seed: the engine's ``PYTHONHASHSEED``; None for the one in `hashing.settings`. The
                xxhash algorithms have no default seed.
            previous: the hashes of an earlier prompt of the same conversation. Leading blocks that
                are the same in both are not hashed again. None to look in the normalizer's own
                cache (`FastPaths.hash_cache_bytes`).

        Raises:
            InexactError: the request is inexact; `image_identity_unknown` if only the size of an
                image is known; `block_size_unknown` if no block size is known;
                `unsupported_engine_setting` if the engine hashes more than the prompt, or draws
                its seed at random (`RandomSeedError`, which is a ValueError as well).
            ValueError: there is no such algorithm, or `block_size` is no positive integer.
        """
        hashes = self.hashes(
            algorithm, kind=BlockHashes, block_size=block_size, seed=seed, previous=previous
        )
        return cast("BlockHashes", hashes)

    def page_hashes(self, page_size: int) -> PageHashes:
        """The hashes of the full pages of this prompt, as an engine with pages publishes them.

        Args:
            page_size: the server's ``--page-size``, in tokens.

        Raises:
            InexactError: the request is inexact, or has a LoRA adapter; `image_identity_unknown`
                if the number by which the worker tells an image from others is not known;
                `unsupported_engine_setting` for an engine that has blocks in place of pages.
            ValueError: `page_size` is no positive integer.
        """
        return cast("PageHashes", self.hashes(kind=PageHashes, block_size=page_size))

    def hashes(
        self,
        algorithm: str | None = None,
        *,
        kind: type[BlockHashes | PageHashes] | None = None,
        block_size: int | None = None,
        seed: str | None = None,
        previous: BlockHashes | None = None,
    ) -> BlockHashes | PageHashes:
        """The hashes that the engine publishes, of blocks or pages: see `block_hashes`.

        `kind` refuses an engine that publishes others.
        """
        own = self.hashing.of_kind
        if kind is not None and own is not None and own is not kind:
            pages = own is PageHashes
            raise InexactError(
                Reason.UNSUPPORTED_ENGINE_SETTING,
                f"the engine hashes {'pages' if pages else 'blocks'}: "
                f"Routing.{'page_hashes' if pages else 'block_hashes'}. For the hashes of another "
                "engine, name it as backend",
            )
        return self.hashing.of(
            self,
            algorithm=algorithm,
            block_size=block_size,
            seed=seed,
            previous=previous,
            cache=self._hash_cache,
        )

    def dynamo_hashes(self, block_size: int | None = None) -> DynamoHashes:
        """The hashes by which Dynamo's router looks this prompt up; they cover `pad_value_ids`.

        Args:
            block_size: the worker's block size, in tokens; None for the one in `hashing.settings`.

        Raises:
            InexactError: as for `pad_value_ids`; `block_size_unknown` if no block size is known.
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
        """The values beside tokens that each full block's hash covers; None where there are none.

        The form of the keys depends on the engine's version: `mmroute.hashing.ExtraKey` since vLLM
        0.31, `mmroute.hashing.EventKeys` since 0.19, and before that an image's identity alone.
        Events carry them without tags: `mmroute.hashing.event_extra_keys` gives that form.

        Raises:
            InexactError: as for `block_hashes`.
            ValueError: `block_size` is no positive integer.
        """
        return self.hashing.extra_keys(self, block_size)

    def content_keys(self, block_size: int | None = None) -> tuple[int, ...]:
        """The keys of the full blocks for a `BlockIndex` by content, whatever the engine hashes by.

        Args:
            block_size: the worker's block or page size, in tokens; None for the one in
                `hashing.settings`.

        Returns:
            A number of 64 bits for each block.

        Raises:
            InexactError: as for `block_hashes`, except for algorithms and seeds.
            ValueError: `block_size` is no positive integer.
        """
        return self.hashing.content_keys(self, block_size)

    @property
    def covers_model_id(self) -> bool:
        """Whether an identity covers the engine's model string. A client's uuid does not."""
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
        """The prompt with the pad value of its image at every feature position: (n,), uint32.

        Dynamo's router uses this form.

        Raises:
            InexactError: as for `image_hashes`; `feature_positions_unknown` if a server sent the
                range of an image without the positions of its features.
        """
        pairs = self.placed_hashes()
        for placeholder, _ in pairs:
            if not placeholder.embeds_known:
                raise InexactError(
                    Reason.FEATURE_POSITIONS_UNKNOWN,
                    f"the server sent the range of image {placeholder.item + 1}, and not which of "
                    "its positions receive features; `mmroute serve` sends both",
                )
        return pad_value_ids(self.token_ids, pairs)

    def image_hashes(self) -> list[str]:
        """The image hash of each image, by position, as 16 hexadecimal digits: ``mm_hashes``.

        Raises:
            InexactError: as for `block_hashes`; `image_identity_unknown` for an image with an
                empty uuid.
        """
        return [f"{number:016x}" for _, number in self.placed_hashes()]

    def identified(self) -> list[tuple[PlaceholderRange, Identity]]:
        """The range and the identity of each item, by position.

        Raises:
            InexactError: `image_identity_unknown` or `item_identity_unknown`: the identity of an
                item cannot be computed, for example because only an image's size is known.
        """
        pairs = []
        for placeholder, identity in zip(self.placeholders, self.identities, strict=True):
            if identity is None:
                raise nameless(placeholder)
            pairs.append((placeholder, identity))
        return pairs

    def metadata(self) -> tuple[ItemMetadata, ...]:
        """The fields of each item that the engine's processor has beside tensors, by position.

        They follow from the items' sizes and lengths: for Qwen2.5-VL `image_grid_thw`, int64 of
        shape (3,). vLLM takes them as ``mm_metadata`` where the encoder runs in another process.

        Raises:
            InexactError: `metadata_unknown`.
        """
        if not self.placeholders:
            return ()
        if self._sized_items is None:
            raise InexactError(
                Reason.METADATA_UNKNOWN,
                "this routing was pickled, a server answered it, or its engine takes no metadata: "
                "load the model here, for vLLM 0.30 or later",
            )
        context, *listed = self._sized_items
        found = {
            modality: geometry.metadata(sizes, context) for modality, geometry, sizes in listed
        }
        return tuple(found[placed.modality][placed.item] for placed in self.placeholders)

    def placed_hashes(self) -> list[tuple[PlaceholderRange, ImageHash]]:
        """The range and the image hash of each item, by position.

        Raises:
            InexactError: as `image_hashes`.
        """
        pairs = []
        for placeholder, identity in self.identified():
            if not identity.value:
                raise InexactError(
                    Reason.IMAGE_IDENTITY_UNKNOWN,
                    f"image {placeholder.item + 1} has an empty uuid, which has no hash; "
                    "give another",
                )
            pairs.append((placeholder, self.hashing.item_hash(identity.value)))
        return pairs
