"""The health of an index as metrics of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mmroute.kv_events.block_index import BlockIndex

if TYPE_CHECKING:
    from mmroute.kv_events.subscriber import Subscriber  # pyzmq, an extra

__all__ = ["HealthCollector"]

_WORKER: Final = "mmroute_index_worker_"
_COUNTERS: Final[Mapping[str, str]] = {
    "batches": "Batches of events that were entered",
    "gaps": "How often batches of a worker were lost, and all of its blocks forgotten",
    "lost_batches": "Batches of events that were lost",
    "restarts": "How often another process took a worker's place",
}


class HealthCollector(Collector):
    """The values of `BlockIndex.health`, read at each scrape.

    Give it to a registry: ``prometheus_client.REGISTRY.register(HealthCollector(index))``. Needs
    the extra ``serve``.
    """

    def __init__(
        self, index: BlockIndex, subscribers: Mapping[str, Subscriber] | None = None
    ) -> None:
        self._index = index
        self._subscribers = {} if subscribers is None else subscribers

    def collect(self) -> Iterable[Metric]:
        health, now = self._index.health(), time.monotonic()
        for name, text, value in (
            ("blocks", "Different blocks that workers hold", health.blocks),
            ("bytes", "Memory of the index of blocks", health.bytes),
            ("ranks", "Data-parallel ranks of all workers", health.ranks),
        ):
            yield GaugeMetricFamily(f"mmroute_index_{name}", text, value)
        silence = _worker_gauge("silence_seconds", "Seconds since a worker was heard of last")
        lag = _worker_gauge("lag_seconds", "Seconds from the making of the last batch to its entry")
        counters = {
            name: CounterMetricFamily(f"{_WORKER}{name}", text, labels=("worker",))
            for name, text in _COUNTERS.items()
        }
        for worker, known in health.workers.items():
            silence.add_metric((worker,), now - known.heard_at)
            lag.add_metric((worker,), known.lag)
            for name, counter in counters.items():
                counter.add_metric((worker,), getattr(known, name))
        yield from (silence, lag, *counters.values())
        connected = _worker_gauge("connected", "Publishers that the subscriber is connected to")
        replays = _worker_gauge("replays_answered", "Whether the worker answers replays")
        for worker, subscriber in list(self._subscribers.items()):
            state = subscriber.state()
            connected.add_metric((worker,), state.connected)
            if state.replays is not None:
                replays.add_metric((worker,), state.replays)
        yield from (connected, replays)


def _worker_gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_WORKER}{name}", text, labels=("worker",))
