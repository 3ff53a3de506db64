"""Spans, as a collector receives them."""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, EMBEDDINGS, HI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from server_helpers import serving

from mmroute.cli import main
from mmroute.engines.vllm.profile import VLLM
from mmroute.server import ModelSource, ServerSettings

QUOTED = "the-words-of-a-client"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the spans that are sent to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _CollectorHandler)
        self.resources: list[Any] = []
        self.raw = b""
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        return [s for r in self.resources for scope in r.scope_spans for s in scope.spans]


class _CollectorHandler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            raise AssertionError("not asked for")
        self.server.raw += raw
        self.server.resources += ExportTraceServiceRequest.FromString(raw).resource_spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


@pytest.mark.process
def test_each_request_is_a_span_of_its_clients_trace(
    small_model: Callable[[str], Path], collector: Collector
) -> None:
    source = ModelSource(str(small_model("small-qwen2.5-vl")), ("qwen",))
    with serving([source], ServerSettings(otlp_traces_endpoint=collector.url)) as client:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        messages = [{"role": "user", "content": QUOTED}]
        answer = client.post(CHAT, json={"messages": messages}, headers=headers).json()
        client.post(CHAT, json={"messages": EMBEDDINGS})
        client.get("/health")
    # What is left is sent when the server ends.
    exact, inexact = collector.spans
    resource = attributes(collector.resources[0].resource)
    assert resource["mmroute.engine"] == VLLM.release.label
    assert resource["service.name"] == "mmroute"
    assert exact.name == f"POST {CHAT}"
    assert (exact.trace_id.hex(), exact.parent_span_id.hex()) == (TRACE, PARENT)
    found = attributes(exact)
    assert found == {
        "http.request.method": "POST", "http.route": CHAT, "http.response.status_code": 200,
        "gen_ai.request.model": "qwen", "gen_ai.usage.input_tokens": len(answer["token_ids"]),
        "mmroute.request_id": "mine", "mmroute.outcome": "exact", "mmroute.images": 0,
    }  # fmt: skip
    assert not inexact.parent_span_id
    assert attributes(inexact)["http.response.status_code"] == 422
    assert attributes(inexact)["mmroute.reason"] == "unsupported_modality"
    assert QUOTED.encode() not in collector.raw


@pytest.mark.process
def test_a_collector_that_is_gone_costs_no_answer(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # it is asked again, at the end
    source = ModelSource(str(small_model("small-qwen2.5-vl")), ("qwen",))
    with serving([source], ServerSettings(otlp_traces_endpoint="http://127.0.0.1:9")) as client:
        assert client.post(CHAT, json={"messages": HI}).status_code == 200


def test_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "mmroute.server.tracing", raising=False)
    arguments = ["serve", str(tmp_path), "--port", "0", "--otlp-traces-endpoint", "http://x"]
    assert main(arguments) == 1
    assert "pip install '.[otel]'" in capsys.readouterr().err
