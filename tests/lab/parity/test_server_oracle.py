"""A running server as the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_helpers import IMAGE, SIZE, case, ids, text, undecided, user
from scripted_server import ScriptedServer

from mmroute.lab.parity.oracles import OracleError
from mmroute.lab.parity.oracles.http import HttpOracle
from mmroute.lab.parity.oracles.pictures import has_media, with_pictures
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport


@pytest.mark.process
@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_server_says_who_it_is(server: ScriptedServer, suffix: str) -> None:
    oracle = HttpOracle(server.url + suffix)
    assert (oracle.name, oracle.version, oracle.model) == (server.url, "0.33.0", "m")
    HttpOracle(server.url, api_key="k")
    assert server.headers[-1]["Authorization"] == "Bearer k"


@pytest.mark.process
def test_the_answers_of_mmroute_serve_prove_nothing(server: ScriptedServer) -> None:
    server.routes["/version"] = 200, {"version": "0.33.0", "engine": "vllm", "mmroute": "0.1.0"}
    shown = str(HttpOracle(server.url).running)
    assert "mmroute 0.1.0" in shown
    assert "proved" not in shown


@pytest.mark.process
def test_server_tells_its_model_string(server: ScriptedServer) -> None:
    cards = [{"id": "sql", "parent": "m", "root": "/sql"}, {"id": "m", "root": "Some/Name"}]
    server.routes["/v1/models"] = 200, {"data": cards}
    assert HttpOracle(server.url).running.model_string == "Some/Name"


@pytest.mark.process
def test_server_tokenizes_text(server: ScriptedServer) -> None:
    oracle = HttpOracle(server.url)
    chat = case(messages=user(text("x")), add_generation_prompt=False, cache_salt="s")
    assert ids(oracle, chat) == [1, 2, 3]
    assert oracle.answer(chat).ranges == ()
    assert server.bodies("/tokenize")[0] == {
        "model": "m",
        "messages": user(text("x")),
        "add_generation_prompt": False,
    }
    assert ids(oracle, case(prompt="x")) == [1, 2, 3]
    # The route's own default is another.
    assert server.bodies("/tokenize")[-1]["add_special_tokens"] is False


@pytest.mark.process
def test_server_renders_images(server: ScriptedServer) -> None:
    oracle = HttpOracle(server.url)
    asked = case(messages=user(IMAGE), images=[SIZE], tools=[{"type": "function"}])
    assert ids(oracle, asked) == [7, 9, 9, 8, 9]
    assert oracle.answer(asked).ranges == ((1, 2), (4, 1))
    body = server.bodies("/v1/chat/completions/render")[0]
    assert body["messages"] == with_pictures(user(IMAGE), [SIZE])
    assert (body["mm_payload"], body["tool_choice"], body["max_tokens"]) == ("none", "none", 1)


@pytest.mark.process
@pytest.mark.parametrize(
    "absent",
    [
        (404, {"detail": "Not Found"}),
        (403, {"error": {"message": "Scale-out endpoints are disabled.", "code": 403}}),
    ],
)
def test_without_render_images_are_tokenized_without_ranges(
    server: ScriptedServer, absent: Any
) -> None:
    server.routes["/v1/chat/completions/render"] = absent
    oracle = HttpOracle(server.url)
    asked = case(messages=user(IMAGE), images=[SIZE])
    for _ in range(2):
        assert oracle.answer(asked).ranges is None
    assert len(server.bodies("/v1/chat/completions/render")) == 1
    assert has_media(server.bodies("/tokenize")[0]["messages"])


@pytest.mark.process
def test_server_refuses(server: ScriptedServer) -> None:
    error = {"message": "Failed to load image: cannot identify image file", "code": 400,
             "type": "BadRequestError", "param": None}  # fmt: skip
    server.routes["/v1/chat/completions/render"] = (400, {"error": error})
    answer = HttpOracle(server.url).answer(case(messages=user(IMAGE), images=[SIZE]))
    assert answer.token_ids is None
    assert answer.refusal == error["message"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        ({"tokens": [], "max_model_len": 9}, "empty"),
        ({"tokens": [1] * 9, "max_model_len": 9}, "do not fit"),
    ],
)
def test_tokenize_does_not_check_lengths(server: ScriptedServer, reply: Any, refusal: str) -> None:
    server.routes["/tokenize"] = (200, reply)
    answer = HttpOracle(server.url).answer(case(prompt="x"))
    assert refusal in (answer.refusal or "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, {"detail": "Not Found"}, "vllm launch render"),
        (500, {"error": {"message": "boom", "code": 500}}, "status 500: boom"),
        (503, b"<html>", "status 503: no message"),
        (401, {"error": "Unauthorized"}, "status 401: Unauthorized"),
        (429, {"error": {"message": "slow down"}}, "slow down"),
        (200, b"not json", "something else"),
        (200, {"tokens": ["1"]}, "something else"),
        (200, {"tokens": [-1]}, "something else"),
        (200, {"count": 1}, "something else"),
        (200, [], "something else"),
        (
            400,
            {"error": {"message": "mm_processor_kwargs needs --trust-request-mm-kwargs"}},
            "not started with --trust-request-mm-kwargs",
        ),
    ],
)
def test_what_is_no_answer_of_a_server(
    server: ScriptedServer, status: int, body: Any, why: str
) -> None:
    server.routes["/tokenize"] = (status, body)
    assert why in undecided(HttpOracle(server.url), case(prompt="x"))


@pytest.mark.process
@pytest.mark.parametrize(
    "body",
    [
        [], {}, {"token_ids": [1]}, {"token_ids": [1], "features": 3},
        {"token_ids": [1], "features": {"mm_placeholders": {"image": [{"offset": 1}]}}},
    ],
)  # fmt: skip
def test_what_is_no_rendering(server: ScriptedServer, body: Any) -> None:
    server.routes["/v1/chat/completions/render"] = (200, body)
    asked = case(messages=user(IMAGE), images=[SIZE])
    assert "something else" in undecided(HttpOracle(server.url), asked)


@pytest.mark.process
def test_what_no_route_can_carry(server: ScriptedServer) -> None:
    oracle = HttpOracle(server.url)
    assert "take no images" in undecided(oracle, case(prompt="x", images=[SIZE]))
    assert "token IDs" in undecided(oracle, case(prompt_token_ids=[1]))
    assert "exactly one" in undecided(oracle, case(prompt="x", prompt_token_ids=[1]))
    assert "exactly one" in undecided(oracle, case())
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "written as JSON" in undecided(oracle, case(messages=user(text("x")), tools=deep))


@pytest.mark.process
def test_server_takes_too_long(server: ScriptedServer) -> None:
    oracle = HttpOracle(server.url, timeout=0.2)
    server.delay = 1.0
    assert "did not answer within 0.2 s" in undecided(oracle, case(prompt="x"))


@pytest.mark.process
def test_server_goes_away(server: ScriptedServer) -> None:
    oracle = HttpOracle(server.url)
    oracle._transport = Transport(Remote("http://127.0.0.1:9"))
    assert "cannot be reached" in undecided(oracle, case(prompt="x"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9", "vllm launch render"),
        ("http://", "must be of the form"),
        ("ftp://h", "must be of the form"),
        ("http://h:port", "malformed"),
        ("http://user:secret@h", "credentials"),
        ("http://h/?x=1", "must be of the form"),
    ],
)
def test_no_server(url: str, why: str) -> None:
    with pytest.raises(OracleError) as caught:
        HttpOracle(url)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.process
def test_server_without_the_model(server: ScriptedServer) -> None:
    with pytest.raises(OracleError, match="serves m, and not other"):
        HttpOracle(server.url, served_model="other")
    for status, body, why in (
        (401, {"error": "Unauthorized"}, "API key"),
        (404, b"", "is it a vLLM server"),
        (200, {"data": []}, "names no model"),
    ):
        server.routes["/v1/models"] = (status, body)
        with pytest.raises(OracleError, match=why):
            HttpOracle(server.url)
