"""The interface by which a `Routing` gets the hashes of its engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, NoReturn, Protocol

import numpy as np

from mmroute.errors import BlockSizeWarning, InexactError, ModelIdWarning, Reason
from mmroute.hashing.algorithms import Algorithm
from mmroute.hashing.digests import PageHashes
from mmroute.hashing.extra_keys import ExtraKeys, HashedItem
from mmroute.hashing.pad_values import ImageHash, image_hash
from mmroute.hashing.vllm import BlockHashes
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import Identity
from mmroute.requests.request import Lora
from mmroute.reuse.prefix_cache import PrefixCache
from mmroute.token_ids import TokenIds

_MIN_TOKENS: Final = 8192
_BYTES_PER_HASH: Final = 96  # a Python object of its own
_BYTES_PER_KEY: Final = 320  # a tuple of tuples, and its place in a dictionary


class HashCache(PrefixCache[BlockHashes]):
    """A prefix cache of block hashes. Safe to share between threads.

    Its statistics count bytes of token IDs.
    """

    def hash_blocks(
        self,
        token_ids: TokenIds,
        extra_keys: Sequence[Any],
        hasher: Callable[..., BlockHashes],
        settings: Mapping[str, Any],
    ) -> BlockHashes:
        """Call `hasher` with the hashes of the longest known prefix as its `previous`."""
        if len(token_ids) < _MIN_TOKENS:
            return hasher(token_ids, extra_keys, **settings)
        block_size = settings["block_size"]
        prompt = token_ids[: len(extra_keys) * block_size].view(np.uint8).data
        previous, prefix_hashes = self.find(prompt, salt=hash((hasher, repr(settings))))
        hashes = hasher(token_ids, extra_keys, **settings, previous=previous)
        if prefix_hashes:
            self.count(hashes.reused * block_size * token_ids.itemsize)
            if hashes.reused < len(hashes):
                key_bytes = _BYTES_PER_KEY * _num_kept(extra_keys)
                size = len(prompt) + _BYTES_PER_HASH * len(hashes) + key_bytes
                self.put(hashes, prefix_hashes, prompt, size=size)
        return hashes


def _num_kept(keys: Sequence[Any]) -> int:
    return len(keys.others) + len(keys.runs) if isinstance(keys, ExtraKeys) else len(keys)


class HashedPrompt(Protocol):
    """The parts of a prompt that hashes cover. A `Routing` has them."""

    lora: Lora | None
    cache_salt: str | None
    identities: tuple[Identity | None, ...]

    @property
    def token_ids(self) -> TokenIds:
        """The expanded prompt, shape (n,)."""

    @property
    def covers_model_id(self) -> bool:
        """Whether the identity of an item covers the engine's model string."""

    def hashed_items(self) -> list[HashedItem]:
        """The items, as block hashes cover them."""

    def placed_hashes(self) -> list[tuple[PlaceholderRange, ImageHash]]:
        """The range and the image hash of each item."""


@dataclass(frozen=True, slots=True)
class HashSettings:
    """The values on which hashes depend besides the request."""

    algorithm: str = Algorithm.SHA256  # a value of `Algorithm`
    # The number of tokens under one hash; None if there is no default.
    block_size: int | None = None
    # Whether `block_size` is only the commonest default, which differs on CPUs and with some
    # attention backends.
    block_size_guessed: bool = False
    # The address of the KV events that tell `block_size`; empty if none do.
    block_size_from: str = ""
    # The engine keeps prefixes only in steps of this many blocks; a shorter rest is published with
    # the next full step.
    prefix_step: int = 1
    of_units: bool = False  # whether `block_size` is of units, of which a block has several
    # Whether the engine chooses `block_size`: for hybrid models, and under context parallelism.
    chosen_by_engine: bool = False
    seed: str | None = None  # the engine's PYTHONHASHSEED; None if it is not set
    # The engine's model string, which identities of files cover; empty if a server computes the
    # identities, or if identities do not cover it.
    model_id: str = ""
    # Whether `model_id` is only the path from which the model was loaded here.
    model_id_guessed: bool = False
    # The engines whose prefix cache tells images of this model apart by their features, and ignores
    # the caller's uuids.
    names_ignored_in: frozenset[str] = frozenset()
    keeps_blocks: bool = True  # whether the engine keeps blocks for later requests

    def size(self, block_size: int | None) -> int:
        """The tokens in a block: `block_size`, or that of the settings. Warns of a guess."""
        size = self.block_size if block_size is None else block_size
        if size is None and self.block_size_from:
            raise InexactError(
                Reason.BLOCK_SIZE_UNKNOWN,
                "the number of tokens under one hash comes from the KV events of "
                f"{self.block_size_from}, and no event with a block has come yet; send the request "
                "to any worker, or give block_size",
            )
        if size is None:
            raise InexactError(
                Reason.BLOCK_SIZE_UNKNOWN,
                "the engine itself chooses the number of tokens under one hash for hybrid models "
                "and under context parallelism; give the worker's block_size. Its BlockStored "
                "events (BlockIndex.block_size) and its log have it, and mostly its metrics "
                "(--engine URL)",
            )
        if block_size is None and self.block_size_guessed:
            _warn_of_size(self.model_id, size)
        return size

    def num_published(self, num_blocks: int) -> int:
        """The number of leading blocks that the engine publishes of a prompt with `num_blocks`."""
        return num_blocks - num_blocks % self.prefix_step

    def warn_of_model_id(self, prompt: HashedPrompt) -> None:
        """Warn (`ModelIdWarning`) once for each model whose string is guessed and matters."""
        if self.model_id_guessed and prompt.covers_model_id:
            _warn_of_model_id(self.model_id)

    def guesses(self, *, with_media: bool) -> Iterator[str]:
        """A line for each value that is guessed. Hashes of text do not cover the model string."""
        if self.model_id_guessed and with_media:
            yield (
                f"model_id: the engine's model string is taken to be {self.model_id}, as the model "
                "was named here; give it by --engine-args, --engine or --model-id"
            )
        if self.block_size_guessed:
            yield (
                f"block_size: the engine's is taken to be {self.block_size}, the default of most "
                "GPUs (128 on CPUs); give it by --engine-args or --engine"
            )
        elif self.chosen_by_engine and self.block_size is None:
            yield (
                "block_size: the engine chooses it for this model, and there are no block hashes "
                "without it; --engine asks for it"
            )


class Hashes(Protocol):
    """The functions by which one version of an engine hashes prompts: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def of_kind(self) -> type[BlockHashes | PageHashes] | None:
        """Whether the engine hashes blocks or pages; None if it refuses both."""

    @property
    def settings(self) -> HashSettings:
        """The values on which the hashes depend besides the request."""

    def of(
        self,
        prompt: HashedPrompt,
        *,
        algorithm: str | None,
        block_size: int | None,
        seed: str | None,
        previous: BlockHashes | None,
        cache: HashCache | None,
    ) -> BlockHashes | PageHashes:
        """The hashes that the engine publishes; see `Routing.block_hashes`. They are `of_kind`.

        None stands for the value in `settings`. If `previous` is None, the cache is looked in.
        """

    def extra_keys(
        self, prompt: HashedPrompt, block_size: int | None
    ) -> tuple[tuple[Any, ...] | None, ...]:
        """See `Routing.extra_keys`. The errors are those of `of`."""

    def content_keys(self, prompt: HashedPrompt, block_size: int | None) -> tuple[int, ...]:
        """See `Routing.content_keys`. They cover what the engine's events tell of blocks."""

    def item_hash(self, identity: str) -> ImageHash:
        """The number by which routers know an item of this identity."""


@dataclass(frozen=True, slots=True)
class RefusedHashes:
    """The hashes of an engine for which they are refused. See `Hashes`."""

    settings: HashSettings  # the known settings of the engine
    why: str  # the message of the refusal
    of_kind: ClassVar = None
    item_hash = staticmethod(image_hash)

    def of(self, prompt: HashedPrompt, *_args: object, **_how: object) -> NoReturn:
        """Raise `unsupported_engine_setting`, or the reason why the prompt is inexact."""
        _ = prompt.token_ids  # raises for an inexact one
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, self.why)

    extra_keys = content_keys = of


@lru_cache(maxsize=1024)
def _warn_of_model_id(model: str) -> None:
    """Say it once for each model, whatever the filter of warnings."""
    warnings.warn(
        f"block hashes of requests with images cover the engine's own model string, which is "
        f"taken to be {model!r}. If the engine was started with another one, no hash is equal: "
        "give it as model_id (--model-id, or --engine-args with the engine's command line).",
        ModelIdWarning,
        stacklevel=5,
    )


@lru_cache(maxsize=1024)
def _warn_of_size(model: str, size: int) -> None:
    """Say it once for each model, whatever the filter of warnings."""
    warnings.warn(
        f"block hashes of {model or 'the model'} are of blocks of {size} tokens, which is only a "
        "guess: vLLM's default is 16 on most GPUs, and 128 on CPUs. If the engine's blocks have "
        "another size, no hash is equal: give it as block_size (--block-size, or --engine-args "
        "with the engine's command line), or ask the engine (--engine URL).",
        BlockSizeWarning,
        stacklevel=5,
    )
