"""Clients that mean no good, or are broken: they are bounded, and the others are answered."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from chat_requests import CHAT, COMPLETION, HI, MESSAGES, RESPONSES, TOKENIZE
from media_files import png_url
from scripted_server import ScriptedServer
from server_helpers import error_of, metric, serving

from mmroute.net.links import ImageLinks
from mmroute.server.api_errors import ApiError
from mmroute.server.app import create_app
from mmroute.server.bodies import Body, check_body
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

MODEL: Final = "small-qwen2.5-vl"
JSON: Final = {"content-type": "application/json"}
LINKS: Final = ImageLinks(hosts=("127.0.0.1",), networks=("127.0.0.1/32",), timeout=0.2)


def loaded(directory: Path, links: ImageLinks | None = None) -> Models:
    found = Models([ModelSource(str(directory), (MODEL,))], links=links)
    for entry in found.load():
        entry.loading.result(60)
    return found


@pytest.fixture(scope="module")
def models(small_model: Callable[[str], Path]) -> Models:
    return loaded(small_model(MODEL))


def pictures(*urls: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": parts}], "mm_payload": "none"}


@pytest.mark.parametrize(
    "url",
    [
        '"http://127.0.0.1:9/a.png"',
        '"HTTP://127.0.0.1:9/a.png"',
        '"\\u0068ttp://127.0.0.1:9/a.png"',
        '"h\\u0074tps:\\/\\/127.0.0.1:9/a.png"',
    ],
)
def test_a_link_is_followed_in_a_thread_however_it_is_spelled(
    models: Models, threads: list[str], url: str
) -> None:
    """The event loop waits for no other server."""
    raw = json.dumps(pictures("LINK")).replace('"LINK"', url)
    with serving(models, ServerSettings(links=LINKS)) as client:
        client.post(CHAT, content=raw, headers=JSON)
    assert threads == ["mmroute-links"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.png", " http://127.0.0.1:9/a.png"])
def test_links_of_the_other_apis_are_followed_in_a_thread(
    models: Models, threads: list[str], url: str
) -> None:
    """A space before a link changes nothing: it is followed without it."""
    block = {"type": "image", "source": {"type": "url", "url": url}}
    item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    message = {"role": "user", "content": [block]}
    with serving(models, ServerSettings(links=LINKS)) as client:
        client.post(MESSAGES, json={"model": MODEL, "max_tokens": 1, "messages": [message]})
        client.post(RESPONSES, json={"input": [item]})
    assert set(threads) == {"mmroute-links"}


def test_a_link_beside_another_is_followed_in_a_thread(models: Models, threads: list[str]) -> None:
    """Whatever the part says it is, and whichever of its links is read."""
    link, data = {"url": "http://127.0.0.1:9/a.png"}, {"url": png_url(8, 8)}
    with serving(models, ServerSettings(links=LINKS)) as client:
        for kind, other in (("image_url", "video_url"), ("video_url", "image_url")):
            part = {"type": "image_url", kind: link, other: data, "audio_url": data}
            client.post(CHAT, json={"messages": [{"role": "user", "content": [part]}]})
    assert set(threads) == {"mmroute-links"}


def test_many_small_pieces_of_data_urls_are_found_in_time() -> None:
    """Each of them costs a search; more than a few thousand are counted as text."""
    raw = b'{"prompt": ["' + b'data:;base64,", "' * 500_000 + b'"]}'
    began = time.thread_time()
    with pytest.raises(ApiError, match="commas"):
        check_body(Body(raw), ServerSettings())
    assert time.thread_time() - began < 2  # of the processor


@pytest.mark.parametrize(
    ("path", "body", "small"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "data:;base64," + "hi " * 9000}]}, False),
        (CHAT, pictures(*[png_url(8, 8)] * 60), False),
        (CHAT, pictures(png_url(8, 8)), True),
        (COMPLETION, {"prompt": ["a"] * 200}, False),
        (COMPLETION, {"prompt": ["a"]}, True),
        (COMPLETION, {"prompt": "a", "logit_bias": {str(n): 1 for n in range(20_000)}}, False),
    ],
)
def test_what_takes_long_goes_to_a_thread(
    models: Models, threads: list[str], path: str, body: dict[str, Any], small: bool
) -> None:
    with serving(models) as client:
        client.post(path, json=body)
    assert threads
    assert {name == "mmroute-work" for name in threads} == {not small}


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"messages": [' + b"[]," * 600_000 + b"[]]}", "structure"),
        (b'{"messages": [' + b'{"":' * 600_000, "structure"),
        (b'{"prompt": "' + b"a" * (17 << 20) + b'"}', "text"),
        (b'{"prompt": "data:image/png;base64,' + b"a" * (17 << 20) + b'"}', "text"),
        ('{"prompt": "data:image/png;base64,' + "a" * (17 << 20) + '😀"}', "text"),
    ],
)
def test_text_and_structure_have_limits_of_their_own(
    models: Models, body: bytes | str, limit: str
) -> None:
    with serving(models) as client:
        answer = client.post(TOKENIZE, content=body, headers=JSON)
        assert error_of(answer) == (413, "RequestTooLargeError", None)
        assert metric(client, f'mmroute_rejected_total{{limit="{limit}"}}') == 1


def test_a_picture_may_be_larger_than_any_text(models: Models) -> None:
    body = pictures("data:image/png;base64," + "A" * (17 << 20))
    with serving(models) as client:
        answer = client.post(CHAT, json=body)
    assert error_of(answer) == (400, "BadRequestError", None)  # no picture, but looked at


@pytest.mark.process
def test_links_that_are_slow_leave_threads_for_text(
    small_model: Callable[[str], Path],
) -> None:
    may_answer = threading.Event()
    links = replace(LINKS, timeout=60)
    settings = ServerSettings(links=links, workers=1, link_workers=3, worker_bytes=0)
    models = loaded(small_model(MODEL), links)

    async def ask(host: ScriptedServer) -> None:
        urls = [f"{host.url}/{name}.png" for name in "abcde"]
        waiting = (404, lambda _: may_answer.wait(60))
        host.routes = dict.fromkeys([f"/{name}.png" for name in "abcde"], waiting)
        transport = httpx.ASGITransport(create_app(models, settings))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://server", timeout=60
        ) as client:
            slow = [asyncio.create_task(client.post(CHAT, json=pictures(url))) for url in urls[:3]]
            while "mmroute_links_in_flight 3.0" not in (await client.get("/metrics")).text:
                assert not any(task.done() for task in slow)
                await asyncio.sleep(0.01)
            text = await client.post(CHAT, json={"messages": HI})
            assert text.status_code == 200  # while all links wait
            more = await client.post(CHAT, json=pictures(urls[3]))
            assert error_of(more) == (503, "ServiceUnavailableError", None)
            assert not any(task.done() for task in slow)
            may_answer.set()
            assert {answer.status_code for answer in await asyncio.gather(*slow)} == {422}
            again = await client.post(CHAT, json=pictures(urls[4]))
            assert again.status_code == 422  # their places were given back

    with ScriptedServer() as host:
        asyncio.run(ask(host))
