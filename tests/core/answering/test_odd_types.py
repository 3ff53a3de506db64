"""Requests with values of the wrong types: each gets an answer, and none raises."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from odd_types import JSON_VALUES, PYTHON_VALUES, changed, fields_of, requests

from mmroute import InexactError, Normalizer, Reason
from mmroute.cli import main
from mmroute.forwarding import with_uuids

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
