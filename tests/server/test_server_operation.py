"""What operators see: loading, metrics, logs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION, EMBEDDINGS, HI, TOKENIZE, picture, user
from media_files import png_url
from server_helpers import error_of, log_lines, metric, serving
from starlette.testclient import TestClient
from waiting import until

from mmroute import ModelError, Normalizer, Reason
from mmroute.chat import cache
from mmroute.chat.resumable import proved
from mmroute.server import ModelSource, ServerSettings, create_app
from mmroute.server.engines.vllm import LoadedModel
from mmroute.server.logs import JsonLines
from mmroute.server.models import Models
from mmroute.server.settings import AccessLog
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

QUOTED: Final = "the-words-of-a-client"


def test_no_answer_before_the_models_are_loaded(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, load = threading.Event(), Normalizer.from_pretrained

    def wait(*args: Any, **kwargs: Any) -> Normalizer:
        assert gate.wait(60)
        loaded: Normalizer = load(*args, **kwargs)
        return loaded

    monkeypatch.setattr(Normalizer, "from_pretrained", wait)
    models = Models([ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))])
    with TestClient(create_app(models)) as client:
        assert client.get("/health").status_code == 503
        early = client.post(CHAT, json={"messages": HI})
        assert error_of(early) == (503, "ServiceUnavailableError", None)
        assert error_of(client.post(CHAT, json={"messages": HI, "model": "b"}))[0] == 404
        assert client.get("/v1/models").json()["data"][0]["max_model_len"] is None
        assert client.get("/version").json()["version"] == "0.33.0"
        gate.set()
        until(lambda: client.get("/health").status_code == 200)
        assert client.post(CHAT, json={"messages": HI}).status_code == 200


def test_the_first_request_waits_for_nothing(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, templates = [], []
    encode, encode_cut, prove = HfTokenizer.encode, HfTokenizer.encode_cut, proved

    def encoding(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.get_ident())
        return encode(*args, **kwargs)

    def cutting(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return encode_cut(*args)

    def proving(template: Any) -> Any:
        templates.append(template)
        return prove(template)

    monkeypatch.setattr(HfTokenizer, "encode", encoding)
    monkeypatch.setattr(HfTokenizer, "encode_cut", cutting)
    monkeypatch.setattr(cache, "proved", proving)
    models = Models([ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))])
    with TestClient(create_app(models)) as client:
        until(lambda: client.get("/health").status_code == 200)
        before, proofs = set(threads), len(templates)
        turns = [*HI, {"role": "assistant", "content": "Hi"}] * 20
        assert client.post(CHAT, json={"messages": [*turns, *HI]}).status_code == 200
    assert set(threads) == before  # fastokens prepares itself in each thread
    assert len(templates) == proofs > 0


def test_an_unhealthy_model_is_not_served(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sick:
        healthy, warnings, failures = False, ("a warning",), "text: comes back as something else"

    monkeypatch.setattr("mmroute.server.loading.check_model", lambda _: Sick())
    models = Models([ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))])
    with pytest.raises(ModelError, match="comes back") as found:
        [entry.loading.result() for entry in models.load()]
    assert found.value.reason is Reason.SELF_CHECK_FAILED
    assert not models.ready


def test_a_model_can_answer_once_its_loading_has_ended(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(loaded: LoadedModel, **changes: Any) -> LoadedModel:
        time.sleep(0.5)
        return replace(loaded, **changes)

    monkeypatch.setattr("mmroute.server.entry.replace", late)
    models = Models([ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))])
    (entry,) = models.load()
    assert entry.loading.result() is models.find("a")


def test_what_happened_is_counted_by_model_route_and_reason(models: Models) -> None:
    with serving(models) as client:
        client.post(f"{CHAT}?block_size=4", json={"messages": user(picture(64, 48))})
        client.post(CHAT, json={"messages": EMBEDDINGS})
        client.post(CHAT, json={"messages": "no list"})
        client.post(CHAT, content=b"{", headers={"content-type": "application/json"})
        client.post(CHAT, json={"messages": HI, "model": "nobody"})
        client.post(CHAT, json={"messages": []})
        client.get("/nope")
        name = 'model="small-qwen2.5-vl"'
        for sample, value in (
            (f'mmroute_routings_total{{{name},outcome="exact",reason=""}}', 1),
            (
                f'mmroute_routings_total{{{name},outcome="inexact",reason="unsupported_modality"}}',
                1,
            ),
            (f'mmroute_routings_total{{{name},outcome="refused",reason="invalid_request"}}', 1),
            ('mmroute_routings_total{model="",outcome="refused",reason="BadRequest"}', 2),
            ('mmroute_routings_total{model="",outcome="refused",reason="NotFoundError"}', 1),
            *(
                (f'mmroute_stage_duration_seconds_count{{{name},stage="{stage}"}}', 1)
                for stage in ("parse", "render", "encode", "count", "place", "identify", "hash")
            ),
            (f'mmroute_item_tokens_sum{{modality="image",{name}}}', 4),
            (f'mmroute_items_total{{modality="image",{name}}}', 1),
            (f"mmroute_prompt_tokens_count{{{name}}}", 1),
            (f'mmroute_request_duration_seconds_count{{route="{CHAT}",status="200"}}', 1),
            (f'mmroute_request_duration_seconds_count{{route="{CHAT}",status="422"}}', 1),
            ('mmroute_request_duration_seconds_count{route="none",status="404"}', 1),
            ("mmroute_requests_in_flight", 0),
        ):
            assert metric(client, sample) == value, sample
        page = client.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain")
        model_id = models.find(None).model.model_id
        shown = (f'model_id="{model_id}"', "mmroute_build_info", "mmroute_cache_hits_total")
        assert [text for text in (*shown, "process_") if text not in page.text] == []


def test_logs_hold_no_content(models: Models) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    logger, keep = logging.getLogger("mmroute"), Keep()
    level = logger.level
    logger.addHandler(keep)
    logger.setLevel(logging.DEBUG)
    try:
        with serving(models, ServerSettings(access_log=AccessLog.ALL)) as client:
            url = png_url(32, 32)
            for body in (
                {"messages": user({"type": "text", "text": QUOTED}, picture(32, 32))},
                {"messages": user({"type": "text", "text": 5, QUOTED: QUOTED})},
                {"messages": [{"role": QUOTED}], "cache_salt": QUOTED + "@"},
                {"model": QUOTED, "messages": HI},
                {"messages": EMBEDDINGS, "documents": [{"text": QUOTED}]},
                {"prompt": [QUOTED, 5]},
            ):
                for path in (CHAT, COMPLETION, TOKENIZE, f"/{QUOTED}"):
                    client.post(path, json=body)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "mmroute.answering.pipeline.prepare", lambda *_, **__: 1 / 0 or QUOTED
                )
                broken = client.post(
                    CHAT, json={"messages": user({"type": "text", "text": QUOTED})}
                )
                assert error_of(broken) == (500, "InternalServerError", None)
    finally:
        logger.removeHandler(keep)
        logger.setLevel(level)
    text = "\n".join(lines)
    assert QUOTED not in text
    assert url[30:60] not in text
    events = log_lines(text)
    requests = [line for line in events if line["event"] == "request"]
    assert len(requests) >= 25
    assert {"request_id", "route", "status", "seconds", "model", "outcome", "reason"} <= set(
        requests[0]
    )
    failed = next(line for line in events if line["event"] == "failed")
    assert failed["error"] == "ZeroDivisionError"
    assert failed["at"]


def test_refused_requests_are_logged_with_their_field(
    models: Models, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mmroute.server"), serving(models) as client:
        client.post(CHAT, json={"messages": [{"role": 5}]})
        client.post(CHAT, json={"messages": HI})
    (line,) = [r.__dict__["fields"] for r in caplog.records if r.msg == "request"]
    assert (line["status"], line["outcome"], line["reason"]) == (400, "refused", "BadRequest")
    assert line["param"].startswith("body.messages")
