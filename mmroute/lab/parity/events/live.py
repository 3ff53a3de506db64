"""Sends requests to a running engine, and collects its events."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from mmroute.kv_events import EventBatch, Received, Subscriber
from mmroute.lab.parity.cases import Case, Served, UndecidedError
from mmroute.lab.parity.events.chains import stored_in
from mmroute.lab.parity.events.comparison import Announced

_QUIET: Final = 0.5  # seconds without an event, after which a request is taken to have no more
_LATEST: Final = 10.0
_CONNECTING: Final = 1.0
_UNHEARD: Final = 3  # requests after which an engine without any event is not waited for


def watched(endpoint: str, seconds: float) -> list[EventBatch]:
    """The events that an engine sends in so many seconds, caused by requests of others."""
    with Subscriber(endpoint) as subscriber:
        return [message.batch for message in _received(subscriber, seconds)]


def announced_by(
    endpoint: str,
    cases: Iterable[Case],
    generate: Callable[[Case], Served],
    *,
    salted: bool = True,
) -> Iterator[Announced]:
    """Send requests, one after the other, and yield the events of each."""
    expected = _Expected()
    with Subscriber(endpoint) as subscriber:
        _received(subscriber, _CONNECTING)
        for case in cases:
            sent = _salted(case) if salted else case
            try:
                served = generate(sent)
            except UndecidedError as error:
                yield Announced(sent, unsent=str(error))
                continue
            messages: list[Received] = []
            if served.refusal is None:
                expected.begin(served)
                end = time.monotonic() + _LATEST
                while more := _received(subscriber, expected.patience(), least=1):
                    expected.enter(message.batch for message in more)
                    messages += more
                    if time.monotonic() > end:
                        break
            payloads = tuple(message.payload for message in messages)
            batches = tuple(message.batch for message in messages)
            yield Announced(sent, batches, served, payloads=payloads)


@dataclass(slots=True)
class _Expected:
    """The number of tokens of a request that will be announced, so that nobody waits for more."""

    _sizes: set[int] = field(default_factory=set)
    _requests: int = 0
    _served: Served = field(default_factory=Served)
    _announced: Counter[int | None] = field(default_factory=Counter)  # by group

    def begin(self, served: Served) -> None:
        self._served = served
        self._announced.clear()
        self._requests += 1

    def enter(self, batches: Iterable[EventBatch]) -> None:
        for event in stored_in(batches):
            self._sizes.add(event.block_size)
            self._announced[event.group_idx] += len(event.block_hashes) * event.block_size

    def patience(self) -> float:
        """The seconds to wait for another event."""
        tokens = self._served.num_tokens
        if not self._sizes:  # it may be an engine that announces nothing
            return _QUIET if self._requests <= _UNHEARD else 0.0
        if tokens is None:
            return _QUIET
        whole = math.lcm(*self._sizes)  # the engine keeps whole blocks of all groups
        left = tokens // whole * whole - (self._served.cached_tokens or 0)
        return _QUIET if max(self._announced.values(), default=0) < left else 0.0


def _salted(case: Case) -> Case:
    salt = case.request.get("cache_salt") or secrets.token_hex(8)
    return replace(case, request={**case.request, "cache_salt": salt})


def _received(subscriber: Subscriber, seconds: float, least: float = math.inf) -> list[Received]:
    """The batches that arrive within so many seconds, or until there are `least`."""
    end, found = time.monotonic() + seconds, list[Received]()
    while True:
        left = max(0.0, end - time.monotonic())
        messages = subscriber.receive(left)
        found += [message for message in messages if isinstance(message, Received)]
        if len(found) >= least or not left:
            return found
