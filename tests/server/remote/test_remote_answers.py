"""What a server answers: read as far as it tells, and refused where it is no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, COMPLETION, HI, picture, user
from remote_helpers import LINK, QWEN, RANGE, connected, listening
from scripted_server import ScriptedServer

from mmroute import InexactError, Reason, connect
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.settings import InexactPolicy, ServerSettings

pytestmark = pytest.mark.process


def rendered(*ranges: Any, ids: Sequence[int] = (7, 9, 9, 9, 8), hashes: Any = None) -> Any:
    names = [f"h{n}" for n in range(len(ranges))] if hashes is None else hashes
    features = {"mm_hashes": {"image": names}, "mm_placeholders": {"image": list(ranges)}}
    return 200, {"token_ids": list(ids), "features": features}


def test_block_hashes_are_those_that_the_metrics_tell(scripted: ScriptedServer) -> None:
    labels = 'block_size="2",prefix_caching_hash_algo="sha256_cbor"'
    metrics = f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()
    scripted.routes["/metrics"] = 200, metrics
    with connected(scripted) as remote:
        routing = remote.normalize(prompt="a")
    told = routing.block_hashes("sha256_cbor", block_size=2)
    assert routing.block_hashes().hex() == told.hex()
    assert len(told.hex()) == 1


def test_feature_positions_that_vllm_does_not_tell(scripted: ScriptedServer) -> None:
    scripted.routes[CHAT] = rendered(RANGE, hashes=["ab" * 32])
    with connected(scripted) as remote:
        routing = remote.normalize(messages=user(picture(4, 4)))
    (placeholder,) = routing.placeholders
    assert (placeholder.offset, placeholder.length) == (1, 3)
    assert (placeholder.embed_runs, placeholder.embeds_known) == (None, False)
    assert len(routing.block_hashes(block_size=2).hex()) == 2
    assert routing.image_hashes() == ["ab" * 8]
    with pytest.raises(InexactError) as caught:
        routing.pad_value_ids()
    assert caught.value.reason is Reason.FEATURE_POSITIONS_UNKNOWN


def test_a_fallback_is_not_taken_for_mmroute(
    scripted: ScriptedServer, small_model: Callable[[str], Path]
) -> None:
    models = Models([ModelSource(str(small_model(QWEN)), ("m",))])
    scripted.routes[CHAT] = rendered(RANGE)
    settings = ServerSettings(inexact=InexactPolicy.FALLBACK, fallback_url=scripted.url)
    with (
        listening(models, settings) as url,
        connect("m", url) as remote,
    ):
        own = remote.normalize(messages=user(picture(64, 48)))
        other = remote.normalize(messages=user(LINK))
    assert [p.embeds_known for p in own.placeholders] == [True]
    assert other.exact
    assert [p.embeds_known for p in other.placeholders] == [False]


@pytest.mark.parametrize(
    ("more", "runs"),
    [
        ({"is_embed": [True, True, False]}, ((True, 2), (False, 1))),
        ({"is_embed": [True, True, True]}, None),
    ],
)
def test_feature_positions_that_are_told(scripted: ScriptedServer, more: Any, runs: Any) -> None:
    scripted.routes[CHAT] = rendered({**RANGE, **more})
    with connected(scripted) as remote:
        (placeholder,) = remote.normalize(messages=user(picture(4, 4))).placeholders
    assert (placeholder.embed_runs, placeholder.embeds_known) == (runs, True)


def test_images_are_listed_by_position(scripted: ScriptedServer) -> None:
    with connected(scripted) as remote:
        routing = remote.normalize(messages=user(picture(4, 4), picture(5, 5)))
    assert [(p.offset, p.length) for p in routing.placeholders] == [(1, 2), (4, 1)]
    assert [*map(str, routing.identities)] == ["bb", "aa"]


@pytest.mark.parametrize(
    "reply",
    [
        (200, b"not json"), (200, b""), (200, b"["), (200, []), (200, {}), (200, None),
        (200, {"token_ids": [1]}),
        (200, {"token_ids": [1], "features": None}),
        (200, {"token_ids": [], "features": None}),
        (200, {"token_ids": ["1"], "features": None}),
        (200, {"token_ids": [1], "features": 3}),
        rendered(), rendered(RANGE, RANGE), rendered(RANGE, hashes=[]), rendered(RANGE, hashes=[3]),
        rendered({"offset": 1}), rendered({"offset": 3, "length": 3}),
        rendered({"offset": -1, "length": 3}), rendered({"offset": 1, "length": 0}),
        rendered({**RANGE, "is_embed": [True]}), rendered({**RANGE, "is_embed": [1, 1, 1]}),
        rendered(RANGE, ids=[1, 2, 3, 4, -1]), rendered(RANGE, ids=[1, 2, 3, 4, 1 << 32]),
        rendered(RANGE, ids=[1, 2, 3, True, 4]), rendered(RANGE, ids=[1, 2, 3, 4.5, 4]),  # type: ignore[list-item]
        (200, {"token_ids": [1] * 9, "features": {
            "mm_hashes": {"image": ["a"], "video": ["b"]},
            "mm_placeholders": {"image": [RANGE], "video": [{"offset": 5, "length": 1}]}}}),
        (200, b"[" * 100_000),
        (204, b""), (302, b""), (401, {"error": "Unauthorized"}),
        (403, {"error": {"message": "x"}}),
        (404, {"detail": "Not Found"}), (408, b""), (429, b"slow down"), (500, {"error": {}}),
        (502, b"<html>"), (503, {"error": {"message": "busy", "type": "x"}}), (599, b""),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_answer(scripted: ScriptedServer, reply: Any) -> None:
    with connected(scripted) as remote:
        scripted.routes[CHAT] = reply
        scripted.more_headers = {"Location": f"{scripted.url}/other"}
        routing = remote.normalize(messages=user(picture(4, 4)))
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert scripted.url in routing.message
    assert not scripted.bodies("/other")
    assert len(scripted.bodies(CHAT)) == 1


@pytest.mark.parametrize("reply", [(200, {"token_ids": [1], "features": None}), (200, [])])
def test_what_is_no_answer_to_a_prompt(scripted: ScriptedServer, reply: Any) -> None:
    with connected(scripted) as remote:
        scripted.routes[COMPLETION] = reply
        assert remote.normalize(prompt="a").reason is Reason.REMOTE_UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "kind", "param", "reason"),
    [
        (400, "BadRequestError", None, Reason.INVALID_REQUEST),
        (400, "Bad Request", "body.messages", Reason.INVALID_REQUEST),
        (400, "BadRequestError", "input_tokens", Reason.PROMPT_TOO_LONG),
        (400, "BadRequestError", "image", Reason.TOO_MANY_ITEMS),
        (400, "BadRequestError", "mm_processor_kwargs", Reason.UNSUPPORTED_PROCESSOR_KWARGS),
        (400, "BadRequestError", "unsupported_field", Reason.INVALID_REQUEST),
        (400, "BadRequestError", ["a"], Reason.INVALID_REQUEST),
        (422, "UnprocessableEntityError", None, Reason.INVALID_REQUEST),
        (422, "InexactRouting", "unsupported_field", Reason.UNSUPPORTED_FIELD),
        (422, "InexactRouting", "a_reason_of_tomorrow", Reason.INVALID_REQUEST),
        (501, "NotImplementedError", None, Reason.INVALID_REQUEST),
        (413, "x", None, Reason.REMOTE_INEXPRESSIBLE),
    ],
)
def test_refusals_have_the_reason_that_the_error_tells(
    scripted: ScriptedServer, status: int, kind: str, param: Any, reason: Reason
) -> None:
    error = {"message": "this is why", "type": kind, "param": param, "code": status}
    scripted.routes[CHAT] = (status, {"error": error})
    with connected(scripted) as remote:
        routing = remote.normalize(messages=HI)
    assert routing.reason is reason
    assert "this is why" in routing.message
