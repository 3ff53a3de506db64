"""OpenTelemetry: one span for each request, in the trace that its client began.

Needs the extra `otel`. The attributes say which model, how long and why; no prompt, no
image, no message that quotes them.
"""

from __future__ import annotations

import time
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from mmroute.server.front.http import Head
from mmroute.server.logs import LogEntry

_FAILURE: Final = 500
_NANO: Final = 1_000_000_000


class Tracing:
    """Sends spans to an OTLP collector over HTTP, in the background.

    OpenTelemetry's own environment variables apply as well (``OTEL_SERVICE_NAME``,
    ``OTEL_TRACES_SAMPLER``, ``OTEL_EXPORTER_OTLP_HEADERS``).
    """

    def __init__(self, endpoint: str, engine: str) -> None:
        resource = Resource.create({"service.name": "mmroute", "mmroute.engine": engine})
        self._provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("mmroute.server")

    def record(self, head: Head, entry: LogEntry, status: int, seconds: float) -> None:
        """The span of a request that has just ended."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in head.headers.items()}
        ended = time.time_ns()
        # Names follow the semantic conventions for generative AI.
        attributes: dict[str, str | int | None] = {
            "http.request.method": head.method,
            "http.route": head.path,
            "http.response.status_code": status,
            "gen_ai.request.model": entry.model,
            "gen_ai.usage.input_tokens": entry.tokens or None,
            "mmroute.request_id": entry.request_id,
            "mmroute.outcome": entry.outcome,
            "mmroute.reason": entry.reason,
            "mmroute.images": entry.images,
        }
        span = self._tracer.start_span(
            f"{head.method} {head.path}",
            extract(carrier),
            SpanKind.SERVER,
            {name: value for name, value in attributes.items() if value is not None},
            start_time=ended - int(seconds * _NANO),
        )
        if status >= _FAILURE:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended)

    def close(self) -> None:
        """Send the spans that were not sent yet."""
        self._provider.shutdown()
