"""``mmroute serve`` for SGLang: prompts by its own rules, and the bodies to forward to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_helpers import process
from small_models import SMALL_MODELS, write_model
from starlette.testclient import TestClient

from mmroute import EngineSettings, Normalizer
from mmroute.server import Models, ModelSource, create_app

RENDER = "/v1/chat/completions/render"
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhg"
    "GAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
CHAT = [{"role": "user", "content": [PICTURE, {"type": "text", "text": "Hello there. " * 9}]}]
LINE = "sglang serve m --page-size 16"


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


@pytest.fixture
def normalizer(model: str) -> Normalizer:
    return Normalizer.from_pretrained(model, engine_settings=EngineSettings.from_args(LINE))


@pytest.fixture
def client(model: str) -> Iterator[TestClient]:
    settings = EngineSettings.from_args(LINE)
    models = Models([ModelSource(model, ("m",), engine_settings=settings)])
    with TestClient(create_app(models)) as client:
        models.load()
        for entry in models.entries():
            entry.loading.result(60)
        yield client


def test_a_chat_is_rendered_by_sglangs_rules(client: TestClient, normalizer: Normalizer) -> None:
    last = {"role": "assistant", "content": "Fine"}  # which becomes the user's
    answer = client.post(RENDER, json={"messages": [*CHAT, last], "model": "m"}).json()
    routing = normalizer.normalize(messages=[*CHAT, last])
    assert answer["token_ids"] == routing.token_ids.tolist()
    (placed,) = routing.placeholders
    assert answer["features"] == {
        "mm_hashes": {"image": [None]},
        "mm_placeholders": {"image": [{"offset": placed.offset, "length": placed.length}]},
    }


def test_a_query_asks_for_page_hashes(client: TestClient, normalizer: Normalizer) -> None:
    body: dict[str, Any] = {"prompt": "Hello there, how are you? " * 9, "cache_salt": "a"}
    answer = client.post("/v1/completions/render?block_size=16&hashes=int", json=body).json()
    routing = normalizer.normalize(**body)
    assert answer["block_hashes"] == routing.page_hashes(16).event_ints()
    refused = client.post(f"{RENDER}?block_size=16", json={"messages": CHAT})
    assert refused.status_code == 422  # the number of the picture is the worker's own
    assert "mm_hashes" in refused.json()["error"]["message"]


def test_a_chat_becomes_a_body_for_generate(client: TestClient) -> None:
    body: dict[str, Any] = {"messages": CHAT, "mm_hashes": ["00000000deadbeef"], "rid": "r"}
    sampling = {"max_new_tokens": 5}
    made = client.post(
        "/v1/chat/completions/forward", json={**body, "sampling_params": sampling}
    ).json()
    assert (made["rid"], made["sampling_params"]) == ("r", sampling)
    assert (made["image_data"], made["mm_hashes"]) == ([PNG], ["00000000deadbeef"])
    without = client.post("/v1/chat/completions/forward", json={"messages": CHAT})
    assert without.status_code == 422


def test_a_route_of_another_engine_is_not_here(client: TestClient) -> None:
    body = {"model": "m", "choices": []}
    assert client.post("/v1/chat/completions/derender", json=body).status_code == 404


def test_refused_bodies_are_the_clients_fault(client: TestClient) -> None:
    assert client.post(RENDER, json={"messages": []}).status_code == 400
    assert client.post(RENDER, json=[]).status_code == 400


@pytest.mark.process
def test_a_line_of_sglang_starts_a_server(tmp_path: Path) -> None:
    model = write_model(SMALL_MODELS["small-qwen2.5-vl"](), tmp_path / "model")
    options = ("--engine-args", LINE, "--check-config")
    with process(str(model), *options, log=tmp_path / "log") as server:
        assert server.wait(60) == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/render", {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/responses/render", {"input": "Hi"}),
    ],
)
def test_other_apis_are_rendered_as_chats(
    client: TestClient, normalizer: Normalizer, path: str, body: dict[str, Any]
) -> None:
    routing = normalizer.normalize(messages=[{"role": "user", "content": "Hi"}])
    answer = client.post(path, json={"model": "m", **body})
    assert answer.json()["token_ids"] == routing.token_ids.tolist()
    assert client.post(path, json={"model": "other", **body}).status_code == 404
    counts = path.replace("messages/render", "messages/count_tokens")
    counts = counts.replace("responses/render", "responses/input_tokens")
    counted = client.post(counts, json={"model": "m", **body}).json()
    assert counted["input_tokens"] == len(routing.token_ids)
