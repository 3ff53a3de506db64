"""Values of odd types, flags, and routings that are kept."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from media_files import png_url
from odd_types import JSON_VALUES, PYTHON_VALUES, changed, fields_of, requests

from mmroute import ImageSize, InexactError, Normalizer, Reason, Routing
from mmroute.cli import main
from mmroute.forwarding import with_uuids

# vLLM 0.33.0: MultiModalHasher.hash_kwargs("blake3", mm_hash="a", cropping=...)
CUT = "51c70bd2078bbae71cd4e65198473aa81a6c14c217c9f71ce7e791d8b74bba63"
WHOLE = "82d9691e9040589684a1188dde71ae43e33717d7a54fb9c01853366c66800d29"


@pytest.mark.parametrize(("name", "most"), [("small-deepseek-vl2", 2), ("small-unlimited-ocr", 1)])
def test_an_identity_covers_whether_images_are_cut(
    name: str, most: int, normalizer: Callable[[str], Normalizer]
) -> None:
    for count in (1, 2, 3):
        images = [ImageSize(900, 700, uuid="a")] * count
        routing = normalizer(name).normalize(prompt="<image>" * count, images=images)
        expected = CUT if count <= most else WHOLE
        assert [str(one) for one in routing.identities] == [expected] * count


_KEPT: Final = 10
_MOST: Final = 2048  # bytes of a routing beside its arrays, with the sizes of four items


def _picture() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": png_url(600, 400)}}


def _chat(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "word " * 2000}]}]


_REQUESTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "text": lambda: {"messages": _chat()},
    "a picture": lambda: {"messages": _chat(_picture())},
    "four sizes": lambda: {
        "messages": _chat(*[{"type": "image"}] * 4),
        "images": [ImageSize(640, 480, uuid=f"picture-{number}") for number in range(4)],
    },
    "token IDs": lambda: {"prompt_token_ids": [300] * 20_000},
    "options": lambda: {
        "messages": _chat(_picture()),
        "cache_salt": "salt",
        "mm_processor_kwargs": {"max_pixels": 50_000 + 28 * 28},
    },
}


@pytest.mark.parametrize("name", _REQUESTS)
def test_a_kept_routing_is_small(name: str, normalizer: Callable[[str], Normalizer]) -> None:
    uncached = Normalizer(normalizer("small-qwen2.5-vl").model)
    for _ in range(_KEPT):  # what is made once, and what interpreters and libraries grow by
        assert uncached.normalize(**_REQUESTS[name]()).exact
    for thread in threading.enumerate():  # they prove encoders, which the first requests begin
        if thread.name.startswith("mmroute-encoder"):
            thread.join()
    tracemalloc.start()
    try:
        kept = [uncached.normalize(**_REQUESTS[name]()) for _ in range(_KEPT)]
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / _KEPT - max(map(_of_arrays, kept)) <= _MOST


def _of_arrays(routing: Routing) -> int:
    arrays = {id(ids): ids for ids in (routing.token_ids, routing.unexpanded_token_ids)}
    return sum(ids.nbytes for ids in arrays.values())


REQUESTS: Final = requests()
# Each renders chats or places items in a way of its own.
MODELS: Final = ("small-qwen2.5-vl", "small-llava-1.5", "small-phi-3-vision", "pixtral-12b-2409")


@pytest.mark.parametrize("values", [JSON_VALUES, PYTHON_VALUES], ids=["json", "python"])
@pytest.mark.parametrize("name", [*MODELS, "sglang"])
def test_nothing_that_a_request_holds_makes_it_raise(
    name: str,
    values: Any,
    normalizer: Callable[[str], Normalizer],
    small_model: Callable[[str], Path],
) -> None:
    if name == "sglang":
        model = Normalizer.from_pretrained(small_model(MODELS[0]), backend="sglang")
    else:
        model = normalizer(name)
    draw = random.Random(f"{name} {values is JSON_VALUES}")
    for _ in range(200):
        routing = model.normalize(**fields_of(changed(draw.choice(REQUESTS), draw, values)))
        assert routing.exact or routing.message
        if routing.exact:
            with contextlib.suppress(InexactError):
                routing.page_hashes(16) if name == "sglang" else routing.block_hashes(seed="0")


def test_the_requests_are_all_right_until_they_are_changed(
    normalizer: Callable[[str], Normalizer],
) -> None:
    answers = [normalizer(MODELS[0]).normalize(**fields_of(request)) for request in REQUESTS]
    assert sum(routing.exact for routing in answers) > len(REQUESTS) // 2


def test_what_no_json_holds_is_named_by_its_field(normalizer: Callable[[str], Normalizer]) -> None:
    part = {"type": np.array(["text", "image"]), "text": "Hi"}
    routing = normalizer(MODELS[0]).normalize(messages=[{"role": "user", "content": [part]}])
    assert routing.reason is Reason.INVALID_REQUEST
    assert routing.message.startswith("messages cannot be written as JSON: ")
    assert "ndarray" in routing.message


def test_an_error_of_our_own_is_not_called_the_client_s(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("of our own")

    monkeypatch.setattr("mmroute.answering.pipeline.expand", broken)
    with pytest.raises(TypeError, match="of our own"):
        normalizer(MODELS[0]).normalize(prompt="Hi")


def test_no_line_ends_the_run(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    draw = random.Random(3)
    lines: list[str] = []
    while len(lines) < 400:
        with contextlib.suppress(ValueError, RecursionError):  # too long or too deep for JSON
            lines.append(json.dumps(changed(draw.choice(REQUESTS), draw, JSON_VALUES)))
    given, answers = tmp_path / "requests", tmp_path / "answers"
    given.write_text("\n".join(lines) + '\n{"prompt": "Hi", "id": "last"}\n')
    command = ["tokens", str(small_model(MODELS[0])), "--input", str(given)]
    assert main([*command, "--output", str(answers)]) == 0
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(found) == len(lines) + 1
    assert found[-1]["id"] == "last"
    assert found[-1]["exact"]


def test_items_are_named_whatever_a_request_holds() -> None:
    draw = random.Random(4)
    for _ in range(1000):
        with_uuids(changed(draw.choice(REQUESTS), draw, JSON_VALUES))
    link = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA\ud800"}}
    (part,) = with_uuids({"messages": [{"content": [link]}]})["messages"][0]["content"]
    assert part["uuid"].startswith("video-")
    assert with_uuids({"prompt": "Hi"}) == {"prompt": "Hi"}
