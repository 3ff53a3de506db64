"""What a server takes at a time, and from whom."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
import pytest
from chat_requests import CHAT, COMPLETION, HI, TOKENIZE
from server_helpers import error_of, metric, serving
from waiting import until

from mmroute import MmrouteError, Reason
from mmroute.server import InexactPolicy, ServerSettings, create_app
from mmroute.server.models import Models


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

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.running += 1
        assert self.release.wait(60)
        raise MmrouteError(Reason.INVALID_REQUEST, "an error of another kind")


def _asgi(models: Models, settings: ServerSettings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(models, settings), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60)


def test_more_than_can_be_answered_at_a_time(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow()
    monkeypatch.setattr("mmroute.answering.pipeline.prepare", slow)
    settings = ServerSettings(max_concurrency=2, worker_bytes=0, workers=2)

    async def ask() -> None:
        async with _asgi(models, settings) as client:
            first = [asyncio.create_task(client.post(CHAT, json={"messages": HI})) for _ in "ab"]
            await asyncio.to_thread(until, lambda: slow.running == 2)
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
    monkeypatch.setattr("mmroute.answering.pipeline.prepare", slow)
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


def test_long_texts_go_to_a_thread_and_pictures_do_not(models: Models, threads: list[str]) -> None:
    """A text of this length may take milliseconds; a picture of this size takes a tenth of one."""
    photograph = f"data:image/jpeg;base64,/9j/{'A' * 99_992}/9k="
    large = {"type": "image_url", "image_url": {"url": photograph}}
    with serving(models) as client:
        for content in ("a" * 1000, "a b " * 5000, [large], [large] * 12):
            client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
    assert [name == "mmroute-work" for name in threads] == [False, True, False, True]


def test_texts_of_megabytes_take_one_thread_and_leave_the_others(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, began, release = list[str](), threading.Event(), threading.Event()

    def seen(_model: object, _request: object, text: str, _items: object) -> None:
        if len(text) > 1 << 20:
            encoding.append("one")
            began.set()
            assert release.wait(60)

    monkeypatch.setattr("mmroute.answering.prompt_ids._check_long_text", seen)

    async def ask() -> None:
        async with _asgi(models, ServerSettings(workers=2)) as client:
            long, short = ({"messages": [{"role": "user", "content": "a " * n}]}
                           for n in (600_000, 9_000))  # fmt: skip
            waiting = [asyncio.create_task(client.post(CHAT, json=long)) for _ in range(4)]
            assert await asyncio.to_thread(began.wait, 20)
            answer = await client.post(CHAT, json=short)
            assert answer.status_code == httpx.codes.OK
            assert encoding == ["one"]
            release.set()
            assert len({answer.status_code for answer in await asyncio.gather(*waiting)}) == 1

    asyncio.run(ask())


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
