"""Prometheus metrics. Times are in seconds; labels are routes, models and reasons."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

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


class Metrics:
    """All metrics of one server."""

    def __init__(self, models: Models) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_OfModels(models))
        build = Gauge(
            "mmroute_build_info", "What runs here; always 1", ["version", "python"],
            registry=registry,
        )  # fmt: skip
        build.labels(version_of("mmroute"), platform.python_version()).set(1)
        seconds = Histogram(
            "mmroute_request_duration_seconds",
            "From the end of a request's head to the last byte of its answer",
            ["route", "status"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        stages = Histogram(
            "mmroute_stage_duration_seconds",
            "Stages of a request that was answered; one request of 16 is timed",
            ["model", "stage"], buckets=_STAGE_SECONDS, registry=registry,
        )  # fmt: skip
        routings = Counter(
            "mmroute_routings",
            "Requests by outcome: exact, inexact (422), refused (as the engine refuses it), "
            "fallback, text_prefix or unavailable; and by the reason, or the error's type",
            ["model", "outcome", "reason"], registry=registry,
        )  # fmt: skip
        self._fallbacks = Counter(
            "mmroute_fallbacks_total",
            "Requests forwarded to the fallback, by the status of its response, or failed",
            ["reason", "status"], registry=registry,
        )  # fmt: skip
        self._fallback_engine = Gauge(
            "mmroute_fallback_matches",
            "1 if the fallback has the rules of the engine that is matched, 0 if not; by its "
            "version, and whether these rules are proved, read or unknown",
            ["engine", "version", "evidence"], registry=registry,
        )  # fmt: skip
        self._rejected = Counter(
            "mmroute_rejected_total",
            "Requests that were refused, by the limit that was reached",
            ["limit"], registry=registry,
        )  # fmt: skip
        tokens = Histogram(
            "mmroute_prompt_tokens", "Token IDs of the prompts of a request",
            ["model"], buckets=_TOKENS, registry=registry,
        )  # fmt: skip
        item_tokens = Histogram(
            "mmroute_item_tokens", "Tokens of the items of a modality in a request with any",
            ["model", "modality"], buckets=_TOKENS, registry=registry,
        )  # fmt: skip
        items = Counter(
            "mmroute_items", "Images, videos and audio", ["model", "modality"], registry=registry
        )
        self.in_flight = Gauge(
            "mmroute_requests_in_flight", "Requests that are being answered", registry=registry
        )
        self.following_links = Gauge(
            "mmroute_links_in_flight", "Requests whose links are followed", registry=registry
        )
        self.held_bytes = Gauge(
            "mmroute_held_bytes", "Bytes of bodies, and of answers that are not sent yet",
            registry=registry,
        )  # fmt: skip
        self.connections = Gauge("mmroute_connections", "Open connections", registry=registry)
        self.queued = Histogram(
            "mmroute_queue_duration_seconds", "Time that a request waited for a thread",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.lag = Histogram(
            "mmroute_event_loop_lag_seconds",
            "Delay of the event loop's timer, which is due ten times a second",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip

        # To look labels up takes as long as to count.
        self._seconds = cache(seconds.labels)
        self._stages = cache(stages.labels)
        self._routings = cache(routings.labels)
        self._tokens = cache(tokens.labels)
        self._item_tokens = cache(item_tokens.labels)
        self._items = cache(items.labels)

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
        for loaded in self._models.all_loaded():
            info.add_metric([loaded.name, loaded.model.model_id], 1)
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
        for entry in self._models.entries():
            if entry.publishers is not None:
                publishers.add_metric([entry.source.names[0]], entry.publishers)
            if entry.told_block_size is not None:
                labels_of = [entry.source.names[0], str(entry.told_block_size)]
                matches.add_metric(labels_of, entry.block_size_matches is not False)
        kept_here: list[tuple[str, str, CacheStats]] = [("", "images", self._models.files.stats())]
        for loaded in self._models.all_loaded():
            stats = loaded.normalizer.stats()
            caches: dict[str, CacheStats | None] = {"hashes": stats.hashes, "chats": stats.chats}
            if stats.encoder is not None:
                caches["text"] = stats.encoder.reuse
            kept_here += [(loaded.name, name, r) for name, r in caches.items() if r is not None]
        for model, name, reuse in kept_here:
            hits.add_metric([model, name], reuse.hits)
            misses.add_metric([model, name], reuse.misses)
            kept.add_metric([model, name], reuse.kept_bytes)
        yield from (info, matches, publishers, hits, misses, kept)
