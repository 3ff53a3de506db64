"""Explains why announced blocks are not the predicted ones, by trying other settings.

Three layers are compared: token IDs, extra keys, hashes. Each is computed from the engine's values
of the layers before it, so that one wrong setting does not hide another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.hashing import num_hashed
from mmroute.hashing.hashes import Hashes
from mmroute.kv_events import EventBatch
from mmroute.kv_events.holders import low_bits
from mmroute.lab.parity.causes import Cause, Remedy
from mmroute.lab.parity.differences import first_difference
from mmroute.lab.parity.events.chains import Chain, Chains, stored_in
from mmroute.lab.parity.events.hashings import HashedWith, hashed_with, predicted_keys
from mmroute.lab.parity.events.remedies import (
    block_size_remedy,
    expected_settings,
    items_and_salts,
    key_remedies,
    lookahead_remedy,
    setting_remedies,
    unexplained_remedy,
)
from mmroute.lab.parity.remedies import token_remedy
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Lora, Request
from mmroute.token_ids import TokenIds

_UNEXPLAINED: Final = (
    "No algorithm, layout or PYTHONHASHSEED up to 1999 gives the announced hashes. Without "
    "PYTHONHASHSEED, xxhash and vLLM before 0.29 draw a seed at random: set it."
)
_UNTOLD: Final = (
    "The events do not have the extra keys. With the identities, the adapter and the salt that "
    "mmroute predicts, no algorithm, layout or PYTHONHASHSEED up to 1999 gives the announced "
    "hashes. If only requests with images differ, the engine has another model string, which "
    "--engine URL asks for."
)


class Explainer:
    """Finds causes; those found for one request are tried first for the next one."""

    def __init__(
        self,
        model: ResolvedModel,
        chains: Chains,
        *,
        alone: bool = False,
        running: RunningEngine | None = None,
    ) -> None:
        self._model = model
        self._chains = chains
        self._alone = alone
        self._engine_model = "" if running is None else running.model_string
        self._frontend_known = (
            running is not None and running.frontend == model.engine.release.frontend
        )
        self._found: HashedWith | None = None
        self._arguments: list[Mapping[str, Any]] = []

    def of_ids(
        self,
        request: Request,
        routing: Routing,
        theirs: TokenIds,
        fits: Callable[[Routing], bool] | None = None,
    ) -> Remedy:
        """The cause by which the engine has other token IDs; the arguments are `token_remedy`'s."""
        return token_remedy(
            self._model,
            request,
            routing,
            theirs,
            fits=fits,
            arguments_found=self._arguments,
            frontend_known=self._frontend_known,
        )

    def of_blocks(
        self,
        request: Request,
        routing: Routing,
        chain: Chain | None,
        batches: Sequence[EventBatch],
        *,
        told: bool,
    ) -> tuple[Remedy, ...]:
        """The causes by which stored blocks differ; none if it is not known which ones they are.

        If nothing was stored, any announced prompt may be the request's whose tokens are the same,
        such as one with another picture of that size: the one is taken that settings explain best.
        """
        stored = [number for e in stored_in(batches) for number in e.block_hashes]
        if chain is None and stored:
            before = tuple(self._as_before(routing, set(map(low_bits, stored))))
            if before or self._alone:
                return before
        ids = routing.token_ids
        chains = [chain] if chain else most_alike(self._chains.with_tokens(ids), routing)
        found = (tuple(self._of_chain(request, routing, each, told=told)) for each in chains)
        return min(found, key=lambda causes: sum(not c.setting for c in causes), default=())

    def _as_before(self, routing: Routing, stored: set[int]) -> Iterator[Remedy]:
        """The causes found for earlier requests, if they explain blocks of unknown positions."""
        found, expected = self._found, expected_settings(routing.hashing, routing.lora)
        if found is None or found.tagged != expected.tagged:
            return
        hashes = routing.block_hashes(found.algorithm, seed=found.seed).hashes
        if stored <= set(map(low_bits, hashes)):
            yield from setting_remedies(found, expected)

    def _of_chain(
        self, request: Request, routing: Routing, chain: Chain, *, told: bool
    ) -> Iterator[Remedy]:
        """The causes by which announced blocks differ from those of a request."""
        size = chain.block_size
        full = _num_published(routing, chain)
        length = min(full, len(chain.token_ids))
        other_size = size != routing.hashing.settings.block_size
        if other_size:
            yield block_size_remedy(size, routing.hashing.settings)
        ours, theirs = routing.token_ids[:length], chain.token_ids[:length]
        other_ids = not told and (length < full or not np.array_equal(ours, theirs))
        if other_ids:
            fits = partial(_announced, chain)
            yield self.of_ids(request, routing, chain.token_ids, fits)
        if chain.keys is not None:
            yield from key_remedies(self._model, request, routing, chain, self._engine_model)
            yield from self.of_hashes(routing.hashing, routing.lora, chain)
        elif not (other_size or other_ids):
            predicted = _with_predicted_keys(chain, routing)
            yield from self.of_hashes(routing.hashing, routing.lora, predicted, _UNTOLD)

    def of_hashes(
        self, hashing: Hashes, lora: Lora | None, chain: Chain, unexplained: str = _UNEXPLAINED
    ) -> Iterator[Remedy]:
        """The settings by which announced hashes differ from those of the same tokens and keys."""
        expected = expected_settings(hashing, lora)
        covered = hashing.lookahead if isinstance(hashing, VllmHashes) else 0
        if len(chain.ahead) != covered:
            yield lookahead_remedy(len(chain.ahead), covered)
        paths = [path for path in (expected.lora_path, chain.lora_name) if path]
        found = hashed_with(chain, self._found or expected, paths)
        if found is None:
            yield unexplained_remedy(chain, unexplained)
            return
        self._found = found
        yield from setting_remedies(found, expected)
        if lora is not None and found.lora_path != expected.lora_path:
            why = f"The adapter's path is {found.lora_path!r}, not {expected.lora_path!r}."
            yield Remedy(Cause.LORA, why)


def most_alike(chains: Sequence[Chain], routing: Routing) -> list[Chain]:
    """The announced prompts that have most in common with an exact answer."""
    ours = [identity.value for identity in routing.identities if identity is not None]

    def alike(chain: Chain) -> tuple[bool, bool, int]:
        names, salts = items_and_salts(chain)
        same_items = bool(names) and names == ours[: len(names)]
        common = first_difference(routing.token_ids, chain.token_ids)
        return routing.cache_salt in salts, same_items, common

    likeness = [alike(chain) for chain in chains]
    return [c for c, found in zip(chains, likeness, strict=True) if found == max(likeness)]


def _num_published(routing: Routing, chain: Chain) -> int:
    """The number of tokens of a prompt whose blocks the engine publishes."""
    hashed = num_hashed(len(routing.token_ids), chain.block_size, len(chain.ahead))
    return routing.hashing.settings.num_published(hashed) * chain.block_size


def _announced(chain: Chain, routing: Routing) -> bool:
    """Whether all full blocks of a prompt were announced; blocks of an output may follow them."""
    if not routing.exact:
        return False
    length = _num_published(routing, chain)
    ours: TokenIds = routing.token_ids[:length]
    return length > 0 and np.array_equal(ours, chain.token_ids[:length])


def _with_predicted_keys(chain: Chain, routing: Routing) -> Chain:
    """The announced blocks with our extra keys, because the events do not have the engine's."""
    keys = predicted_keys(routing, chain.block_size)
    length = len(keys) * chain.block_size
    return replace(
        chain,
        token_ids=chain.token_ids[:length],
        hashes=chain.hashes[: len(keys)],
        keys=tuple(keys),
    )
