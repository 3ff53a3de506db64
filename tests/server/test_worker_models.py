"""Models whose files come from workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from bundle_helpers import serving as offered
from chat_requests import CHAT
from media_files import png_url
from server_helpers import serving

from mmroute import Normalizer
from mmroute.server import ModelSource
from mmroute.server.models import Models

PICTURE = {"type": "image_url", "image_url": {"url": png_url(64, 64)}}
MESSAGES = [{"role": "user", "content": [PICTURE]}]

pytestmark = pytest.mark.process


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_model_of_workers_answers_as_one_of_a_directory(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = small_model("small-qwen2.5-vl")
    own = Normalizer.from_pretrained(directory, model_id="org/name").normalize(messages=MESSAGES)
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(offered(files(directory), tmp_path / name)) for name in "ab"
        ]
        source = ModelSource("grpc://" + ",".join(addresses), ("org/name",))
        with serving([source]) as client:
            found = client.post(CHAT, json={"messages": MESSAGES}).json()
    assert found["token_ids"] == own.token_ids.tolist()
    assert found["features"]["mm_hashes"]["image"] == [
        i.value for i in own.identities if i is not None
    ]


def test_workers_that_disagree_are_not_served(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    one, two = (files(small_model(name)) for name in ("small-qwen2.5-vl", "small-llava-1.5"))
    with offered(one, tmp_path / "a") as first, offered(two, tmp_path / "b") as second:
        models = Models([ModelSource(f"grpc://{first},{second}", ("m",))])
        (entry,) = models.load()
        entry.loading.exception()
        models.close(wait=True)
    assert entry.loaded is None
    assert all(address in entry.error for address in (first, second))
