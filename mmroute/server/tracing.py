"""OpenTelemetry: one span for each request, in the trace that its client began.

Needs the extra ``mmroute[otel]``. The attributes say which model, how long and why; no prompt, no
image, no message that quotes them.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmroute.server.endpoints import LOG_ENTRY
from mmroute.server.logs import LogEntry

__all__ = ["Tracing"]

_FAILURE: Final = 500


class Tracing:
    """Sends spans to an OTLP collector over HTTP, in the background.

    What OpenTelemetry's own environment variables say holds beside it (``OTEL_SERVICE_NAME``,
    ``OTEL_TRACES_SAMPLER``, ``OTEL_EXPORTER_OTLP_HEADERS``).

    Args:
        endpoint: the collector's URL, ``http://HOST:4318/v1/traces``.
    """

    def __init__(self, endpoint: str) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "mmroute"}))
        exporter = OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))

    def middleware(self, routes: frozenset[str]) -> Middleware:
        """A span for each request to one of these routes."""
        return Middleware(_Spans, self._provider.get_tracer("mmroute.server"), routes)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class _Spans:
    def __init__(self, app: ASGIApp, tracer: Tracer, routes: frozenset[str]) -> None:
        self._app = app
        self._tracer = tracer
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._routes:
            await self._app(scope, receive, send)
            return
        status = _FAILURE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        name = f"{scope['method']} {scope['path']}"
        parent = extract(Headers(scope=scope))
        with self._tracer.start_as_current_span(
            name, parent, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                await self._app(scope, receive, observed)
            finally:
                span.set_attributes(
                    {
                        "http.request.method": scope["method"],
                        "http.route": scope["path"],
                        "http.response.status_code": status,
                        **_attributes(scope[LOG_ENTRY]),
                    }
                )
                if status >= _FAILURE:
                    span.set_status(Status(StatusCode.ERROR))


def _attributes(entry: LogEntry) -> dict[str, str | int]:
    """Names of the semantic conventions for generative AI, where there are such."""
    found = {
        "gen_ai.request.model": entry.model,
        "gen_ai.usage.input_tokens": entry.tokens or None,
        "mmroute.request_id": entry.request_id,
        "mmroute.outcome": entry.outcome,
        "mmroute.reason": entry.reason,
        "mmroute.images": entry.images,
    }
    return {name: value for name, value in found.items() if value is not None}
