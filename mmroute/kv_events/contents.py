"""The keys of stored blocks by what they hold, for an index that knows no engine's hashes."""

from __future__ import annotations

from collections.abc import Callable

from mmroute.engines.events import BlockStored, StoredHashes

KeysOf = Callable[[tuple[bytes | int, ...]], tuple[int, ...]]
"""The keys for which an engine's hashes stand, as far as they are known."""


def keys_of_event(
    event: BlockStored | StoredHashes, hash_size: int, keys_of: KeysOf
) -> tuple[int, ...]:
    """The key of each block of an event; empty where the event does not tell what they hold.

    Groups of larger blocks have some of the keys of the smallest, which have `hash_size` tokens.
    """
    try:
        contents = event.contents()
    except ValueError:  # fields of a form that no engine has; the hashes are known all the same
        return ()
    count, size = len(event.block_hashes), event.block_size
    if contents is None or not size or len(contents.token_ids) != count * size:
        return ()  # blocks of a window are left out, or nothing tells of tokens or keys
    parent: int | None = None
    if event.parent_block_hash is not None:
        known = keys_of((event.parent_block_hash,))
        if len(known) != 1:
            return ()
        parent = known[0]
    scale = size // hash_size
    if scale > 1 and contents.extra:  # of whole blocks, and not of their parts
        return ()
    return contents.keys(hash_size, parent)[scale - 1 :: scale]
