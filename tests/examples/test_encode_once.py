"""`examples/encode_once.py` between scripted servers, one as an encoder and one as a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import encode_once
import pytest
from media_files import png_url
from scripted_server import ScriptedServer

import mmroute

GENERATE, CHAT = "/inference/v1/generate", "/v1/chat/completions"
MODEL = "small-qwen2.5-vl"


# What an encoder's connector says of a picture. Source: vLLM
# ``distributed/ec_transfer/ec_connector/utils.py`` (`collect_ec_item_metadata`).
TOLD: Final = {"item_indices": [0], "metadata": {"image_grid_thw": [1, 4, 4]}}


def encoded(body: Any) -> dict[str, Any]:
    """The encoder's answer."""
    names = [part["uuid"] for part in body["messages"][0]["content"]]
    return {"choices": [{}], "ec_transfer_params": dict.fromkeys(names, TOLD)}


def generated(_: Any) -> dict[str, Any]:
    return {"choices": [{"text": "by tokens"}]}


def chatted(_: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": "by the chat"}}]}


@pytest.fixture
def encoder() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.routes[CHAT] = 200, encoded
        yield server


@pytest.fixture
def worker() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.routes |= {GENERATE: (200, generated), CHAT: (200, chatted)}
        yield server


def chat(text: str, *sizes: tuple[int, int]) -> dict[str, Any]:
    pictures = [{"type": "image_url", "image_url": {"url": png_url(*size)}} for size in sizes]
    content = [*pictures, {"type": "text", "text": text}]
    return {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}


@pytest.fixture
def answers(
    small_model: Callable[[str], Path],
    encoder: ScriptedServer,
    worker: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., list[Any]]:
    def run(*chats: dict[str, Any]) -> list[Any]:
        monkeypatch.setattr("sys.stdin", map(json.dumps, chats))
        monkeypatch.setattr("sys.argv", [
            "encode_once.py", str(small_model(MODEL)), "--encoder", encoder.url,
            "--worker", worker.url, "--worker-args", "vllm serve m --enable-scale-out",
        ])  # fmt: skip
        encode_once.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.process
def test_a_picture_is_encoded_once_and_never_sent_to_the_worker(
    answers: Callable[..., list[Any]],
    encoder: ScriptedServer,
    worker: ScriptedServer,
    small_model: Callable[[str], Path],
) -> None:
    first, second = chat("What is it?", (64, 48)), chat("And now?", (64, 48), (200, 100))
    assert answers(first, second) == [{"text": "by tokens"}] * 2
    asked = [body["messages"][0]["content"] for body in encoder.bodies(CHAT)]
    # The second request asks for its new picture alone.
    sent = [[part["image_url"]["url"] for part in parts] for parts in asked]
    assert sent == [[png_url(64, 48)], [png_url(200, 100)]]
    bodies = worker.bodies(GENERATE)
    normalizer = mmroute.Normalizer.from_pretrained(str(small_model(MODEL)))
    for body, request in zip(bodies, (first, second), strict=True):
        assert "base64" not in json.dumps(body)
        routing = normalizer.answer(mmroute.from_openai(request))
        assert body["token_ids"] == routing.token_ids.tolist()
        names = body["features"]["mm_hashes"]["image"]
        assert body["ec_transfer_params"] == dict.fromkeys(names, TOLD)
        assert len(body["features"]["mm_metadata"]["image"]) == len(routing.placeholders)


@pytest.mark.process
def test_what_cannot_be_sent_by_tokens_is_sent_whole(
    answers: Callable[..., list[Any]], encoder: ScriptedServer, worker: ScriptedServer
) -> None:
    picture = chat("What is it?", (64, 48))
    whole = [{"message": {"content": "by the chat"}}]
    worker.routes[GENERATE] = 500, {"error": "no such embedding"}
    # The worker lost the picture, so the next request has it encoded anew.
    assert answers(picture, picture) == whole * 2
    assert len(encoder.bodies(CHAT)) == 2
    for body in worker.bodies(CHAT):
        assert body["messages"][0]["content"][0]["image_url"]["url"] == png_url(64, 48)
    worker.routes[GENERATE] = 200, generated
    encoder.routes[CHAT] = 200, {"choices": [{}], "ec_transfer_params": None}
    assert answers(picture) == whole  # its encoder has no connector
