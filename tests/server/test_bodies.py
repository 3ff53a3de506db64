"""Pictures are decoded out of a body before it is parsed; nothing else may tell."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, TOKENIZE
from PIL import Image
from server_helpers import serving

from mmroute import Normalizer
from mmroute.images.data_url import DecodedUrl, KnownFiles
from mmroute.server.api_errors import ApiError
from mmroute.server.bodies import Body, check_body, check_strict, parse_body
from mmroute.server.loading import ModelSource
from mmroute.server.settings import ServerSettings

_BYTES: Final = random.Random(5).randbytes(9001)
_DATA: Final = base64.b64encode(_BYTES).decode()
_URL: Final = f"data:image/png;base64,{_DATA}"


def link(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}]}


def whole(value: Any) -> Any:
    """A value with the text of each URL that was decoded."""
    if isinstance(value, DecodedUrl):
        return str(value).replace("...", base64.b64encode(value.content).decode())
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


def urls_of(value: Any) -> list[type[str]]:
    return [type(p["image_url"]["url"]) for m in value["messages"] for p in m["content"]]


@pytest.mark.parametrize(
    "body",
    [
        chat(link(_URL)),
        chat(link(_URL), link(_URL.replace("png", "jpeg;x=y"))),
        {**chat(link(_URL)), "model": "a", "data": ";base64,"},
    ],
)
def test_links_to_images_are_decoded(body: dict[str, Any]) -> None:
    for separators in ((",", ":"), (", ", " : ")):
        raw = json.dumps(body, separators=separators).encode()
        files = KnownFiles(1 << 20)
        for _ in range(3):
            parsed, _ = parse_body(Body(raw), files)
            assert whole(parsed) == body
            assert set(urls_of(parsed)) == {DecodedUrl}
            assert parsed["messages"][0]["content"][0]["image_url"]["url"].content == _BYTES


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(body).encode()
        for body in (
            chat({"type": "text", "text": _URL}),
            chat(link(_URL), {"type": "text", "text": _URL}),
            chat({"type": "image_url", "image_url": _URL}),
            chat({"type": "video_url", "video_url": {"url": _URL}}),
            chat(link(f"DATA:image/png;base64,{_DATA}")),
            chat(link(f"data:a,b;base64,{_DATA}")),
            chat(link(f"data:image/png;base64,{_DATA}A")),
            chat(link(f"data:image/png;base64,{_DATA[:-4]}=A==")),
            chat(link(f"data:image/png;base64,{_DATA}\n")),
            chat(link(f"data:image/png;base64,{_DATA}é")),
            chat(*[link("data:image/png;base64,AAAA")] * 2000),
            {"messages": [chat(link(_URL))["messages"][0]] * 24},
            {**chat(link(_URL)), "data": "data:;base64,"},
            {"prompt": _URL},
            [_URL],
            {_URL: 1, "messages": [5, {"content": [None, {"image_url": 5}]}]},
        )
    ]
    + [
        json.dumps(chat(link(_URL))).replace("/", "\\/").encode(),
        b'{"messages":[{"content":[{"image_url":{"url":"%b","url":"%b"}}]}]}'
        % ((_URL.encode(),) * 2),
    ],
)
def test_everything_else_is_parsed_as_it_is(raw: bytes) -> None:
    files = KnownFiles(1 << 20)
    for _ in range(3):
        assert parse_body(Body(raw), files)[0] == json.loads(raw)


@pytest.mark.parametrize("end", [b"", b"}", b'"', b"\xff"])
def test_an_error_is_told_as_of_the_whole_body(end: bytes) -> None:
    raw = json.dumps(chat(link(_URL))).encode()[:-1] + end
    if end == b"}":
        assert whole(parse_body(Body(raw), KnownFiles(0))[0]) == json.loads(raw)
        return
    with pytest.raises(ApiError) as found:
        parse_body(Body(raw), KnownFiles(0))
    if end == b"":
        assert str(len(raw)) in found.value.message


# Source: answers of vLLM 0.33.0's `vllm-rs render`. It takes -0 for -0.0, and in messages the last
# of equal keys, and refuses the others.
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"prompt":NaN}', 400),
        (b'{"prompt":"\\ud800"}', 400),
        (b'\xef\xbb\xbf{"prompt":"a"}', 400),
        (b'{"temperature":1e400}', 400),
        (b'{"prompt":"a","prompt":"a"}', 422),
        (b'{"tools":[{"function":{"name":"f","name" : "f"}}]}', 422),
        (json.dumps(chat(link(_URL))).replace(_URL, _URL + '","url":"a:b').encode(), 422),
        (b'{"chat_template_kwargs":{"v":[-0 ]}}', 422),
    ],
)
def test_the_rust_frontend_reads_strict_json(raw: bytes, status: int) -> None:
    parse_body(Body(raw), KnownFiles(0))
    with pytest.raises(ApiError) as refused:
        check_strict(Body(raw), *parse_body(Body(raw), KnownFiles(0)))
    assert refused.value.status == status


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"prompt":"10:30, \\"a\\": -0, \\u003a","seed":-0.0,"v":[-0.5,1e-5,2e+25]}',
        json.dumps(chat(link(_URL)), separators=(", ", " : ")).encode(),
        json.dumps({**chat(link(_URL)), "day": "2024-01-02", "data": ";base64,"}).encode(),
    ],
)
def test_the_rust_frontend_reads_what_is_unambiguous(raw: bytes) -> None:
    parsed, is_json = parse_body(Body(raw), KnownFiles(0))
    check_strict(Body(raw), parsed, is_json)
    assert whole(parsed) == (json.loads(raw) if raw else None)


def test_the_structure_of_a_body_is_all_its_commas_colons_and_brackets() -> None:
    rng = random.Random(7)
    letters = (b',:[{]}" a' * 29)[:256]
    for size in (1 << 15, (1 << 20) + 5, 5_000_000):
        raw = b"[" + rng.randbytes(size - 2).translate(letters) + b","
        found = check_body(Body(raw), ServerSettings(max_structure=1 << 30))
        counted = {b",": 1, b":": 1, b"[": 4, b"{": 4}
        assert found == sum(raw.count(one) * weight for one, weight in counted.items())


def test_an_answer_has_the_identity_of_the_picture(small_model: Callable[[str], Path]) -> None:
    directory = small_model("small-qwen3-vl")
    file = io.BytesIO()
    Image.effect_noise((320, 200), 50).convert("RGB").save(file, "JPEG")
    url = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    raw = json.dumps(chat(link(url))).encode()
    assert urls_of(parse_body(Body(raw), KnownFiles(0))[0]) == [DecodedUrl]
    body = {**chat(link(url), {"type": "text", "text": "What is it?"}), "mm_payload": "none"}
    own = Normalizer.from_pretrained(str(directory)).normalize(messages=body["messages"])
    with serving([ModelSource(str(directory), ("a",))]) as client:
        found = client.post(CHAT, json=body).json()
        tokens = client.post(TOKENIZE, json={"messages": body["messages"]}).json()
    assert found["token_ids"] == tokens["tokens"] == own.token_ids.tolist()
    assert found["features"]["mm_hashes"]["image"] == [str(own.identities[0])]
