"""Watches whether an engine announces the prompts that the server predicted for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from mmroute.errors import InexactError
from mmroute.hashing import BlockHashes
from mmroute.kv_events import BlockIndex, Watch, Watched, WatchedState
from mmroute.kv_events.streams import Message
from mmroute.server.api import Reply

_MOST_ANSWERED: Final = 1024
_DIGITS: Final = 16  # of the 64 bits of a hash that events carry


class Trust:
    """The predictions for the engine of one model, whose events are heard.

    Answers are only noted. They are compared in the thread that hears the events.
    """

    def __init__(self, worker: str, model: str, *, acts: bool) -> None:
        self.worker, self.model = worker, model
        self._index = BlockIndex(by_content=True)
        self._watch = Watch(self._index, acts=acts)
        self._answered: deque[tuple[Reply, str]] = deque(maxlen=_MOST_ANSWERED)

    def answered(self, reply: Reply, version: str) -> None:
        """Note an answer. Raises `InexactError` if the engine differs, and this acts on it."""
        self._answered.append((reply, version))
        self._watch.check(self.worker, self.model, version)

    def enter(self, messages: Iterable[Message]) -> int | None:
        """Enter what the engine sent; the number of tokens under one hash, once that is known."""
        size = self._index.block_size(self.worker)
        while self._answered:
            reply, version = self._answered.popleft()
            if size is not None:
                self._sent(reply, version, size)
        for message in messages:
            self._index.apply(self.worker, message)
        return self._index.block_size(self.worker)

    def states(self) -> Mapping[Watched, WatchedState]:
        """What is known of the predictions, by the engine's version."""
        return self._watch.states()

    def _sent(self, reply: Reply, version: str, size: int) -> None:
        for routing in reply.routings:
            # A router looks prompts up by these, and they may differ where the content is equal.
            hashes: Any = reply.body.get("block_hashes") if isinstance(reply.body, dict) else None
            if hashes and len(hashes) == len(routing.token_ids) // size:
                tail = routing.hashing.of_kind is BlockHashes
                part = slice(-_DIGITS, None) if tail else slice(_DIGITS)
                hashes = [int(h[part], 16) if isinstance(h, str) else h for h in hashes]
            else:
                hashes = None
            with suppress(InexactError):  # an identity that is not known
                self._watch.sent(
                    self.worker, routing, size, model=self.model, version=version, hashes=hashes
                )
