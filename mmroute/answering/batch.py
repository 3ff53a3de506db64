"""Many requests, in order, on as many cores as one process can use."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mmroute.answering.routing import Routing

if TYPE_CHECKING:
    from concurrent.futures import Future

_CHUNK: Final = 64  # requests that one thread takes at a time
_AHEAD: Final = 4  # chunks for each thread that are read before they are due


def normalize_many(
    normalize: Callable[..., Routing], requests: Iterable[Mapping[str, Any]], threads: int | None
) -> Iterator[Routing]:
    """See `Normalizer.normalize_many`."""
    if threads is None:
        # With a global lock, threads wait for each other longer than they work.
        threads = 1 if _has_global_lock() else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, found {threads}")
    if threads == 1:
        return (normalize(**request) for request in requests)
    return _in_threads(normalize, requests, threads)


def _in_threads(
    normalize: Callable[..., Routing], requests: Iterable[Mapping[str, Any]], threads: int
) -> Iterator[Routing]:
    from concurrent.futures import ThreadPoolExecutor  # rarely needed

    waiting = iter(requests)
    pending: deque[Future[list[Routing]]] = deque()

    def answer(chunk: list[Mapping[str, Any]]) -> list[Routing]:
        return [normalize(**request) for request in chunk]

    with ThreadPoolExecutor(threads, thread_name_prefix="mmroute") as pool:
        while True:
            while len(pending) < threads * _AHEAD and (chunk := list(islice(waiting, _CHUNK))):
                pending.append(pool.submit(answer, chunk))
            if not pending:
                return
            yield from pending.popleft().result()


def _has_global_lock() -> bool:
    enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and later
    return True if enabled is None else bool(enabled())
