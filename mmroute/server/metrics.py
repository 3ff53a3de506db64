"""Prometheus metrics. Times are in seconds; labels are routes, models and reasons."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mmroute.answering.stages import Stage
from mmroute.engines.running import RunningEngine
from mmroute.health.tested_versions import version_of
from mmroute.kv_events import Outcome, State
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import CacheStats
from mmroute.server.models import Models

_SECONDS: Final = (
    0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01,
    0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_STAGE_SECONDS: Final = (
    0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1,
    1.0,
)  # fmt: skip
_NANO: Final = 1e-9
_TOKENS: Final = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_METRICS: Final[Mapping[str, tuple[Any, Sequence[str], Sequence[float], str]]] = {
    "build_info": (Gauge, ("version", "python"), (), "What runs here; always 1"),
    "request_duration_seconds": (Histogram, ("route", "status"), _SECONDS,
        "From the end of a request's head to the last byte of its answer"),
    "stage_duration_seconds": (Histogram, ("model", "stage"), _STAGE_SECONDS,
        "Stages of a request that was answered; one request of 16 is timed"),
    "routings": (Counter, ("model", "outcome", "reason"), (),
        "Requests by outcome, and by the reason of an inexact one, or the error's type"),
    "fallbacks_total": (Counter, ("reason", "status"), (),
        "Requests forwarded to the fallback, by the status of its response, or failed"),
    "fallback_matches": (Gauge, ("engine", "version", "evidence"), (),
        "1 if the fallback has the rules of the engine that is matched, 0 if not"),
    "rejected_total": (Counter, ("limit",), (),
        "Requests that were refused, by the limit that was reached"),
    "prompt_tokens": (Histogram, ("model",), _TOKENS, "Token IDs of the prompts of a request"),
    "item_tokens": (Histogram, ("model", "modality"), _TOKENS,
        "Tokens of the items of a modality in a request with any"),
    "items": (Counter, ("model", "modality"), (), "Images, videos and audio"),
    "requests_in_flight": (Gauge, (), (), "Requests that are being answered"),
    "links_in_flight": (Gauge, (), (), "Requests whose links are followed"),
    "held_bytes": (Gauge, (), (), "Bytes of bodies, and of answers that are not sent yet"),
    "connections": (Gauge, (), (), "Open connections"),
    "queue_duration_seconds": (Histogram, (), _SECONDS,
        "Time that a request waited for a thread"),
    "event_loop_lag_seconds": (Histogram, (), _SECONDS,
        "Delay of the event loop's timer, which is due ten times a second"),
}  # fmt: skip
"""Name -> its kind, labels, buckets and description."""


class Metrics:
    """All metrics of one server."""

    def __init__(self, models: Models) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_OfModels(models))

        def made(name: str) -> Any:
            kind, labels, buckets, text = _METRICS[name]
            more = {"buckets": buckets} if buckets else {}
            return kind(f"mmroute_{name}", text, labels, registry=registry, **more)

        build = made("build_info").labels(version_of("mmroute"), platform.python_version())
        build.set(1)
        self.in_flight = made("requests_in_flight")
        self.following_links = made("links_in_flight")
        self.held_bytes = made("held_bytes")
        self.connections = made("connections")
        self.queued = made("queue_duration_seconds")
        self.lag = made("event_loop_lag_seconds")
        self._fallbacks = made("fallbacks_total")
        self._fallback_engine = made("fallback_matches")
        self._rejected = made("rejected_total")
        # To look labels up takes as long as to count.
        self._seconds = cache(made("request_duration_seconds").labels)
        self._stages = cache(made("stage_duration_seconds").labels)
        self._routings = cache(made("routings").labels)
        self._tokens = cache(made("prompt_tokens").labels)
        self._item_tokens = cache(made("item_tokens").labels)
        self._items = cache(made("items").labels)

    def page(self) -> bytes:
        """The text of ``/metrics``."""
        return generate_latest(self._registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request of any outcome."""
        self._seconds(route, status).observe(seconds)

    def answered(
        self,
        model: str,
        tokens: int,
        items: Mapping[Modality, tuple[int, int]],
        stages: Mapping[Stage, int],
    ) -> None:
        """Count an exact answer."""
        self._routings(model, "exact", "").inc()
        self._tokens(model).observe(tokens)
        for stage, nanoseconds in stages.items():
            self._stages(model, stage).observe(nanoseconds * _NANO)
        for modality, (count, item_tokens) in items.items():
            self._items(model, modality).inc(count)
            self._item_tokens(model, modality).observe(item_tokens)

    def inexact(self, model: str | None, outcome: str, reason: str) -> None:
        """Count a request without an exact answer."""
        self._routings(model or "", outcome, reason).inc()

    def fallback(self, reason: str, status: str) -> None:
        """Count a response of the fallback."""
        self._fallbacks.labels(reason, status).inc()

    def fallback_engine(self, running: RunningEngine, *, matches: bool) -> None:
        """Set the engine of the fallback."""
        self._fallback_engine.clear()
        labels = (running.engine, running.version, running.evidence.value)
        self._fallback_engine.labels(*labels).set(matches)

    def rejected(self, limit: str) -> None:
        """Count a request that was refused because of a limit."""
        self._rejected.labels(limit).inc()


class _OfModels(Collector):
    """What models and their caches tell, which is read when metrics are scraped."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        labels = ["model", "cache"]
        hits = CounterMetricFamily(
            "mmroute_cache_hits",
            "Prompts of which a prefix was cached, and images that were cached",
            labels=labels,
        )
        misses = CounterMetricFamily(
            "mmroute_cache_misses",
            "Other prompts that are long enough for the cache, and other images in data URLs",
            labels=labels,
        )
        kept = GaugeMetricFamily("mmroute_cache_bytes", "Bytes in the cache", labels=labels)
        info = GaugeMetricFamily(
            "mmroute_model_info",
            "Models that are loaded, and the engine's model string that identities cover; always 1",
            labels=["model", "model_id"],
        )
        matches = GaugeMetricFamily(
            "mmroute_block_size_matches",
            "0 if the KV events of a model's engine have another block size than its settings, "
            "else 1",
            labels=["model", "block_size"],
        )
        publishers = GaugeMetricFamily(
            "mmroute_events_publishers",
            "Publishers of KV events that are connected, of a model with --events",
            labels=["model"],
        )
        watched = ["model", "worker", "version"]
        predictions = CounterMetricFamily(
            "mmroute_predictions",
            "Requests by what their engine announced of them, of models with --events",
            labels=[*watched, "outcome"],
        )
        states = GaugeMetricFamily(
            "mmroute_prediction_state",
            "1 for what is known of the predictions for an engine: proved, unproved or differs",
            labels=[*watched, "state"],
        )
        reuse: list[tuple[str, str, CacheStats | None]] = [
            ("", "images", self._models.files.stats())
        ]
        for entry in self._models.entries():
            name, loaded = entry.source.names[0], entry.loaded
            if entry.publishers is not None:
                publishers.add_metric([name], entry.publishers)
            for watch, known in entry.trust.states().items() if entry.trust else ():
                whose = [name, watch.worker, watch.version]
                for outcome in Outcome:
                    predictions.add_metric([*whose, outcome], known.counts[outcome])
                for state in State:
                    states.add_metric([*whose, state], state is known.state)
            if entry.told_block_size is not None:
                matches_given = entry.block_size_matches is not False
                matches.add_metric([name, str(entry.told_block_size)], matches_given)
            if loaded is not None:
                info.add_metric([name, loaded.model.model_id], 1)
                stats = loaded.normalizer.stats()
                text = None if stats.encoder is None else stats.encoder.reuse
                reuse += (name, "hashes", stats.hashes), (name, "chats", stats.chats)
                reuse.append((name, "text", text))
        for model, of, counted in reuse:
            if counted is not None:
                hits.add_metric([model, of], counted.hits)
                misses.add_metric([model, of], counted.misses)
                kept.add_metric([model, of], counted.kept_bytes)
        yield from (info, matches, publishers, predictions, states, hits, misses, kept)
