"""A reference index of which worker holds which KV cache blocks, kept up to date by KV events.

It is for tests, demos and small routers. Replay of missed sequence numbers, sharding and expiry are
not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import NamedTuple, TypeAlias

from mmroute.hashing.vllm import event_int
from mmroute.kv_events.events import AllBlocksCleared, BlockStored, EventBatch, decode_events

__all__ = ["BlockIndex", "WorkerRank", "low_bits"]


class WorkerRank(NamedTuple):
    """One data-parallel rank of a worker: each has a cache of its own."""

    worker: str
    data_parallel_rank: int


class _Residency(NamedTuple):
    """Where a copy is; a removal must match it. vLLM's `OffloadingEventsTracker` keys by these."""

    group_idx: int | None
    medium: str | None
    ownership: str | None


_Cache: TypeAlias = dict[_Residency, Counter[int]]


class BlockIndex:
    """Which blocks each worker holds, kept up to date by its KV events.

    Rules, each from vLLM 0.33.0 (files below vllm/):

    - Copies are counted, by KV cache group, medium and secondary tier. The pool does not merge
      equal blocks, and sends one event per copy (`BlockHashToBlockMap`, v1/core/block_pool.py);
      `OffloadingEventsTracker` (distributed/kv_transfer/kv_connector/v1/offloading/events.py)
      asks for counts too. The price: blocks that a request with ``kv_cache_report_mode`` "full"
      has announced again, without a copy, stay here until the cache is cleared.
    - A block is held if any group in any medium holds it. Groups need not agree: those with a
      sliding window or a recurrent state skip blocks (`cache_full_blocks`), those with larger
      blocks have fewer hashes. Where groups are mixed the engine may reuse less than is held.
    - `AllBlocksCleared` clears every medium of the rank. It names none: the GPU's pool sends it
      and so does the CPU's (v1/simple_kv_offload/manager.py), while v1/kv_offload/cpu/manager.py
      is reset without an event. A copy that survived is missed until it is stored again; one
      kept in error would attract requests for ever.
    - A batch without a rank is of rank 0, the publishers' default (distributed/kv_events.py).
    - Hashes are compared by their low 64 bits, the most that every publisher gives.

    Nothing is kept for a block that nobody holds. Every method may be called from any thread: a
    lock is held while events are entered or a prefix is looked up, not while they are decoded.
    The batches of one rank must come in the order of their sequence numbers.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._caches: dict[WorkerRank, _Cache] = {}

    def __repr__(self) -> str:
        return f"<BlockIndex of {len(self._caches)} ranks>"

    def apply(self, worker: str, batch: EventBatch | bytes) -> None:
        """Enter one batch of a worker's events, all of it or nothing.

        Raises:
            EventsError: the payload cannot be decoded; see `decode_events`.
        """
        if not isinstance(batch, EventBatch):
            batch = decode_events(batch)
        rank = WorkerRank(worker, batch.data_parallel_rank or 0)
        with self._lock:
            cache = self._caches.setdefault(rank, {})
            for event in batch.events:
                if isinstance(event, AllBlocksCleared):
                    cache.clear()
                    continue
                residency = _Residency(event.group_idx, event.medium, event.ownership)
                hashes = map(low_bits, event.block_hashes)
                if not event.block_hashes:
                    continue
                if isinstance(event, BlockStored):
                    cache.setdefault(residency, Counter()).update(hashes)
                else:
                    _remove(cache, residency, hashes)

    def remove_worker(self, worker: str) -> None:
        """Forget a worker, all its ranks; one that is not known is no error."""
        with self._lock:
            for rank in [rank for rank in self._caches if rank.worker == worker]:
                del self._caches[rank]

    def longest_prefixes(self, hashes: Sequence[bytes]) -> dict[WorkerRank, int]:
        """How many leading blocks of a prompt each rank of each worker holds.

        Args:
            hashes: the full hashes of the prompt's blocks, in order.

        Returns:
            A number for every rank that ever sent a batch, 0 included, in the order of their
            first batches.

        >>> index = BlockIndex()
        >>> stored = BlockStored((b"hash one", b"hash two"), None, (), 16, None, "GPU", None)
        >>> index.apply("worker-0", EventBatch(1.5, (stored,)))
        >>> index.longest_prefixes([b"hash one", b"hash two", b"hash 333"])
        {WorkerRank(worker='worker-0', data_parallel_rank=0): 2}
        """
        with self._lock:
            lengths = dict.fromkeys(self._caches, 0)
            matching = list(self._caches.items())
            for length, block_hash in enumerate(hashes, start=1):
                low = low_bits(block_hash)
                matching = [
                    (rank, cache)
                    for rank, cache in matching
                    if any(low in copies for copies in cache.values())
                ]
                if not matching:
                    break
                for rank, _ in matching:
                    lengths[rank] = length
        return lengths


def low_bits(block_hash: bytes | int) -> int:
    """The low 64 bits of a hash, which an event may hold in full or as these bits."""
    return block_hash if isinstance(block_hash, int) else event_int(block_hash)


def _remove(cache: _Cache, residency: _Residency, hashes: Iterable[int]) -> None:
    """Take one copy of each away; a block that is not here was cleared, or stored unseen."""
    copies = cache.get(residency)
    if copies is None:
        return
    for low in hashes:
        if copies[low] > 1:
            copies[low] -= 1
        else:
            copies.pop(low, None)
    if not copies:
        del cache[residency]
