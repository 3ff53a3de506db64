"""Images that came before are answered as if they had not."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, TOKENIZE
from PIL import Image
from server_helpers import answers_to, metric, posted, serving
from starlette.testclient import TestClient

from mmroute import FastPaths
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.models import Models

_SIZE: Final = (320, 200)


def written(mode: str = "RGB", form: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(_SIZE, 50).convert(mode).save(file, form, **options)
    return file.getvalue()


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return written(exif=exif)


_PLAIN: Final = written()
_FILES: Final = {
    "plain": _PLAIN,
    "one-byte": _PLAIN[:9000] + bytes([_PLAIN[9000] ^ 1]) + _PLAIN[9001:],
    "cut": _PLAIN[:-2],
    "longer": _PLAIN + b"\0",
    "turned": turned(),
    "grey": written("L"),
    "transparent": written("RGBA", "PNG"),
    "no-picture": b"\1" * 9000,
}


@pytest.fixture(scope="module")
def clients(small_model: Callable[[str], Path]) -> Iterator[tuple[TestClient, TestClient]]:
    """Servers of the same models that keep images, and that keep none."""
    directory = str(small_model("small-qwen3-vl"))
    sources = [
        ModelSource(directory, ("a",)),
        ModelSource(directory, ("b",), model_id="another"),
        ModelSource(directory, ("c",), backend="vllm==0.28"),
    ]
    trusting = ServerSettings(trust_request_mm_kwargs=True)
    keeps, keeps_none = Models(sources), Models(sources, fast_paths=FastPaths(image_cache_bytes=0))
    with serving(keeps, trusting) as one, serving(keeps_none, trusting) as other:
        yield one, other


def chat(names: tuple[str, ...], model: str, **more: Any) -> dict[str, Any]:
    """A chat with these files, where `uuid` is of each of them."""
    uuid = {"uuid": more.pop("uuid")} if "uuid" in more else {}
    parts: list[dict[str, Any]] = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/x;base64,{base64.b64encode(_FILES[n]).decode()}"},
            **uuid,
        }
        for n in names
    ]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]
    return {"model": model, "messages": messages, "mm_payload": "none", "request_id": "1", **more}


@pytest.mark.parametrize("names", [*((name,) for name in _FILES), ("plain", "one-byte", "plain")])
def test_every_answer_is_the_same(
    clients: tuple[TestClient, TestClient], names: tuple[str, ...]
) -> None:
    asked = [
        chat(names, "a"),
        chat(names, "b"),
        chat(names, "c"),
        chat(names, "a", uuid="u"),
        chat(names, "a", mm_processor_kwargs={"max_pixels": 40_000}),
        chat(names, "a"),
    ]
    if len(names) > 1:
        asked.append({**chat(names, "a"), "messages": chat(names, "a")["messages"] * 24})
    requests = [
        *(posted(CHAT, body) for body in (*asked, *asked)),
        posted(TOKENIZE, chat(names, "a")),
    ]
    answers = (answers_to(client, requests) for client in clients)
    for first, second in zip(*answers, strict=True):
        assert (first.status_code, first.json()) == (second.status_code, second.json())


def test_metrics_tell_of_them(clients: tuple[TestClient, TestClient]) -> None:
    labels = '{cache="images",model=""}'
    kept, none = clients
    before = metric(kept, f"mmroute_cache_hits_total{labels}")
    for _ in range(3):
        assert kept.post(CHAT, json=chat(("plain",), "a")).is_success
        assert none.post(CHAT, json=chat(("plain",), "a")).is_success
    assert metric(kept, f"mmroute_cache_hits_total{labels}") > before
    assert metric(kept, f"mmroute_cache_bytes{labels}") > len(_PLAIN)
    assert metric(none, f"mmroute_cache_hits_total{labels}") == 0
    assert metric(none, f"mmroute_cache_bytes{labels}") == 0
