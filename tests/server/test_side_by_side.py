"""What counts as the same answer of two servers, and what a deliberate difference explains."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from chat_requests import CHAT
from media_files import png_url
from odd_requests import random_requests
from replayed import Posted
from side_by_side import verdict
from two_servers import Reply

PICTURE = {"type": "image_url", "image_url": {"url": png_url(8, 8)}}
REQUEST = Posted("image", CHAT, {"messages": [{"role": "user", "content": [PICTURE]}]})
ANSWER: dict[str, Any] = {
    "request_id": "chatcmpl-0123456789abcdef",
    "token_ids": [1, 2, 2, 3],
    "features": {
        "mm_hashes": {"image": ["a"]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 2}]},
        "kwargs_data": None,
    },
}
REFUSAL = {"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}}


def changed(**fields: Any) -> Reply:
    return Reply(200, {**copy.deepcopy(ANSWER), **fields})


def test_what_is_drawn_at_random_is_not_compared() -> None:
    other = changed(request_id="chatcmpl-fedcba9876543210")
    assert verdict(REQUEST, Reply(200, ANSWER), other) == "same"


def test_what_only_one_server_says_of_a_range_is_not_compared() -> None:
    ours = changed()
    ours.body["features"]["mm_placeholders"]["image"][0]["is_embed"] = [True, True]
    assert verdict(REQUEST, Reply(200, ANSWER), ours) == "same"


@pytest.mark.parametrize(
    "ours",
    [
        changed(token_ids=[1, 2, 2, 4]),
        changed(request_id="x"),
        changed(more=None),
        Reply(200, dict(reversed(ANSWER.items()))),
        Reply(400, REFUSAL),
        Reply(500, {"error": "x"}),
    ],
)
def test_anything_else_is_a_difference(ours: Reply) -> None:
    assert verdict(REQUEST, Reply(200, ANSWER), ours) is None


def test_of_an_error_only_its_shape_and_status_count() -> None:
    error = REFUSAL["error"]
    plain = Posted("text", CHAT, {"messages": [{"role": "user", "content": "a"}]})
    other_words = Reply(400, {"error": error | {"message": "n", "param": "n"}})
    assert verdict(plain, Reply(400, REFUSAL), other_words) == "same"
    other_code = Reply(400, {"error": error | {"code": 422}})
    assert verdict(plain, Reply(400, REFUSAL), other_code) is None


def test_a_deliberate_difference_explains_itself_and_nothing_else() -> None:
    theirs = changed(features=ANSWER["features"] | {"kwargs_data": {"image": ["x"]}})
    assert verdict(REQUEST, theirs, changed()) == "no tensors"
    assert verdict(REQUEST, theirs, changed(token_ids=[9])) is None


def test_random_requests_are_the_same_for_one_seed() -> None:
    first, again, other = (random_requests(20, seed) for seed in (1, 1, 2))
    assert [request.body for request in first] == [request.body for request in again]
    assert [request.body for request in first] != [request.body for request in other]
