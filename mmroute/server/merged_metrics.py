"""The metrics of several processes as those of one server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

__all__ = ["SharedPages"]

_ENDED: Final = ".ended"
# Of these the processes have the same; everything else is added up.
_SAME: Final = ("_info", "_matches", "_start_time_seconds", "_max_fds", "_created")


class SharedPages:
    """A directory in which each process keeps its page of metrics, so that any can show all.

    What a process has counted stays when it has ended, or counters would go backwards.

    Args:
        directory: of this server alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, page: bytes) -> None:
        """Keep the page of this process."""
        path = self._directory / str(os.getpid())
        beside = path.with_suffix(".new")
        beside.write_bytes(page)
        beside.replace(path)

    def end(self, pid: int) -> None:
        """A process has ended: its counters stay, what it held does not."""
        path = self._directory / str(pid)
        if path.exists():
            path.replace(path.with_suffix(_ENDED))

    def merged(self) -> bytes:
        """One page for all."""
        pages = [p for p in self._directory.iterdir() if p.suffix in ("", _ENDED)]
        return generate_latest(_Merged([(p.read_text(encoding="utf-8"), p.suffix) for p in pages]))


class _Merged(Collector):
    def __init__(self, pages: list[tuple[str, str]]) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], Sample]] = {}
        for page, suffix in self._pages:
            for family in text_string_to_metric_families(page):
                if suffix == _ENDED and family.type == "gauge":
                    continue
                families.setdefault(family.name, family)
                known = values.setdefault(family.name, {})
                for sample in family.samples:
                    key = sample.name, frozenset(sample.labels.items())
                    value = sample.value
                    if key in known:
                        both = (known[key].value, value)
                        value = max(both) if sample.name.endswith(_SAME) else sum(both)
                    known[key] = Sample(sample.name, sample.labels, value)
        for name, family in families.items():
            family.samples = list(values[name].values())
            yield family
        living = sum(suffix == "" for _, suffix in self._pages)
        yield GaugeMetricFamily("mmroute_processes", "Processes that answer", living)
