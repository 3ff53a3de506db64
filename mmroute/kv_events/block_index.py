"""Which worker holds which KV cache blocks, for a fleet, kept up to date by KV events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from threading import Lock
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from mmroute.engines.events import (
    AllBlocksCleared,
    BlockRemoved,
    Changes,
    EventBatch,
    decode_changes,
)
from mmroute.hashing import BlockHashes, PageHashes
from mmroute.kv_events.contents import ByContent, Listener
from mmroute.kv_events.groups import GPU, Held, enter_group, hash_size, reused_tokens
from mmroute.kv_events.health import Health, WorkerHealth
from mmroute.kv_events.holders import Blocks, Table, longest, new_table
from mmroute.kv_events.ranks import Rank, Ranks, WorkerRank, packed
from mmroute.kv_events.snapshots import SavedRank, Snapshot
from mmroute.kv_events.streams import Lost, Message, Position, Received, Restarted, Source

_NUMBER_BITS: Final = 64


class Residency(NamedTuple):
    """Where a copy of a block is. The events that store and remove a copy have the same values.

    vLLM's `OffloadingEventsTracker` keys by these three as well.
    """

    group_idx: int | None
    medium: str | None
    ownership: str | None


class BlockIndex:
    """Which blocks each worker holds, kept up to date by its KV events.

    Rules, each from vLLM (files below vllm/):

    - Copies are counted, by KV cache group, medium and secondary tier. The pool does not merge
      equal blocks, and sends one event per copy (`BlockHashToBlockMap`, v1/core/block_pool.py);
      `OffloadingEventsTracker` (distributed/kv_transfer/kv_connector/v1/offloading/events.py)
      asks for counts too. The price: blocks that a request with ``kv_cache_report_mode`` "full"
      has announced again, without a copy, stay here until the cache is cleared.
    - A block is held if any group in any medium holds it. Groups need not agree: those with a
      sliding window or a recurrent state skip blocks (`cache_full_blocks`), those with larger
      blocks have fewer hashes. Where groups are mixed the engine may reuse less than is held:
      `reused_tokens` says how much.
    - `AllBlocksCleared` clears every medium of the rank. It names none: the GPU's pool sends it
      and so does the CPU's (v1/simple_kv_offload/manager.py), while v1/kv_offload/cpu/manager.py
      is reset without an event. A copy that survived is missed until it is stored again; one
      kept in error would attract requests for ever.
    - A batch without a rank is of rank 0, the publishers' default (distributed/kv_events.py).
    - Hashes are compared as unsigned numbers of 64 bits, the most that every publisher gives: the
      low bits, or where an engine publishes the first ones, as signed numbers, those.

    A block takes 21 to 32 bytes if one rank holds it, and some bits more for each further rank.
    What a rank held is forgotten at once when its cache is cleared; the memory is given back bit
    by bit, as later batches are entered. Every method may be called from any thread: a lock is
    held while events are entered or a prefix is looked up, not while they are decoded. The batches
    of one rank must come in the order of their sequence numbers.

    An index `by_content` knows blocks by keys of mmroute's own, made of the token IDs and extra
    keys in the events: look prompts up by `Routing.content_keys`. The engine's hashes tell parents
    and removed blocks only, so workers may hash by any algorithm, seed or version. Blocks of which
    an event does not tell all that their hashes cover are not held. A block takes half as much
    memory again.

    Args:
        by_content: whether blocks are known by what they hold, not by the engine's hashes.
    """

    def __init__(self, *, by_content: bool = False) -> None:
        self._lock = Lock()
        self._tables: dict[Residency, Table] = {}
        self._contents = ByContent(self._tables) if by_content else None
        self._ranks = Ranks(self._tables)
        self._health: dict[str, WorkerHealth] = {}
        self._has_pages = False

    def __repr__(self) -> str:
        return f"<BlockIndex of {len(self._ranks)} ranks>"

    def apply(self, worker: str, message: Message | EventBatch | bytes) -> None:
        """Enter a worker's message. Where this raises, nothing of the message was entered.

        `Lost` and `Restarted` make the index forget all blocks of the worker: a lost batch may
        have removed some of them, and a new process holds none.

        Args:
            worker: the worker's name.
            message: a message from a `Subscriber`, a batch, or the payload of one.

        Raises:
            EventsError: the payload cannot be decoded; see `decode_events`.
            ValueError: there are 4,095 ranks, and this would be one more.
        """
        if isinstance(message, Lost | Restarted):
            self._interrupt(worker, message)
            return
        if isinstance(message, Received):
            changes = message.changes
        else:
            changes = decode_changes(message) if isinstance(message, bytes) else message
        has_pages = changes.has_pages
        with self._lock:
            rank = self._rank(WorkerRank(worker, changes.data_parallel_rank or 0))
            if isinstance(message, Received):
                rank.topic = message.source.topic
                rank.position = Position(message.sequence, changes.ts)
            self._health[worker].enter(changes.ts)
            self._has_pages |= has_pages and self._contents is None
            self._enter(worker, rank, changes)
            self._ranks.sweep()

    def tell(self, listener: Listener) -> None:
        """Tell a `Watch` of what workers announce. Raises ValueError if this is not by content."""
        if self._contents is None:
            raise ValueError("a watch needs an index by content: BlockIndex(by_content=True)")
        self._contents.listener = listener

    def holds(self, worker: str, key: int) -> bool:
        """Whether a rank of a worker holds the block of a key."""
        with self._lock:
            slots = packed(self._ranks[rank].slot for rank in self._ranks.of_worker(worker))
            return any(longest(tuple(self._tables.values()), (key,), slots))

    def heard(self, worker: str) -> None:
        """Note a sign of life that is no batch, such as the end of a replay."""
        with self._lock:
            self._health.setdefault(worker, WorkerHealth()).heard_at = time.monotonic()

    def remove_worker(self, worker: str) -> None:
        """Forget a worker and all its ranks. A name that is not known is no error."""
        with self._lock:
            for rank in self._ranks.of_worker(worker):
                self._ranks.remove(rank)
            self._health.pop(worker, None)
            self._tell_interrupt(worker, restarted=True)

    def expire(self, seconds: float) -> list[str]:
        """Forget the workers that sent nothing for `seconds`, and return their names."""
        oldest = time.monotonic() - seconds
        with self._lock:
            silent = [name for name, health in self._health.items() if health.heard_at < oldest]
        for worker in silent:
            self.remove_worker(worker)
        return silent

    def longest_prefixes(
        self, hashes: Iterable[bytes | int], *, medium: str | None = None
    ) -> dict[WorkerRank, Blocks]:
        """How many leading blocks of a prompt each rank of each worker holds.

        Args:
            hashes: the hashes of the prompt's blocks, in order: `Routing.block_hashes` or
                `Routing.page_hashes`, their `event_ints`, or vLLM's in full or their low 64 bits.
                `Routing.content_keys` for an index by content.
            medium: count only copies in this medium, such as ``GPU``; None for all.

        Returns:
            A number for every rank that ever sent a batch, 0 included, in the order of their
            first batches.

        Raises:
            ValueError: hashes in full that may be of pages, after a worker sent signed numbers, or
                that are given to an index by content.

        >>> from mmroute.kv_events import BlockStored
        >>> index = BlockIndex()
        >>> stored = BlockStored((b"hash one", b"hash two"), None, (), 16, None, "GPU", None)
        >>> index.apply("worker-0", EventBatch(1.5, (stored,)))
        >>> index.longest_prefixes([b"hash one", b"hash two", b"hash 333"])
        {WorkerRank(worker='worker-0', data_parallel_rank=0): 2}
        """
        wanted = self._numbered(hashes)
        with self._lock:
            tables = tuple(
                table
                for residency, table in self._tables.items()
                if medium is None or residency.medium == medium
            )
            return dict(
                zip(self._ranks, longest(tables, wanted, self._ranks.packed()), strict=True)
            )

    def block_size(self, worker: str) -> int | None:
        """The number of tokens under one hash of a worker, according to its events.

        Give it to `Routing.block_hashes`: for hybrid models the engine chooses it. The number is
        wrong for a worker that runs with ``--prefix-match-unit``.

        Returns:
            None before the first block in GPU memory.
        """
        with self._lock:
            ranks = [self._ranks[rank] for rank in self._ranks.of_worker(worker)]
            return hash_size([group for rank in ranks for group in rank.groups.values()])

    def reused_tokens(
        self,
        hashes: Iterable[bytes | int],
        *,
        num_tokens: int,
        block_size: int,
        reads_cache: bool = True,
    ) -> dict[WorkerRank, int | None]:
        """How many leading tokens of a prompt each rank will take from its GPU's cache.

        It differs from `longest_prefixes` for a model whose layers keep different blocks: the
        engine reuses what all of them keep. See `mmroute.kv_events.groups`.

        Args:
            hashes: the hashes of the prompt's blocks, in order, as in `longest_prefixes`.
            num_tokens: the number of tokens of the prompt.
            block_size: the number of tokens under one hash.
            reads_cache: whether the engine looks the prompt up; see `Routing.reads_cache`.

        Returns:
            A number for every rank that ever sent a batch, 0 for a prompt that is not looked up.
            None where the events do not tell it: a group has announced no block yet, or is of a
            kind that is not covered.
        """
        wanted = self._numbered(hashes)
        with self._lock:
            if not reads_cache:
                return dict.fromkeys(self._ranks, 0)
            held = {
                number: self._held(wanted, number)
                for number in {r.group_idx for r in self._tables if r.medium == GPU}
            }
            tokens_by_rank: dict[WorkerRank, int | None] = {}
            for at, (rank, known) in enumerate(self._ranks.items()):
                groups = known.groups
                own = [(group, held[n][at : at + 1]) for n, group in groups.items()]
                tokens = reused_tokens(own, num_tokens=num_tokens, block_size=block_size)
                is_known = tokens is not None and groups.keys() == set(range(len(groups)))
                tokens_by_rank[rank] = int(tokens[0]) if tokens is not None and is_known else None
        return tokens_by_rank

    def _held(self, hashes: tuple[bytes | int, ...], group_idx: int | None) -> Held:
        """Which blocks of a prompt each rank holds for one group in its GPU's memory."""
        tables = tuple(
            table
            for residency, table in self._tables.items()
            if residency.group_idx == group_idx and residency.medium == GPU
        )
        rows = [longest(tables, (one,), self._ranks.packed()) for one in hashes]
        return np.array(rows, bool).reshape(len(hashes), len(self._ranks)).T

    def residencies(
        self, rank: WorkerRank, hashes: Iterable[bytes | int]
    ) -> dict[Residency, tuple[bool, ...]]:
        """Which blocks of a prompt one rank holds, by KV cache group, medium and tier.

        Args:
            rank: the rank. An unknown rank holds nothing.
            hashes: the hashes of the prompt's blocks, as in `longest_prefixes`.

        Returns:
            For each residency of which any worker ever stored a block, one value per hash.
        """
        wanted = self._numbered(hashes)
        with self._lock:
            known = self._ranks.get(rank)
            slots = packed([known.slot] if known else [])
            return {
                residency: tuple(longest((table,), (one,), slots) == [1] for one in wanted)
                for residency, table in self._tables.items()
            }

    def positions(self, worker: str) -> dict[Source, Position]:
        """How far a worker's batches were entered, for a `Subscriber` that goes on from there."""
        with self._lock:
            ranks = [(rank, self._ranks[rank]) for rank in self._ranks.of_worker(worker)]
        return {
            Source(known.topic, rank.data_parallel_rank): known.position
            for rank, known in ranks
            if known.topic is not None and known.position is not None
        }

    def health(self) -> Health:
        """The size of the index, and what it heard from each worker."""
        with self._lock:
            return Health(
                blocks=Blocks(sum(table.num_blocks() for table in self._tables.values())),
                bytes=sum(table.__sizeof__() for table in self._tables.values()),
                ranks=len(self._ranks),
                workers={name: replace(health) for name, health in self._health.items()},
            )

    def snapshot(self) -> bytes:
        """All blocks and positions as bytes, for `from_snapshot` in another process.

        A snapshot has 14 bytes for each block of each rank. The index is locked while it is made,
        some 40 ms for a million of them.

        Raises:
            ValueError: an index by content has none: it would need the engines' hashes as well.
        """
        if self._contents is not None:
            raise ValueError(
                "an index by content has no snapshot; let it hear the workers' replays"
            )
        with self._lock:
            ranks = tuple(
                SavedRank(*rank, known.slot, known.topic, known.position, known.groups)
                for rank, known in self._ranks.items()
            )
            slots = self._ranks.packed()
            tables = tuple((*r, table.dump(slots)) for r, table in self._tables.items())
            saved = Snapshot("mmroute index 1", ranks, tables, self._has_pages)
        return msgspec.msgpack.encode(saved)

    @classmethod
    def from_snapshot(cls, snapshot: bytes) -> Self:
        """The index of which `snapshot` was taken.

        Give each worker's `Subscriber` the worker's `positions`, so that it asks for the batches
        that came after the snapshot.

        Raises:
            ValueError: these bytes are no snapshot.
        """
        index = cls()
        try:
            saved = msgspec.msgpack.decode(snapshot, type=Snapshot)
            index._has_pages = saved.has_pages
            index._ranks.take({each.slot for each in saved.ranks})
            for each in saved.ranks:
                rank = index._rank(WorkerRank(each.worker, each.data_parallel_rank), each.slot)
                rank.topic = each.topic
                rank.position = Position(*each.position) if each.position else None
                rank.groups = each.groups
            for group_idx, medium, ownership, records in saved.tables:
                table = index._tables[Residency(group_idx, medium, ownership)] = new_table()
                table.load(records)
        except ValueError as error:  # msgspec's errors are such, too
            message = f"{len(snapshot)} bytes are no snapshot of a BlockIndex: {error}"
            raise ValueError(message) from error
        return index

    def _numbered(self, hashes: Iterable[bytes | int]) -> tuple[bytes | int, ...]:
        """The hashes as tables compare them. Those of pages are known by their numbers alone."""
        if self._contents is not None:
            keys = tuple(hashes)
            if any(isinstance(one, bytes) for one in keys[:1]):
                raise ValueError(
                    "an index by content finds nothing by an engine's hashes; give the result of "
                    "Routing.content_keys"
                )
            return keys
        if type(hashes) is PageHashes:  # isinstance takes longer, and this is asked for each prompt
            return tuple(hashes.event_ints())
        wanted = tuple(hashes)
        if (
            self._has_pages
            and not isinstance(hashes, BlockHashes)
            and any(isinstance(one, bytes) or one.bit_length() > _NUMBER_BITS for one in wanted)
        ):
            raise ValueError(
                "hashes in full do not say whether an engine publishes their low or their first 64 "
                "bits, and workers of both kinds are known; give the result of "
                "Routing.block_hashes or Routing.page_hashes itself, or its event_ints()"
            )
        return wanted

    def _enter(self, worker: str, rank: Rank, changes: Changes | EventBatch) -> None:
        contents = self._contents
        for event in changes.events:
            if isinstance(event, AllBlocksCleared):
                if contents is not None:
                    contents.finish(rank.slot)
                self._ranks.move(rank)
                continue
            if not event.block_hashes:
                continue
            residency = Residency(event.group_idx, event.medium, event.ownership)
            table = self._tables.get(residency)
            if isinstance(event, BlockRemoved):
                if table is not None:
                    gone = event.block_hashes
                    keys = contents.removed(rank.slot, table, gone) if contents else gone
                    table.remove(rank.slot, keys)
                continue
            if table is None:
                table = self._tables[residency] = new_table()
            enter_group(rank.groups, event)
            if contents is not None:
                contents.store(worker, rank, table, event)
            else:
                table.store(rank.slot, event.block_hashes)
        if contents is not None:
            contents.finish(rank.slot)

    def _interrupt(self, worker: str, message: Lost | Restarted) -> None:
        with self._lock:
            self._health.setdefault(worker, WorkerHealth()).interrupt(message)
            self._tell_interrupt(worker, restarted=isinstance(message, Restarted))
            for rank in self._ranks.of_worker(worker):
                self._ranks.move(self._ranks[rank])
                self._ranks[rank].position = None
                if isinstance(message, Restarted):  # the new process may have other options
                    self._ranks[rank].groups = {}

    def _tell_interrupt(self, worker: str, *, restarted: bool) -> None:
        if self._contents is not None and self._contents.listener is not None:
            self._contents.listener.interrupted(worker, restarted=restarted)

    def _rank(self, rank: WorkerRank, slot: int | None = None) -> Rank:
        known = self._ranks.get(rank)
        if known is None:
            known = self._ranks.add(rank, slot)
            self._health.setdefault(rank.worker, WorkerHealth())
        return known
