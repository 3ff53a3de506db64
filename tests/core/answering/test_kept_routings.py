"""A router keeps the routings of requests in flight: they keep nothing of their requests."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
from media_files import png_url

from mmroute import ImageSize, Normalizer, Routing

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
