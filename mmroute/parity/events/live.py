"""Sends requests to a running engine, and collects its events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from mmroute.kv_events import EventBatch, Received, Subscriber
from mmroute.parity.cases import Case, UndecidedError
from mmroute.parity.events.comparison import Announced

_QUIET: Final = 0.5  # seconds without an event, after which a request is taken to have no more
_LATEST: Final = 10.0
_CONNECTING: Final = 1.0


def watched(endpoint: str, seconds: float) -> list[EventBatch]:
    """The events that an engine sends in so many seconds, caused by requests of others."""
    with Subscriber(endpoint) as subscriber:
        return list(_batches(subscriber, seconds, seconds))


def announced_by(
    endpoint: str, cases: Iterable[Case], generate: Callable[[Case], str | None]
) -> Iterator[Announced]:
    """Send requests, one after the other, and yield the events of each.

    Args:
        endpoint: the address of the engine's events.
        cases: the requests. A request without a cache salt gets one of its own, so that none of
            its blocks is cached.
        generate: sends a request for one token; returns the refusal, or None.
    """
    with Subscriber(endpoint) as subscriber:
        list(_batches(subscriber, _CONNECTING, _CONNECTING))
        for case in cases:
            fields = dict(case.request)
            fields["cache_salt"] = fields.get("cache_salt") or secrets.token_hex(8)
            salted = replace(case, request=fields)
            try:
                refused = generate(salted)
            except UndecidedError:
                yield Announced(salted)
                continue
            batches = () if refused is not None else _batches(subscriber, _QUIET, _LATEST)
            yield Announced(salted, tuple(batches), refused)


def _batches(subscriber: Subscriber, quiet: float, latest: float) -> Iterator[EventBatch]:
    """The batches that arrive until none arrives for `quiet` seconds, or until `latest`."""
    end = time.monotonic() + latest
    while (left := end - time.monotonic()) > 0:
        messages = subscriber.receive(min(quiet, left))
        if not messages and quiet < latest:
            return
        yield from (message.batch for message in messages if isinstance(message, Received))
