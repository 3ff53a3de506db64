"""`Normalizer.from_pretrained(..., remote=...)`: a server in place of a model that is loaded."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import comparison
import pytest
from chat_requests import CHAT, HI, picture, user
from comparison import expanded, read_vectors
from media_files import png_url
from paths import VECTORS
from remote_helpers import LINK, PART, QWEN, RANGE, connected
from scripted_server import ScriptedServer

from mmroute import ImageSize, InexactError, Lora, Normalizer, Reason, Remote, Routing, connect
from mmroute.forwarding import vllm_generate, vllm_generate_cached
from mmroute.images import read_image
from mmroute.lab.parity.oracles.pictures import data_url
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.placement import PlaceholderRange
from mmroute.requests.lines import request_of
from mmroute.server.remote.normalizer import RemoteNormalizer

pytestmark = pytest.mark.process


def assert_same(found: Routing, expected: Routing) -> None:
    """All that a router reads."""
    assert found.reason is expected.reason, found.message
    if not expected.exact:
        return
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    assert not found.token_ids.flags.writeable
    placed = [
        [(p.offset, p.length, p.embed_runs) for p in r.placeholders] for r in (found, expected)
    ]
    assert placed[0] == placed[1]
    assert [*map(str, found.identities)] == [*map(str, expected.identities)]
    assert found.block_hashes().hex() == expected.block_hashes().hex()
    assert found.extra_keys(block_size=4) == expected.extra_keys(block_size=4)
    assert found.pad_value_ids().tolist() == expected.pad_value_ids().tolist()


# The engine's server refuses a template variable for these; the model alone takes it.
REFUSED_OVER_HTTP: Final = {(EMBEDDED_MODEL, "unknown-variable")}
MODELS: Final = sorted(VECTORS.glob("*.jsonl"))
QUARTERS: Final = 4


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a case, with a file for every size."""
    request = request_of(comparison.request_of(case))
    given = request._asdict()
    sizes = (image.size for image in request.images)
    given["images"] = [
        read_image(data_url(size.width, size.height), uuid=size.uuid) for size in sizes
    ]
    return given


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_server_answers_the_vectors_as_the_loaded_model_does(
    path: Path, served: str, normalizer: Callable[[str], Normalizer]
) -> None:
    """vLLM's own IDs and ranges, and all else as from the same model, loaded.

    Each model is asked every fourth request, another quarter of them than the model before.
    """
    local, asked = normalizer(path.stem), 0
    first = MODELS.index(path) % QUARTERS
    with connect(path.stem, Remote(served, timeout=30)) as remote:
        for case in read_vectors(path)[1][first::QUARTERS]:
            given = arguments(case)
            found = remote.normalize(**given)
            if given["messages"] is None and given["images"]:
                assert found.reason is Reason.REMOTE_INEXPRESSIBLE
                continue
            asked += 1
            if (path.stem, case["id"]) in REFUSED_OVER_HTTP:
                assert found.reason is Reason.INVALID_REQUEST
                continue
            assert_same(found, local.normalize(**given))
            if found.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS:
                assert case["mm_processor_kwargs"]  # the engine ignores some that we refuse
                continue
            assert found.exact == ("refused" not in case["expect"]), case["id"]
            if found.exact:
                assert found.token_ids.tolist() == expanded(case["expect"]["token_runs"])
                placed = [(p["offset"], p["length"]) for p in case["expect"]["placeholders"]]
                assert [(p.offset, p.length) for p in found.placeholders] == sorted(placed)
    assert asked > 15


@pytest.mark.parametrize("key", ["", "secret ", " secret", "se cret", "sécret", "a\nb"])
def test_a_key_that_is_no_header_is_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="api_key") as refused:
        Remote("http://h:1", api_key=key)
    assert not key.strip() or key.strip() not in str(refused.value)


def test_what_a_server_does_not_tell_is_not_forwarded(qwen: RemoteNormalizer) -> None:
    """The prompt before expansion; and, by vLLM, which positions are features."""
    request = {"messages": user(picture(64, 48))}
    routing = qwen.normalize(messages=request["messages"])
    with pytest.raises(InexactError) as refused:
        _ = routing.unexpanded_token_ids
    assert refused.value.reason is Reason.REMOTE_INEXPRESSIBLE
    with pytest.raises(InexactError):
        vllm_generate(routing, request, sampling_params={})
    assert vllm_generate_cached(routing, request, sampling_params={})["features"]
    place = PlaceholderRange(0, 1, 3, embeds_known=False)
    untold = replace(routing, placeholders=(place,))
    with pytest.raises(ValueError, match="known to be a feature"):
        vllm_generate_cached(untold, request, sampling_params={})
    text = qwen.normalize(messages=HI)
    assert text.unexpanded_token_ids.tolist() == text.token_ids.tolist()


def test_the_same_arguments() -> None:
    for name in ("normalize", "normalize_many", "stats"):
        ours = inspect.signature(getattr(RemoteNormalizer, name))
        assert ours == inspect.signature(getattr(Normalizer, name))


@pytest.mark.parametrize(
    ("parts", "images"),
    [
        ([picture(64, 48), {"type": "text", "text": "a"}], None),
        ([PART, picture(64, 48), PART], [read_image(png_url(90, 60)), read_image(png_url(60, 90))]),
        ([PART], [read_image(png_url(90, 60), uuid="u")]),
        ([{**PART, "uuid": "u"}], [read_image(png_url(90, 60))]),
        ([picture(64, 48, uuid="v")], None),
        ([LINK], [read_image(png_url(90, 60))]),
        ([LINK], None),
        ([PART], None),
        ([picture(64, 48)], [read_image(png_url(90, 60))]),
        ([{**PART, "uuid": "u"}], [read_image(png_url(90, 60), uuid="v")]),
        ([picture(64, 48, uuid=3)], None),
        ([picture(64, 48, uuid="u"), picture(90, 60, uuid="u")], None),
        ([picture(5, 1005)], None),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], None),
        ([{"type": "nonsense"}], None),
        ([{"type": "text", "text": "<|image_pad|>"}], None),
    ],
)  # fmt: skip
def test_images_are_answered_as_by_a_loaded_model(
    parts: Any, images: Any, qwen: RemoteNormalizer, normalizer: Callable[[str], Normalizer]
) -> None:
    messages = user(*parts)
    before = json.dumps(messages)
    found = qwen.normalize(messages=messages, images=images)
    assert_same(found, normalizer(QWEN).normalize(messages=messages, images=images))
    assert json.dumps(messages) == before


def test_a_server_is_not_asked_for_videos(qwen: RemoteNormalizer) -> None:
    video = {"type": "video_url", "video_url": {"url": "https://example.com"}}
    found = qwen.normalize(messages=user(video))
    assert found.reason is Reason.REMOTE_INEXPRESSIBLE


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"prompt": "a", "messages": HI},
        {"prompt": 3},
        {"prompt_token_ids": "abc"},
        {"prompt_token_ids": []},
        {"prompt_token_ids": [1, -1]},
        {"prompt_token_ids": [1, 1 << 40]},
        {"prompt_token_ids": [1, 100_000]},
        {"prompt_token_ids": [1, 2, 3]},
        {"prompt": "a b " * 100_000},
        {"messages": []},
        {"messages": HI, "images": 3},
        {"messages": HI, "tools": []},
        {"messages": HI, "continue_final_message": True},
        {"messages": HI, "add_generation_prompt": "no"},
        {"messages": HI, "cache_salt": "a/b"},
        {"messages": HI, "cache_salt": "a"},
        {"messages": HI, "lora": Lora("a", "/a")},
        {"messages": HI, "lora": 3},
        {"messages": user(picture(64, 48)), "mm_processor_kwargs": {"max_pixels": 784}},
        {"messages": user(picture(64, 48)), "mm_processor_kwargs": {"size": 3}},
        {"prompt": "half a \ud800 pair"},
    ],
    ids=str,
)
def test_requests_are_answered_as_by_a_loaded_model(
    given: Any, qwen: RemoteNormalizer, normalizer: Callable[[str], Normalizer]
) -> None:
    assert_same(qwen.normalize(**given), normalizer(QWEN).normalize(**given))


def test_what_no_server_can_be_asked(qwen: RemoteNormalizer) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    asked: list[tuple[dict[str, Any], Reason]] = [
        ({"messages": user(PART), "images": [ImageSize(4, 4)]}, Reason.REMOTE_INEXPRESSIBLE),
        ({"messages": user(PART), "images": [ImageSize(4, 4, "u")]}, Reason.REMOTE_INEXPRESSIBLE),
        ({"prompt": "a", "images": [read_image(png_url(4, 4))]}, Reason.REMOTE_INEXPRESSIBLE),
        ({"messages": HI, "tools": [deep]}, Reason.INVALID_REQUEST),
        ({"messages": HI, "chat_template_kwargs": {"a": object()}}, Reason.INVALID_REQUEST),
    ]
    for given, reason in asked:
        routing = qwen.normalize(**given)
        assert routing.reason is reason
        with pytest.raises(InexactError):
            _ = routing.token_ids


def test_one_uuid_for_two_images_is_not_asked(scripted: ScriptedServer) -> None:
    """vLLM answers with the first image's tokens for both."""
    with connected(scripted) as remote:
        messages = user(picture(4, 4, uuid="u"), picture(99, 99, uuid="u"))
        assert remote.normalize(messages=messages).reason is Reason.UNSUPPORTED_FIELD
        assert not scripted.bodies(CHAT)
        remote.normalize(messages=user(picture(4, 4, uuid="u"), picture(4, 4, uuid="u")))
        assert scripted.bodies(CHAT)


def test_a_size_given_for_a_link_is_left_to_the_server(scripted: ScriptedServer) -> None:
    features = {"mm_hashes": {"image": ["u"]}, "mm_placeholders": {"image": [RANGE]}}
    scripted.routes[CHAT] = (200, {"token_ids": [1] * 5, "features": features})
    with connected(scripted) as remote:
        routing = remote.normalize(messages=user(LINK), images=[ImageSize(4, 4, "u")])
    assert [*map(str, routing.identities)] == ["u"]
    assert scripted.bodies(CHAT)[0]["messages"] == user({**LINK, "uuid": "u"})


def test_many_requests_in_threads(served: str, normalizer: Callable[[str], Normalizer]) -> None:
    requests: list[dict[str, Any]] = [{"prompt": f"what is {n}" * (n % 7 + 1)} for n in range(200)]
    remote = connect(QWEN, Remote(served, max_connections=3))
    local = normalizer(QWEN)
    with remote, ThreadPoolExecutor(8) as pool:
        for request, found in zip(
            requests, pool.map(lambda r: remote.normalize(**r), requests), strict=True
        ):
            assert_same(found, local.normalize(**request))
        for request, found in zip(
            requests, remote.normalize_many(requests, threads=2), strict=True
        ):
            assert_same(found, local.normalize(**request))
        with pytest.raises(ValueError, match="threads"):
            remote.normalize_many(requests, threads=0)


def test_block_hashes_are_kept(qwen: RemoteNormalizer) -> None:
    """As those of a loaded model are, for prompts that are long enough."""
    routing = qwen.normalize(prompt="what is 2 the image " * 900)
    first = routing.block_hashes().hex()
    assert routing.block_hashes().hex() == first
    stats = qwen.stats()
    assert stats.encoder is None
    assert stats.hashes is not None
    assert stats.hashes.hits == 1


def test_in_another_process(qwen: RemoteNormalizer) -> None:
    other = pickle.loads(pickle.dumps(qwen))
    with other:
        assert_same(other.normalize(prompt="a"), qwen.normalize(prompt="a"))
