"""SGLang's hashes of announced pages, computed again from their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.sglang.hashes import SglangHashes, wide_pad_values
from mmroute.hashing import BlockHashes, EventKeys, PageHashes
from mmroute.hashing.hashes import Hashes
from mmroute.hashing.pad_values import PAD_SHIFT, feature_runs
from mmroute.kv_events import BlockIndex, WorkerRank
from mmroute.lab.parity.causes import Change
from mmroute.lab.parity.differences import first_difference
from mmroute.lab.parity.events.chains import Chain
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Lora

SPECULATION: Final = "--speculative-algorithm"
"""See `mmroute.lab.engines.Judge`."""
OTHER_HASHES: Final = (
    "The pages have the same tokens, and other hashes: the engine has another format of events "
    "(--kv-events-config), path of an adapter (--lora-paths), or version."
)
"""See `mmroute.lab.engines.Judge`."""
UNKNOWN_HASHES: Final = (
    "its hashes depend on the path of an adapter, which --lora-paths in --engine-args tells"
)
"""See `mmroute.lab.engines.Judge`."""


def event_ids(routing: Routing) -> Any:
    """See `mmroute.lab.engines.Judge`. Features of unknown pictures have the fill's token."""
    hashing = routing.hashing
    if isinstance(hashing, SglangHashes) and None not in routing.identities:
        return hashing.event_token_ids(routing)
    return routing.token_ids


def event_keys(routing: Routing, block_size: int) -> Sequence[EventKeys]:
    """See `mmroute.lab.engines.Judge`. Only salts are told."""
    first: EventKeys = (routing.cache_salt,) if routing.cache_salt else None
    return first, *(None,) * (len(routing.token_ids) // block_size)


def lookahead(routing: Routing) -> int:
    """See `mmroute.lab.engines.Judge`."""
    return int(isinstance(routing.hashing, SglangHashes) and routing.hashing.bigrams)


def reused_tokens(
    model: ResolvedModel, index: BlockIndex, routing: Routing, hashes: BlockHashes | PageHashes
) -> Mapping[WorkerRank, int | None]:
    """See `mmroute.lab.engines.Judge`.

    The last token of a prompt is always computed, with its page. Where layers have a state, only
    prefixes are reused after which a state was kept, and no event tells them.
    """
    held = index.longest_prefixes(hashes)
    if not isinstance(hashes, PageHashes) or model.family.hybrid:
        return dict.fromkeys(held)
    size, tokens = hashes.page_size, len(routing.token_ids) - lookahead(routing)
    most = (tokens - 1) // size * size if routing.reads_cache else 0
    return {rank: min(blocks * size, most) for rank, blocks in held.items()}


def rehashed(model: ResolvedModel, chain: Chain) -> list[int] | None:
    """See `mmroute.lab.engines.Judge`."""
    return _hashes(model.hashing, chain)


def unpredicted(model: ResolvedModel, routing: Routing, chain: Chain) -> str:
    """See `mmroute.lab.engines.Judge`. The numbers of pictures are taken from the events."""
    if routing.hashing.of_kind is None:
        return "The engine stored pages, and mmroute takes it to keep none."
    length = min(len(routing.token_ids), len(chain.token_ids))
    told, filled = chain.token_ids[:length], routing.token_ids[:length].astype(np.int64)
    for placeholder in routing.placeholders:
        for start, end in feature_runs(placeholder, len(routing.token_ids)):
            stop = max(start, min(end, length))
            first = told[start : min(stop, start + len(wide_pad_values(0)))]
            if first.min(initial=PAD_SHIFT) < PAD_SHIFT:
                return f"The engine has no number of a picture at {start}, where mmroute has one."
            if len(first):
                filled[start:stop] = np.resize(first, stop - start)
    if not np.array_equal(told, filled):
        at = first_difference(told, filled)
        return f"Pages were stored with other tokens, from token {at} on."
    return "" if _hashes(model.hashing, chain) == list(chain.hashes) else OTHER_HASHES


def told_by_events(model: ResolvedModel, chains: Sequence[Chain]) -> list[Change]:
    """See `mmroute.lab.engines.Judge`."""
    known = model.hashing
    if not chains or not isinstance(known, SglangHashes):
        return []
    changes = []
    ((size, _),) = Counter(chain.block_size for chain in chains).most_common(1)
    if size != known.settings.block_size:
        changes.append(Change("--page-size", size, {"page_size": size}))
    if (pairs := any(chain.ahead for chain in chains)) != known.bigrams:
        changes.append(Change(SPECULATION, "EAGLE" if pairs else None, {"bigrams": pairs}))
    other = replace(known, dynamo=not known.dynamo)
    if any(_hashes(other, c) == list(c.hashes) != _hashes(known, c) for c in chains):
        value = '{"format": "dynamo"}' if other.dynamo else None
        changes.append(Change("--kv-events-config", value, {"dynamo_events": other.dynamo}))
    return changes


class _Told:
    """The parts of a prompt that an announced chain tells."""

    identities = ()

    def __init__(self, chain: Chain) -> None:
        self.token_ids = np.append(chain.token_ids, np.array(chain.ahead, np.int64))
        self.cache_salt = next(iter(chain.salts), None)
        self.lora = None if chain.lora_name is None else Lora(chain.lora_name, "")


def _hashes(hashing: Hashes, chain: Chain) -> list[int] | None:
    if not isinstance(hashing, SglangHashes) or chain.lora_name not in {None, *hashing.loras}:
        return None
    told: Any = _Told(chain)
    bits = (1 << 64) - 1
    pages = replace(hashing, bigrams=bool(chain.ahead)).of(told, block_size=chain.block_size)
    return [number & bits for number in pages.event_ints()]
