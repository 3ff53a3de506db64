"""Requests without an exact answer that another server answers."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from chat_requests import CHAT, EMBEDDINGS, HI, user
from scripted_server import ScriptedServer
from server_helpers import error_of, metric, serving

from mmroute.server import InexactPolicy, ServerSettings, create_app
from mmroute.server.engines.vllm.routes import OWN_ROUTES
from mmroute.server.fallback import Fallback
from mmroute.server.models import Models

TOKENS: Final = {"token_ids": [7], "features": None}


class Upstream(ScriptedServer):
    """A server that answers every POST alike."""

    def __init__(self, status: int = 200, answer: Any = TOKENS, delay: float = 0.0) -> None:
        super().__init__()
        self.routes = {"/version": self.routes["/version"]}
        self.others, self.delay = (status, answer), delay

    @property
    def seen(self) -> list[tuple[str, Any, bytes]]:
        """Path, headers and body of each POST."""
        asked = zip(self.asked, self.headers, self.raw, strict=True)
        return [(path, headers, raw) for (path, _), headers, raw in asked if raw]


def fallback_to(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(inexact=InexactPolicy.FALLBACK, fallback_url=url, **more)


@pytest.mark.process
def test_the_fallback_answers_and_says_so(models: Models) -> None:
    with Upstream() as upstream:
        settings = fallback_to(upstream.url + "/v1", fallback_api_key="theirs", api_keys=("mine",))
        with serving(models, settings) as client:
            raw = json.dumps({"messages": EMBEDDINGS, "zzz": 1}, indent=3).encode()
            headers = {
                "content-type": "application/json", "x-request-id": "r",
                "authorization": "Bearer mine",
            }  # fmt: skip
            answer = client.post(f"{CHAT}?block_size=16", content=raw, headers=headers)
            assert answer.json() == TOKENS
            assert answer.headers["x-mmroute-fallback"] == "unsupported_modality"
            assert "x-mmroute-outcome" not in answer.headers
            ((path, sent, body),) = upstream.seen
            assert path == f"{CHAT}?block_size=16"
            assert json.loads(body) == {**json.loads(raw), "mm_payload": "none"}
            assert (sent["authorization"], sent["x-request-id"]) == ("Bearer theirs", "r")
            routings = (
                'mmroute_routings_total{model="small-qwen2.5-vl",outcome="fallback",'
                'reason="unsupported_modality"}'
            )
            fallbacks = 'mmroute_fallbacks_total{reason="unsupported_modality",status="200"}'
            assert metric(client, routings) == metric(client, fallbacks) == 1
            exact = client.post(CHAT, json={"messages": HI}, headers=headers)
            assert "x-mmroute-fallback" not in exact.headers
            refused = client.post(CHAT, json={"messages": []}, headers=headers)
            assert error_of(refused) == (400, "BadRequestError", None)
            assert len(upstream.seen) == 1
            url = "data:image/png;base64,AAAA"
            odd = user({"type": "image_url", "image_url": {"url": url}})
            unreadable = client.post(CHAT, json={"messages": odd}, headers=headers)
            assert unreadable.headers["x-mmroute-fallback"] == "image_unreadable"


@pytest.mark.process
def test_a_client_s_own_payload_is_not_sent_beside_another(models: Models) -> None:
    fields = json.dumps({"messages": EMBEDDINGS, "temperature": 1.5})[1:-1]
    bodies = {
        f'{{{fields}, "mm_payload": "tensors"}}': 1,
        f'{{"mm_\\u0070ayload": "none", {fields}}}': 1,
        f"{{{fields}}} ": 1,
        # No strict JSON: a server in Python takes the last of two.
        f'{{"mm_payload": "tensors", {fields}, "top_p": NaN}}': 2,
    }
    with Upstream() as upstream:
        with serving(models, fallback_to(upstream.url)) as client:
            for body in bodies:
                headers = {"content-type": "application/json"}
                answer = client.post(CHAT, content=body.encode(), headers=headers)
                assert answer.json() == TOKENS
        for (_, _, sent), (body, times) in zip(upstream.seen, bodies.items(), strict=True):
            expected = {**json.loads(body, parse_constant=str), "mm_payload": "none"}
            assert json.loads(sent, parse_constant=str) == expected
            pairs: list[tuple[str, Any]] = json.loads(sent, object_pairs_hook=list)
            assert [name for name, _ in pairs].count("mm_payload") == times


@pytest.mark.process
def test_what_the_fallback_refuses_is_handed_back(models: Models) -> None:
    error = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
    with (
        Upstream(400, error) as upstream,
        serving(models, fallback_to(upstream.url)) as client,
    ):
        answer = client.post(CHAT, json={"messages": EMBEDDINGS})
        assert (answer.status_code, answer.json()) == (400, error)
        assert answer.headers["x-mmroute-fallback"] == "unsupported_modality"


@pytest.mark.process
def test_token_ids_of_answers_are_handed_on_as_they_were_sent(models: Models) -> None:
    with Upstream(answer={"choices": []}) as upstream:
        with serving(models, fallback_to(upstream.url)) as client:
            raw = b'{"generate_response": {"choices": [{"index": 0, "token_ids": [1]}]}}'
            answer = client.post(
                "/v1/chat/completions/derender",
                content=raw,
                headers={"content-type": "application/json"},
            )
        assert (answer.status_code, answer.json()) == (200, {"choices": []})
        ((path, _, body),) = upstream.seen
        assert (path, body) == ("/v1/chat/completions/derender", raw)


@pytest.mark.process
@pytest.mark.parametrize("path", sorted(OWN_ROUTES))
def test_the_fallback_is_not_asked_for_a_route_that_vllm_does_not_have(
    models: Models, path: str
) -> None:
    link = user({"type": "input_image", "image_url": "http://127.0.0.1/a.png"})
    body = {"messages": EMBEDDINGS, "input": link}
    with Upstream() as upstream, serving(models, fallback_to(upstream.url)) as client:
        answer = client.post(path, json=body)
        assert error_of(answer)[:2] == (422, "InexactRouting")
        assert not upstream.seen


@pytest.mark.process
@pytest.mark.parametrize("host", ["x/v1/completions?", "x@y/z", "[::1", "évil"])
def test_the_fallback_is_asked_by_the_route_alone(models: Models, host: str) -> None:
    """Whatever a client calls the host, and whatever its request's ID is made of."""
    with Upstream() as upstream, serving(models, fallback_to(upstream.url)) as client:
        headers = {b"host": host.encode(), b"x-request-id": "é".encode("latin-1")}
        answer = client.post(
            f"{CHAT}?block_size=16", json={"messages": EMBEDDINGS}, headers=headers
        )
        assert answer.status_code == 200
        ((path, seen, _),) = upstream.seen
        assert path == f"{CHAT}?block_size=16"
        assert "x-request-id" in seen


@pytest.mark.parametrize(
    "url",
    ["http://h:99999", "http://h:abc", "unix:///x", "ftp://x", "http://", "http://a:b@x", "x"],
)
def test_a_fallback_that_cannot_be(models: Models, url: str) -> None:
    with pytest.raises(ValueError, match="fallback URL"):
        create_app(models, fallback_to(url))


def test_no_key_is_shown() -> None:
    keys = {"api_keys": ("k1",), "admin_key": "k2", "fallback_api_key": "k3"}
    assert not re.search("k[123]", repr(ServerSettings(**keys)))  # type: ignore[arg-type]  # of several kinds
    with pytest.raises(ValueError, match="credentials") as refused:
        Fallback("http://user:pass@h:1/?a=1")
    assert "pass" not in str(refused.value)


@pytest.mark.process
@pytest.mark.parametrize("wait", [None, 2.0])
def test_a_fallback_that_fails(models: Models, wait: float | None) -> None:
    with Upstream(delay=wait or 0) as upstream:
        url = upstream.url if wait else "http://127.0.0.1:1"
        with serving(models, fallback_to(url, fallback_timeout=0.2)) as client:
            answer = client.post(CHAT, json={"messages": EMBEDDINGS})
            assert error_of(answer) == (502, "BadGatewayError", "unsupported_modality")
            assert answer.headers["x-mmroute-fallback"] == "unsupported_modality"
            failed = 'mmroute_fallbacks_total{reason="unsupported_modality",status="failed"}'
            assert metric(client, failed) == 1


@pytest.mark.process
@pytest.mark.parametrize("status", [401, 403])
def test_a_fallback_that_refuses_this_server(models: Models, status: int) -> None:
    """That is no answer to the client, whose key is another one."""
    with Upstream(status) as upstream, serving(models, fallback_to(upstream.url)) as client:
        answer = client.post(CHAT, json={"messages": EMBEDDINGS})
        assert error_of(answer) == (502, "BadGatewayError", "unsupported_modality")


@pytest.mark.process
def test_a_fallback_that_is_away_is_left_alone(models: Models) -> None:
    with Upstream(503) as upstream, serving(models, fallback_to(upstream.url)) as client:
        answers = [client.post(CHAT, json={"messages": EMBEDDINGS}) for _ in range(8)]
        assert [answer.status_code for answer in answers] == [503] * 5 + [502] * 3
        assert len(upstream.seen) == 5
