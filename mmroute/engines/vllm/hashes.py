"""The hashes of vLLM: one value for each version, which holds the version's algorithms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm.speculation import Target, hash_lookahead
from mmroute.errors import ModelError, RandomSeedError, RandomSeedWarning, Reason
from mmroute.hashing import (
    BlockHashes,
    EventKeys,
    ExtraKeys,
    event_extra_keys,
    extra_keys,
    hash_blocks,
    image_hash,
    none_hash,
    num_hashed,
)
from mmroute.hashing.extra_keys import check_block_size
from mmroute.hashing.hashes import HashCache, HashedPrompt, Hashes, HashSettings, RefusedHashes
from mmroute.token_ids import TokenIds

_DEFAULTS: Final = HashSettings(block_size=16, block_size_guessed=True)


@dataclass(frozen=True, slots=True)
class VllmHashes:
    """See `mmroute.hashing.hashes.Hashes`."""

    settings: HashSettings = _DEFAULTS  # the values on which the hashes depend beside the request
    # Returns the extra keys of blocks for the arguments of `mmroute.hashing.extra_keys`.
    keys: Callable[..., Sequence[Any]] = extra_keys
    # Hashes blocks with these keys. It has the arguments of `mmroute.hashing.hash_blocks`.
    hash: Callable[..., BlockHashes] = hash_blocks
    # Whether hashes cover tokens behind their block under speculative decoding. It does not count
    # in comparisons, because without that it has no effect.
    covers_lookahead: bool = field(default=False, compare=False)
    lookahead: int = 0  # the number of lookahead tokens, under the engine's settings
    of_kind: ClassVar = BlockHashes
    item_hash = staticmethod(image_hash)

    def under(self, known: HashSettings, engine: VllmSettings, target: Target) -> Hashes:
        """The hashes of the same version with the settings of an engine."""
        if engine.hashes_refused:
            why = f"{engine.hashes_refused}: block hashes of such an engine are not covered"
            return RefusedHashes(known, why)
        try:
            lookahead = hash_lookahead(engine, target) if self.covers_lookahead else 0
        except ModelError as error:
            if error.reason is Reason.INVALID_ENGINE_SETTING:
                raise
            return RefusedHashes(known, str(error))
        if engine.hash_algorithm is not None:
            try:
                none_hash(engine.hash_algorithm, known.seed)
            except RandomSeedError as error:
                warnings.warn(f"no block hashes: {error}", RandomSeedWarning, stacklevel=2)
        return replace(self, settings=known, lookahead=lookahead)

    def of(
        self,
        prompt: HashedPrompt,
        *,
        algorithm: str | None,
        block_size: int | None,
        seed: str | None,
        previous: BlockHashes | None,
        cache: HashCache | None,
    ) -> BlockHashes:
        known = self.settings
        size = known.size(block_size)
        known.warn_of_model_id(prompt)
        token_ids = prompt.token_ids
        keys = self._keys(prompt, token_ids, size)
        how = {
            "algorithm": known.algorithm if algorithm is None else algorithm,
            "block_size": size,
            "seed": known.seed if seed is None else seed,
        }
        how |= self._given_lookahead()
        if previous is None and cache is not None:
            return cache.hash_blocks(token_ids, keys, self.hash, how)
        return self.hash(token_ids, keys, previous=previous, **how)

    def extra_keys(
        self, prompt: HashedPrompt, block_size: int | None
    ) -> tuple[tuple[Any, ...] | None, ...]:
        size = self.settings.size(block_size)
        return tuple(self._keys(prompt, prompt.token_ids, size))

    def content_keys(self, prompt: HashedPrompt, block_size: int | None) -> tuple[int, ...]:
        from mmroute.engines.events import Contents  # msgspec
        from mmroute.hashing.content import encode

        size, ids = self.settings.size(block_size), prompt.token_ids
        keys, ahead = self._keys(prompt, ids, size), list[bytes]()
        tokens = ids[: len(keys) * size]
        lora_name = None if prompt.lora is None else prompt.lora.name
        if self.lookahead:
            ends = range(size, len(tokens) + 1, size)
            ahead = [encode(ids[end : end + self.lookahead].tolist()) for end in ends]
        elif isinstance(keys, ExtraKeys) and lora_name is None:
            return Contents(tokens, _encoded(keys), None).keys(size)  # takes half of the time
        return Contents.of(tokens, map(encode, self.event_keys(keys)), lora_name, ahead).keys(size)

    def event_keys(self, keys: Sequence[Any]) -> Sequence[EventKeys]:
        """The extra keys of blocks as the version's events have them."""
        return (event_extra_keys(keys) or ()) if self.keys is extra_keys else keys

    def _keys(self, prompt: HashedPrompt, token_ids: TokenIds, size: int) -> Sequence[Any]:
        check_block_size(size)
        return self.keys(
            prompt.hashed_items(),
            num_blocks=num_hashed(len(token_ids), size, self.lookahead),
            block_size=size,
            lora=prompt.lora,
            cache_salt=prompt.cache_salt,
            **self._given_lookahead(),
        )

    def _given_lookahead(self) -> dict[str, int]:
        """The argument for lookahead tokens, which functions of older versions do not take."""
        return {"lookahead": self.lookahead} if self.lookahead else {}


def _encoded(keys: ExtraKeys) -> dict[int, bytes]:
    """The msgpack of the blocks' keys, as events have them."""
    from mmroute.hashing.content import encode

    found = {at: encode(event_extra_keys([each])[0]) for at, each in keys.others.items()}  # type: ignore[index]
    for run in keys.runs:
        head = encode(((run.identity, 0),))[:-1]
        offsets = range(
            run.offset, run.offset - (run.stop - run.first) * keys.block_size, -keys.block_size
        )
        found |= {at: head + encode(offset) for at, offset in enumerate(offsets, run.first)}
    return found
