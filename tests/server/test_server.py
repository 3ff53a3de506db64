"""The server's routes, in process: forms, errors, limits, the fallback."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from paths import ROOT
from server_cases import png_url
from server_helpers import (
    CHAT,
    COMPLETION,
    DETOKENIZE,
    EMBEDDINGS,
    HI,
    TOKENIZE,
    FakeRender,
    error_of,
    log_lines,
    metric,
    serving,
)
from starlette.testclient import TestClient

from mmroute import ImageSize, Lora, MmrouteError, ModelError, Normalizer, Reason
from mmroute.engines.settings import EngineSettings
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.pipeline import prepare
from mmroute.server import InexactPolicy, ModelSource, ServerSettings, create_app
from mmroute.server.errors import REFUSED_BY_ENGINE, USUALLY_REFUSED
from mmroute.server.fallback import Fallback
from mmroute.server.logs import JsonLines
from mmroute.server.models import Models
from mmroute.server.settings import AccessLog

QUOTED: Final = "the-words-of-a-client"
DIRECTORIES: Final = ("small-qwen2.5-vl", "small-pixtral-hf", "small-llava-1.5")


@pytest.fixture(scope="module")
def models(small_model: Callable[[str], Path]) -> Models:
    """Three small models and the embedded one, loaded once for all applications."""
    sources = [ModelSource(str(small_model(name)), (name, f"{name}-b")) for name in DIRECTORIES]
    found = Models([*sources, ModelSource(EMBEDDED_MODEL, ("embedded",))])
    for entry in found.load():
        entry.loading.result()
    found.load = list  # type: ignore[method-assign]  # each application would do it again
    return found


@pytest.fixture(scope="module")
def client(models: Models) -> Iterator[TestClient]:
    with serving(models) as found:
        yield found


def picture(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": png_url(width, height)}, **more}


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def fallback_to(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(inexact=InexactPolicy.FALLBACK, fallback_url=url, **more)


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DIRECTORIES, "embedded"])
def test_a_chat_has_the_normalizer_s_own_ids(client: TestClient, models: Models, name: str) -> None:
    messages = user(picture(64, 48), {"type": "text", "text": "what is this"})
    routing = models.find(name).normalizer.normalize(messages=messages)
    answer = client.post(CHAT, json={"model": name, "messages": messages}).json()
    assert answer["token_ids"] == routing.token_ids.tolist()
    placed = answer["features"]["mm_placeholders"]["image"]
    assert [(p["offset"], p["length"]) for p in placed] == [
        (p.offset, p.length) for p in routing.placeholders
    ]
    assert answer["features"]["mm_hashes"]["image"] == [str(i) for i in routing.image_identities]
    tokens = client.post(TOKENIZE, json={"model": name, "messages": messages}).json()
    assert tokens["tokens"] == answer["token_ids"]
    assert tokens["count"] == len(tokens["tokens"])


@pytest.mark.parametrize("name", [*DIRECTORIES, "embedded"])
def test_text_comes_back(client: TestClient, name: str) -> None:
    body = {"model": name, "prompt": "what is in this image", "add_special_tokens": False}
    tokens = client.post(TOKENIZE, json={**body, "return_token_strs": True}).json()
    assert len(tokens["token_strs"]) == tokens["count"]
    back = client.post(DETOKENIZE, json={"model": name, "tokens": tokens["tokens"]}).json()
    assert back["prompt"].strip() == body["prompt"]
    rendered = client.post(COMPLETION, json=body).json()
    assert rendered[0]["token_ids"] == tokens["tokens"]


def test_what_mistral_common_encodes_has_no_template(client: TestClient) -> None:
    body = {"model": "embedded", "messages": HI}
    variants: tuple[dict[str, Any], ...] = ({"x": 1}, {})
    for kwargs in variants:
        more = {"chat_template_kwargs": kwargs}
        response = client.post(CHAT, json=body | more)
        assert error_of(response) == (400, "BadRequestError", "chat_template")
        assert client.post(TOKENIZE, json=body | more).status_code == 200
    plain = client.post(TOKENIZE, json=body).json()
    assert client.post(TOKENIZE, json=body | {"tools": []}).json() == plain


def test_rows_of_pixtral_are_told_apart(client: TestClient) -> None:
    body = {"model": "small-pixtral-hf", "messages": user(picture(64, 48))}
    (placed,) = client.post(CHAT, json=body).json()["features"]["mm_placeholders"]["image"]
    assert len(placed["is_embed"]) == placed["length"]
    assert placed["is_embed"] == ([True] * 4 + [False]) * 3


def test_tensors_that_are_not_sent_are_announced(client: TestClient) -> None:
    body: dict[str, Any] = {"messages": user(picture(32, 32))}
    asked = client.post(CHAT, json={**body, "mm_payload": "tensors"})
    assert asked.headers["x-mmroute-mm-payload"] == "none"
    assert asked.json()["features"]["kwargs_data"] is None
    assert client.post(CHAT, json=body).headers["x-mmroute-mm-payload"] == "none"  # the default
    for other in ({**body, "mm_payload": "none"}, {"messages": HI}):
        assert "x-mmroute-mm-payload" not in client.post(CHAT, json=other).headers


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_block_hashes_on_demand(client: TestClient, models: Models, algorithm: str) -> None:
    messages = user(picture(64, 48), {"type": "text", "text": "what is this " * 20})
    routing = models.find(None).normalizer.normalize(messages=messages, cache_salt="t")
    answer = client.post(
        f"{CHAT}?block_size=8&algorithm={algorithm}", json={"messages": messages, "cache_salt": "t"}
    ).json()
    assert answer["block_hashes"] == routing.block_hashes(algorithm, block_size=8).hex()
    assert list(answer)[-1] == "block_hashes"
    text = client.post(f"{COMPLETION}?block_size=2", json={"prompt": [1, 2, 3, 4, 5]}).json()
    assert len(text[0]["block_hashes"]) == 2


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("block_size=0", "block_size"),
        ("block_size=x", "block_size"),
        ("block_size=99999999999", "block_size"),
        ("algorithm=md5", "algorithm"),
        ("algorithm=xxhash", "algorithm"),  # needs a seed
        ("hashes=base64", "hashes"),
        ("block_sise=16", "block_sise"),
    ],
)
def test_bad_block_forms(client: TestClient, query: str, param: str) -> None:
    response = client.post(f"{CHAT}?{query}", json={"messages": HI})
    assert error_of(response) == (400, "BadRequestError", param)


def test_dynamos_hashes_on_demand(client: TestClient, models: Models) -> None:
    messages = user(picture(64, 48), {"type": "text", "text": "what is this " * 20})
    routing = models.find(None).normalizer.normalize(messages=messages)
    query = f"{CHAT}?block_size=8&hashes=dynamo"
    answer = client.post(query, json={"messages": messages}).json()
    assert (answer["local_hashes"], answer["sequence_hashes"]) == routing.dynamo_hashes(8)
    assert "block_hashes" not in answer


def test_ids_that_no_engine_holds_have_no_block_hashes(client: TestClient) -> None:
    assert client.post(COMPLETION, json={"prompt": [999999]}).json()[0]["token_ids"] == [999999]
    response = client.post(f"{COMPLETION}?block_size=1", json={"prompt": [999999]})
    assert error_of(response) == (400, "BadRequestError", None)
    assert error_of(client.post(COMPLETION, json={"prompt": [2**40]}))[0] == 400


def test_the_header_names_the_request(client: TestClient) -> None:
    headers = {"X-Request-Id": "from-the-header"}
    body = {"messages": HI, "request_id": "from-the-body"}
    answer = client.post(CHAT, json=body, headers=headers)
    assert answer.json()["request_id"] == "chatcmpl-from-the-header"
    assert "x-request-id" not in answer.headers
    prompts = client.post(COMPLETION, json={"prompt": ["a", "b"]}, headers=headers).json()
    assert [p["request_id"] for p in prompts] == [
        "cmpl-from-the-header-0", "cmpl-from-the-header-1",
    ]  # fmt: skip


def test_request_id_headers_by_option(models: Models) -> None:
    with serving(models, ServerSettings(request_id_headers=True)) as client:
        given = client.post(CHAT, json={"messages": HI}, headers={"X-Request-Id": "a"})
        assert given.headers["x-request-id"] == "a"
        assert re.fullmatch("[0-9a-f]{32}", client.get("/version").headers["x-request-id"])


def test_a_long_prompt_has_tokens_but_cannot_be_rendered(client: TestClient) -> None:
    text = "a b " * 20000
    messages = [{"role": "user", "content": text}]
    for body in ({"prompt": text}, {"messages": messages}):
        answer = client.post(TOKENIZE, json=body).json()
        assert answer["count"] > answer["max_model_len"]
    response = client.post(CHAT, json={"messages": messages})
    assert error_of(response) == (400, "BadRequestError", "input_tokens")


def test_warm_up_of_llm_d(client: TestClient) -> None:
    """Its body as buildChatRenderRequest makes it, and one without types."""
    types: tuple[dict[str, Any], ...] = ({"type": "text"}, {})
    for kind in types:
        text = {**kind, "text": "warmup"}
        image = {**({"type": "image_url"} if kind else {}), "image_url": {"url": png_url(1, 1)}}
        for parts in ((text,), (text, image)):
            answer = client.post(CHAT, json={"messages": user(*parts)})
            assert answer.status_code == 200
            assert (answer.json()["features"] is None) == (len(parts) == 1)
    assert client.post(CHAT, json={"messages": user({"text": "other"})}).status_code == 400


# --- names ------------------------------------------------------------------------------------


def test_every_name_is_listed_and_answers(client: TestClient) -> None:
    cards = client.get("/v1/models").json()["data"]
    names = [name for base in DIRECTORIES for name in (base, f"{base}-b")]
    assert [card["id"] for card in cards] == [*names, "embedded"]
    assert all(card["max_model_len"] for card in cards)
    first = client.post(TOKENIZE, json={"prompt": "this"}).json()
    for name in ("small-qwen2.5-vl-b", "", None):
        assert client.post(TOKENIZE, json={"prompt": "this", "model": name}).json() == first
    other = client.post(TOKENIZE, json={"prompt": "this", "model": "embedded"}).json()
    assert other != first


WORDS: Final[dict[str, Any]] = {"request_id": "r", "choices": [{"index": 0, "token_ids": [1500]}]}


@pytest.mark.parametrize(
    ("model", "body", "reason"),
    [
        ("embedded", {"stream": True, "generate_chunk": WORDS}, "unsupported_tokenizer"),
        (
            "embedded",
            {
                "generate_response": WORDS,
                "chat_request": {"messages": HI, "skip_special_tokens": False},
            },
            "unsupported_tokenizer",
        ),
        (
            DIRECTORIES[0],
            {
                "generate_response": {
                    "choices": [{"index": 0, "token_ids": [1], "logprobs": {"content": []}}]
                }
            },
            "unsupported_field",
        ),
        (
            DIRECTORIES[0],
            {
                "generate_response": WORDS,
                "chat_request": {
                    "messages": HI,
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            "unsupported_field",
        ),
    ],
)
def test_answers_that_cannot_be_told_exactly_are_refused(
    client: TestClient, model: str, body: dict[str, Any], reason: str
) -> None:
    answer = client.post("/v1/chat/completions/derender", json={"model": model, **body})
    assert error_of(answer) == (422, "InexactRouting", reason)


def test_the_prompt_of_the_prefill_is_taken_as_it_was_rendered(client: TestClient) -> None:
    def answered(messages: Any, **forwarded: Any) -> Any:
        return client.post(CHAT, json={"messages": messages, "kv_transfer_params": forwarded})

    found = answered(HI, prompt_token_ids=[5, 3], engine="p").json()
    assert (found["token_ids"], found["kv_transfer_params"]) == ([5, 3], {"engine": "p"})
    reply = answered(HI, prompt_token_ids=[10**6])
    assert error_of(reply) == (400, "BadRequestError", "kv_transfer_params.prompt_token_ids")
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    reply = answered(parts, prompt_token_ids=[5, 3])
    assert error_of(reply) == (422, "InexactRouting", "unsupported_field")


def test_an_answer_of_mistrals_own_tokenizer_becomes_text(client: TestClient) -> None:
    ids = client.post(TOKENIZE, json={"model": "embedded", "prompt": "A router."}).json()["tokens"]
    response = {"choices": [{"index": 0, "token_ids": [*ids, 2]}]}  # 2 ends it
    answer = client.post(
        "/v1/chat/completions/derender", json={"model": "embedded", "generate_response": response}
    ).json()
    assert answer["choices"][0]["message"]["content"] == "A router."


def test_what_the_engine_was_started_with(small_model: Callable[[str], Path]) -> None:
    """Adapters have names of their own; answers that the engine parses are refused."""
    directory = str(small_model(DIRECTORIES[0]))
    given = "vllm serve org/name --lora-modules adapter=/adapters/one --reasoning-parser qwen3"
    settings = EngineSettings.from_args(given)
    expected = Normalizer.from_pretrained(directory).normalize(
        messages=HI, lora=Lora("adapter", "/adapters/one")
    )
    hashes = [key.hex() for key in expected.block_hashes("sha256_cbor", block_size=2)]
    prompt = expected.token_ids.tolist()
    source = ModelSource(directory, ("base",), engine_settings=settings)
    with serving([source]) as client:
        for path, body in ((CHAT, {"messages": HI}), (COMPLETION, {"prompt": prompt})):
            query = "?block_size=2&algorithm=sha256_cbor"
            found = client.post(path + query, json={"model": "adapter", **body}).json()
            answer = found[0] if isinstance(found, list) else found
            assert (answer["model"], answer["block_hashes"]) == ("adapter", hashes)
        cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
        assert (cards["adapter"]["parent"], cards["adapter"]["root"]) == ("base", "/adapters/one")
        assert cards["base"]["root"] == "org/name"
        refused = client.post("/v1/chat/completions/derender", json={"generate_response": WORDS})
        assert error_of(refused) == (422, "InexactRouting", "unsupported_engine_setting")


def test_a_model_that_several_serve_is_loaded_once(small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    models = Models([ModelSource(directory, ("a",)), ModelSource(directory, ("b",))])
    with serving(models):
        assert models.find("a").normalizer is models.find("b").normalizer
        assert (models.find("a").name, models.find("b").name) == ("a", "b")


def test_names_must_tell_models_apart() -> None:
    for sources in (
        [], [ModelSource("x", ())], [ModelSource("x", ("a",)), ModelSource("y", ("a",))],
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"name|model"):
            Models(sources)


def test_strict_refuses_what_vllm_lets_pass_by_accident(models: Models) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    with serving(models, ServerSettings(strict=True)) as client:
        both = client.post(TOKENIZE, json={"prompt": "a", "messages": HI})
        assert error_of(both) == (400, "BadRequestError", "prompt")
        tools = client.post(CHAT, json={"messages": HI, "tools": [tool]})
        assert error_of(tools) == (400, "BadRequestError", None)


def test_trusted_processor_kwargs(models: Models) -> None:
    body = {"messages": user(picture(640, 480)), "mm_processor_kwargs": {"max_pixels": 20000}}
    with serving(models, ServerSettings(trust_request_mm_kwargs=True)) as client:
        small = client.post(TOKENIZE, json=body).json()["count"]
        assert small < client.post(TOKENIZE, json={"messages": body["messages"]}).json()["count"]
        of_none = {"image": {"a": 1}, "nothing": {}}  # vLLM reads what it knows, where it needs it
        media = client.post(CHAT, json={"messages": HI, "media_io_kwargs": of_none})
        assert media.status_code == 200  # there is no image that it could change
        with_image = {"messages": user(picture(64, 48)), "media_io_kwargs": {"image": {"a": 1}}}
        refused = client.post(CHAT, json=with_image)
        assert error_of(refused) == (422, "InexactRouting", "unsupported_processor_kwargs")


# --- requests without an exact answer -----------------------------------------------------------


@pytest.mark.parametrize("reason", sorted(Reason))
def test_each_reason_has_a_status(
    client: TestClient, models: Models, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    served = models.find(None)

    def refuse(*_: Any, **__: Any) -> Any:
        from mmroute.errors import InexactError  # next to its use

        raise InexactError(reason, "why")

    monkeypatch.setattr("mmroute.pipeline.prepare", refuse)
    status, kind, param = error_of(client.post(CHAT, json={"messages": HI}))
    assert served.name == DIRECTORIES[0]
    if reason in REFUSED_BY_ENGINE | USUALLY_REFUSED:
        assert (status, kind) == (400, "BadRequestError")
    else:
        assert (status, kind, param) == (422, "InexactRouting", reason.value)


def test_what_the_page_says_of_each_reason() -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    for reason in REFUSED_BY_ENGINE | USUALLY_REFUSED:
        assert f"`{reason.value}`" in page


def test_headers_tell_the_outcome(models: Models) -> None:
    refused = [{"role": "user", "content": [{"type": "image"}]}]
    with serving(models) as client:
        for messages, expected in (
            (HI, ("exact", None)),
            (EMBEDDINGS, ("inexact", "unsupported_modality")),
            (refused, ("refused", "image_count_mismatch")),
            ("no messages", (None, None)),
        ):
            headers = client.post(CHAT, json={"messages": messages}).headers
            found = tuple(headers.get(f"x-mmroute-{name}") for name in ("outcome", "reason"))
            assert found == expected


@pytest.mark.process
def test_the_fallback_answers_and_says_so(models: Models) -> None:
    with FakeRender(body=b'{"token_ids": [7], "features": null}') as upstream:
        settings = fallback_to(upstream.url + "/v1", fallback_api_key="theirs", api_keys=("mine",))
        with serving(models, settings) as client:
            raw = json.dumps({"messages": EMBEDDINGS, "zzz": 1}, indent=3).encode()
            headers = {
                "content-type": "application/json", "x-request-id": "r",
                "authorization": "Bearer mine",
            }  # fmt: skip
            answer = client.post(f"{CHAT}?block_size=16", content=raw, headers=headers)
            assert answer.json() == {"token_ids": [7], "features": None}
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
def test_what_the_fallback_refuses_is_handed_back(models: Models) -> None:
    error = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
    with (
        FakeRender(400, json.dumps(error).encode()) as upstream,
        serving(models, fallback_to(upstream.url)) as client,
    ):
        answer = client.post(CHAT, json={"messages": EMBEDDINGS})
        assert (answer.status_code, answer.json()) == (400, error)
        assert answer.headers["x-mmroute-fallback"] == "unsupported_modality"


@pytest.mark.process
@pytest.mark.parametrize("host", ["x/v1/completions?", "x@y/z", "[::1", "évil"])
def test_the_fallback_is_asked_by_the_route_alone(models: Models, host: str) -> None:
    """Whatever a client calls the host, and whatever its request's ID is made of."""
    with FakeRender() as upstream, serving(models, fallback_to(upstream.url)) as client:
        headers = {b"host": host.encode(), b"x-request-id": "é".encode("latin-1")}
        answer = client.post(
            f"{CHAT}?block_size=16", json={"messages": EMBEDDINGS}, headers=headers
        )
        assert answer.status_code == 200
        ((path, seen, _),) = upstream.seen
        assert path == f"{CHAT}?block_size=16"
        assert "x-request-id" in {name.lower() for name in seen}


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:abc", "unix:///x"])
def test_a_fallback_that_cannot_be(url: str) -> None:
    with pytest.raises(ValueError, match="fallback URL"):
        Fallback(url)


def test_no_key_is_shown() -> None:
    keys = {"api_keys": ("k1",), "admin_key": "k2", "fallback_api_key": "k3"}
    assert not re.search("k[123]", repr(ServerSettings(**keys)))  # type: ignore[arg-type]  # of several kinds
    with pytest.raises(ValueError, match="credentials") as refused:
        Fallback("http://user:pass@h:1/?a=1")
    assert "pass" not in str(refused.value)


@pytest.mark.process
@pytest.mark.parametrize("wait", [None, 2.0])
def test_a_fallback_that_fails(models: Models, wait: float | None) -> None:
    with FakeRender(wait=wait or 0) as upstream:
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
    with FakeRender(status) as upstream, serving(models, fallback_to(upstream.url)) as client:
        answer = client.post(CHAT, json={"messages": EMBEDDINGS})
        assert error_of(answer) == (502, "BadGatewayError", "unsupported_modality")


@pytest.mark.process
def test_a_fallback_that_is_away_is_left_alone(models: Models) -> None:
    with FakeRender(503) as upstream, serving(models, fallback_to(upstream.url)) as client:
        answers = [client.post(CHAT, json={"messages": EMBEDDINGS}) for _ in range(8)]
        assert [answer.status_code for answer in answers] == [503] * 5 + [502] * 3
        assert len(upstream.seen) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"fallback_url": "http://x"},
        {"inexact": InexactPolicy.FALLBACK},
        {"max_concurrency": 0},
        {"api_keys": ("a", "")},
        {"admin_key": ""},
        {"request_timeout": -1.0},
        {"worker_bytes": -1},
        {"max_total_body_bytes": 1},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|together"):
        ServerSettings(**wrong)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b@x", "x"])
def test_a_malformed_fallback(models: Models, url: str) -> None:
    with pytest.raises(ValueError, match="fallback URL"):
        create_app(models, fallback_to(url))


# --- limits -----------------------------------------------------------------------------------


def test_a_body_that_is_too_large(models: Models) -> None:
    with serving(models, ServerSettings(max_body_bytes=1000)) as client:
        declared = client.post(TOKENIZE, json={"prompt": "a" * 2000})
        assert error_of(declared) == (413, "RequestTooLargeError", None)
        chunks = (b'{"prompt": "', b"a" * 2000, b'"}')
        headers = {"content-type": "application/json"}
        undeclared = client.post(TOKENIZE, content=iter(chunks), headers=headers)
        assert error_of(undeclared) == (413, "RequestTooLargeError", None)
        assert client.post(TOKENIZE, json={"prompt": "a" * 900}).status_code == 200
        assert metric(client, 'mmroute_rejected_total{limit="body"}') == 2


class _Slow:
    """A handler that takes its time, and says how many do so."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.running = 0

    def wait_for(self, running: int) -> None:
        deadline = time.monotonic() + 10
        while self.running < running:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.running += 1
        assert self.release.wait(10)
        raise MmrouteError(Reason.INVALID_REQUEST, "an error of another kind")


def _asgi(models: Models, settings: ServerSettings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(models, settings), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://server", timeout=20)


def test_more_than_can_be_answered_at_a_time(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow()
    monkeypatch.setattr("mmroute.pipeline.prepare", slow)
    settings = ServerSettings(max_concurrency=2, worker_bytes=0, workers=2)

    async def ask() -> None:
        async with _asgi(models, settings) as client:
            first = [asyncio.create_task(client.post(CHAT, json={"messages": HI})) for _ in "ab"]
            await asyncio.to_thread(slow.wait_for, 2)
            busy = await client.post(CHAT, json={"messages": HI})
            assert error_of(busy) == (503, "ServiceUnavailableError", None)
            assert busy.headers["retry-after"] == "1"
            assert (await client.get("/health")).status_code == 200  # the loop is free
            slow.release.set()
            assert [r.status_code for r in await asyncio.gather(*first)] == [500, 500]
            again = await client.post(CHAT, json={"messages": HI})
            assert again.status_code == 500  # and not 503: their places were given back

    asyncio.run(ask())


def test_a_request_that_takes_too_long_keeps_its_place_until_it_ends(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow()
    monkeypatch.setattr("mmroute.pipeline.prepare", slow)
    settings = ServerSettings(max_concurrency=1, worker_bytes=0, workers=1, request_timeout=0.1)

    async def ask() -> None:
        async with _asgi(models, settings) as client:
            late = await client.post(CHAT, json={"messages": HI})
            assert error_of(late) == (503, "ServiceUnavailableError", None)
            busy = await client.post(CHAT, json={"messages": HI})
            assert "concurrency" in busy.json()["error"]["message"]
            slow.release.set()
            deadline = time.monotonic() + 60
            while (await client.post(CHAT, json={"messages": HI})).status_code != 500:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_a_body_that_does_not_arrive(models: Models) -> None:
    async def slowly() -> Any:
        yield b"{"
        await asyncio.sleep(1)

    async def ask() -> None:
        async with _asgi(models, ServerSettings(request_timeout=0.1)) as client:
            headers = {"content-type": "application/json"}
            late = await client.post(CHAT, content=slowly(), headers=headers)
            assert error_of(late) == (408, "RequestTimeoutError", None)
            assert late.headers["connection"] == "close"

    # ASGITransport hands over a body as it comes, and waits for all of it afterwards.
    asyncio.run(ask())


def test_all_bodies_together_have_a_limit(models: Models) -> None:
    settings = ServerSettings(max_body_bytes=1000, max_total_body_bytes=1500)

    async def half(counted: asyncio.Event, go_on: asyncio.Event) -> Any:
        yield b" " * 900
        counted.set()  # the server asks for more
        await go_on.wait()
        yield b"{}"

    async def ask() -> None:
        async with _asgi(models, settings) as client:
            headers = {"content-type": "application/json"}
            counted, go_on = asyncio.Event(), asyncio.Event()
            content = half(counted, go_on)
            first = asyncio.create_task(client.post(TOKENIZE, content=content, headers=headers))
            await counted.wait()
            full = await client.post(TOKENIZE, json={"prompt": "a" * 900})
            assert error_of(full) == (503, "ServiceUnavailableError", None)
            go_on.set()
            assert (await first).status_code == 400
            assert (await client.post(TOKENIZE, json={"prompt": "a" * 900})).status_code == 200

    asyncio.run(ask())


def test_many_at_once_get_each_their_own(models: Models) -> None:
    texts = [f"what is {number}" for number in range(200)]
    normalizer = models.find(None).normalizer

    async def ask() -> None:
        async with _asgi(models, ServerSettings(worker_bytes=40)) as client:
            answers = await asyncio.gather(
                *(client.post(COMPLETION, json={"prompt": text * (1 + i % 3)})
                  for i, text in enumerate(texts))
            )  # fmt: skip
        for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
            routing = normalizer.normalize(prompt=text * (1 + i % 3), add_special_tokens=True)
            assert answer.json()[0]["token_ids"] == routing.token_ids.tolist()

    asyncio.run(ask())


def test_long_texts_go_to_a_thread_and_pictures_do_not(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of this length may take milliseconds; a picture of this size takes a tenth of one."""
    threads = []

    def seen(*arguments: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name.startswith("mmroute-work"))
        return prepare(*arguments, **more)

    monkeypatch.setattr("mmroute.pipeline.prepare", seen)
    photograph = "data:image/jpeg;base64," + "A" * 100_000
    large = {"type": "image_url", "image_url": {"url": photograph}}
    with serving(models) as client:
        for content in ("a" * 1000, "a b " * 5000, [large], [large] * 12):
            client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
    assert threads == [False, True, False, True]


def test_an_api_key_guards_v1_only(models: Models) -> None:
    with serving(models, ServerSettings(api_keys=("one", "two"))) as client:
        for header, status in (
            ("Bearer one", 200), ("bearer two", 200), ("Bearer three", 401), ("Basic one", 401),
            ("one", 401), (None, 401),
        ):  # fmt: skip
            headers = {} if header is None else {"authorization": header}
            for answer in (
                client.get("/v1/models", headers=headers),
                client.post(CHAT, json={"messages": HI}, headers=headers),
            ):
                assert answer.status_code == status
                assert status == 200 or answer.json() == {"error": "Unauthorized"}
        assert client.post(TOKENIZE, json={"prompt": "a"}).status_code == 200
        assert client.get("/metrics").status_code == 200
        document = client.get("/openapi.json").json()
        assert document["paths"]["/v1/models"]["get"]["security"]


# --- loading ----------------------------------------------------------------------------------


def test_no_answer_before_the_models_are_loaded(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, load = threading.Event(), Normalizer.from_pretrained

    def wait(*args: Any, **kwargs: Any) -> Normalizer:
        assert gate.wait(20)
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
        deadline = time.monotonic() + 20
        while client.get("/health").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client.post(CHAT, json={"messages": HI}).status_code == 200


def test_a_model_that_cannot_be_loaded(
    small_model: Callable[[str], Path], changed_model: Callable[..., Path]
) -> None:
    broken = changed_model("small-qwen2.5-vl", lambda files: files.pop("config.json"))
    sources = [ModelSource(str(small_model("small-qwen2.5-vl")), ("a",)),
               ModelSource(str(broken), ("b",))]  # fmt: skip
    failures: list[str] = []
    with TestClient(create_app(Models(sources), on_failure=failures.append)) as client:
        deadline = time.monotonic() + 20
        while not failures:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client.get("/health").status_code == 503
    assert failures[0].split(":")[0] in set(Reason)


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


# --- what operators see -------------------------------------------------------------------------


def test_metrics(models: Models) -> None:
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
                patch.setattr("mmroute.pipeline.prepare", lambda *_, **__: 1 / 0 or QUOTED)
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
    assert line["param"].startswith("body.messages.0")


# --- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/nope", 404, {"detail": "Not Found"}),
        ("GET", "/v1/models/small-qwen2.5-vl", 404, {"detail": "Not Found"}),
        ("GET", "/tokenizer_info", 404, {"detail": "Not Found"}),  # by option
        ("GET", "/tokenize", 405, {"detail": "Method Not Allowed"}),
        ("POST", "/health", 405, {"detail": "Method Not Allowed"}),
        ("PUT", CHAT, 405, {"detail": "Method Not Allowed"}),
    ],
)
def test_unknown_paths_and_methods(
    client: TestClient, method: str, path: str, status: int, body: Any
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()) == (status, body)


def test_the_document_lists_what_there_is(client: TestClient, models: Models) -> None:
    document = client.get("/openapi.json").json()
    for path, item in document["paths"].items():
        for method in item:
            answer = client.request(method, path, json={} if method == "post" else None)
            assert answer.status_code not in (404, 405), path
    with serving(models, ServerSettings(tokenizer_info=True)) as other:
        assert "/tokenizer_info" in other.get("/openapi.json").json()["paths"]
        assert other.get("/tokenizer_info?model=nope").status_code == 404
        info = other.get("/tokenizer_info").json()
        assert next(iter(info)) == "tokenizer_class"


def test_sizes_only_never_pass_for_an_image(models: Models) -> None:
    """What the server does not read must not enter an answer."""
    routing = models.find(None).normalizer.normalize(
        messages=user({"type": "image"}), images=[ImageSize(32, 32)]
    )
    assert routing.exact
    with serving(models) as client:
        body = {"messages": user({"type": "image"}), "images": [{"width": 32, "height": 32}]}
        assert error_of(client.post(CHAT, json=body)) == (400, "BadRequestError", "type")
