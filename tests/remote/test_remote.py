"""`Normalizer.from_pretrained(..., remote=...)`: a server in place of a model that is loaded."""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import pickle
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import comparison
import pytest
import uvicorn
from comparison import read_vectors
from paths import VECTORS
from scripted_server import ScriptedServer
from server_cases import png_url
from small_models import SMALL_MODELS

from mmroute import ImageSize, InexactError, Lora, ModelError, Normalizer, Reason, Remote, Routing
from mmroute.engines.known import find_engine
from mmroute.errors import EngineVersionWarning
from mmroute.fast_paths import REFERENCE_ONLY
from mmroute.forwarding import vllm_generate, vllm_generate_cached
from mmroute.hashing import HashedItem
from mmroute.hashing.vllm import hash_older_blocks
from mmroute.images import read_image
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.parity.oracles.pictures import data_url
from mmroute.placement import PlaceholderRange
from mmroute.remote.normalizer import RemoteNormalizer
from mmroute.request_lines import request_of
from mmroute.server.app import create_app
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.settings import InexactPolicy, ServerSettings

pytestmark = pytest.mark.process

CHAT: Final = "/v1/chat/completions/render"
COMPLETION: Final = "/v1/completions/render"
QWEN: Final = "small-qwen2.5-vl"
PART: Final[dict[str, Any]] = {"type": "image"}
LINK: Final[dict[str, Any]] = {
    "type": "image_url",
    "image_url": {"url": "https://example.com/x.png"},
}
HI: Final[list[dict[str, Any]]] = [{"role": "user", "content": "Hi"}]
RANGE: Final[dict[str, Any]] = {"offset": 1, "length": 3}


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def picture(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": png_url(width, height)}, **more}


@contextlib.contextmanager
def listening(
    models: Models, settings: ServerSettings | None = None, *, uds: Path | None = None
) -> Iterator[str]:
    """``mmroute serve`` in a thread of this process, its models loaded; its URL."""
    if uds is not None:
        listener, url = socket.socket(socket.AF_UNIX), f"unix://{uds}"
        uds.unlink(missing_ok=True)
        listener.bind(str(uds))
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        create_app(models, settings), loop="asyncio", http="httptools", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not models.ready:
        assert time.monotonic() < deadline, "the models were not loaded"
        time.sleep(0.01)
    yield url
    server.should_exit = True
    thread.join(20)
    listener.close()


@pytest.fixture(scope="session")
def served(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """All models of the vectors behind a Unix socket."""
    sources = [
        *(ModelSource(str(small_model(name)), (name,), f"org/{name}") for name in SMALL_MODELS),
        ModelSource(EMBEDDED_MODEL, (EMBEDDED_MODEL,), f"org/{EMBEDDED_MODEL}"),
    ]
    settings = ServerSettings(trust_request_mm_kwargs=True)
    socket_path = tmp_path_factory.mktemp("remote") / "s"
    models = Models(sources, fast_paths=REFERENCE_ONLY)
    with listening(models, settings, uds=socket_path) as url:
        yield url


@pytest.fixture
def qwen(served: str) -> Iterator[RemoteNormalizer]:
    with Normalizer.from_pretrained(QWEN, remote=served) as remote:
        yield remote


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def connect(server: ScriptedServer, **settings: Any) -> RemoteNormalizer:
    return Normalizer.from_pretrained("m", remote=Remote(server.url, **settings))


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
    assert [*map(str, found.image_identities)] == [*map(str, expected.image_identities)]
    assert found.block_hashes().hex() == expected.block_hashes().hex()
    assert found.extra_keys(block_size=4) == expected.extra_keys(block_size=4)
    assert found.pad_value_ids().tolist() == expected.pad_value_ids().tolist()


# --- the same answers as from a loaded model ------------------------------------------------------

# The engine's server refuses a template variable for these; the model alone takes it.
REFUSED_OVER_HTTP: Final = {(EMBEDDED_MODEL, "unknown-variable")}


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a case, with a file for every size."""
    request = request_of(comparison.request_of(case))
    given = request._asdict()
    sizes = (image.size for image in request.images)
    given["images"] = [
        read_image(data_url(size.width, size.height), uuid=size.uuid) for size in sizes
    ]
    return given


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_vectors(path: Path, served: str, normalizer: Callable[[str], Normalizer]) -> None:
    """vLLM's own IDs and ranges, and all else as from the same model, loaded."""
    local, asked = normalizer(path.stem), 0
    with Normalizer.from_pretrained(path.stem, remote=Remote(served, timeout=30)) as remote:
        for case in read_vectors(path)[1]:
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
            assert found.exact == ("refused" not in case["expect"]), case["id"]
            if found.exact:
                runs = case["expect"]["token_runs"]
                assert found.token_ids.tolist() == [t for t, n in runs for _ in range(n)]
                placed = [(p["offset"], p["length"]) for p in case["expect"]["placeholders"]]
                assert [(p.offset, p.length) for p in found.placeholders] == sorted(placed)
    assert asked > 70


@pytest.mark.parametrize("key", ["", "secret ", " secret", "se cret", "sécret", "a\nb"])
def test_a_key_that_is_no_header_is_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="api_key") as refused:
        Remote("http://h:1", api_key=key)
    assert not key.strip() or key.strip() not in str(refused.value)


def test_a_part_of_a_prompt_is_no_answer(small_model: Callable[[str], Path]) -> None:
    """A server may give its clients the text before the first image; those who see that it does."""
    settings = ServerSettings(inexact=InexactPolicy.TEXT_PREFIX)
    with (
        listening(Models([ModelSource(str(small_model(QWEN)), (QWEN,))]), settings) as url,
        Normalizer.from_pretrained(QWEN, remote=url) as remote,
    ):
        found = remote.normalize(messages=user({"type": "text", "text": "a"}, LINK))
        assert found.reason is Reason.IMAGE_SIZE_UNKNOWN
        assert remote.normalize(messages=user(picture(64, 48))).exact


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
def test_images(
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
def test_requests(
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
    with connect(scripted) as remote:
        messages = user(picture(4, 4, uuid="u"), picture(99, 99, uuid="u"))
        assert remote.normalize(messages=messages).reason is Reason.INVALID_REQUEST
        assert not scripted.bodies(CHAT)
        remote.normalize(messages=user(picture(4, 4, uuid="u"), picture(4, 4, uuid="u")))
        assert scripted.bodies(CHAT)


def test_a_size_given_for_a_link_is_left_to_the_server(scripted: ScriptedServer) -> None:
    features = {"mm_hashes": {"image": ["u"]}, "mm_placeholders": {"image": [RANGE]}}
    scripted.routes[CHAT] = (200, {"token_ids": [1] * 5, "features": features})
    with connect(scripted) as remote:
        routing = remote.normalize(messages=user(LINK), images=[ImageSize(4, 4, "u")])
    assert [*map(str, routing.image_identities)] == ["u"]
    assert scripted.bodies(CHAT)[0]["messages"] == user({**LINK, "uuid": "u"})


def test_many_requests_in_threads(served: str, normalizer: Callable[[str], Normalizer]) -> None:
    requests: list[dict[str, Any]] = [{"prompt": f"what is {n}" * (n % 7 + 1)} for n in range(200)]
    remote = Normalizer.from_pretrained(QWEN, remote=Remote(served, max_connections=3))
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


# --- what the server tells ------------------------------------------------------------------------


def rendered(*ranges: Any, ids: Sequence[int] = (7, 9, 9, 9, 8), hashes: Any = None) -> Any:
    names = [f"h{n}" for n in range(len(ranges))] if hashes is None else hashes
    features = {"mm_hashes": {"image": names}, "mm_placeholders": {"image": list(ranges)}}
    return 200, {"token_ids": list(ids), "features": features}


def test_feature_positions_that_vllm_does_not_tell(scripted: ScriptedServer) -> None:
    scripted.routes[CHAT] = rendered(RANGE, hashes=["ab" * 32])
    with connect(scripted) as remote:
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
        Normalizer.from_pretrained("m", remote=url) as remote,
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
    with connect(scripted) as remote:
        (placeholder,) = remote.normalize(messages=user(picture(4, 4))).placeholders
    assert (placeholder.embed_runs, placeholder.embeds_known) == (runs, True)


def test_images_are_listed_by_position(scripted: ScriptedServer) -> None:
    with connect(scripted) as remote:
        routing = remote.normalize(messages=user(picture(4, 4), picture(5, 5)))
    assert [(p.offset, p.length) for p in routing.placeholders] == [(1, 2), (4, 1)]
    assert [*map(str, routing.image_identities)] == ["bb", "aa"]


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
    with connect(scripted) as remote:
        scripted.routes[CHAT] = reply
        scripted.more_headers = {"Location": f"{scripted.url}/other"}
        routing = remote.normalize(messages=user(picture(4, 4)))
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert scripted.url in routing.message
    assert not scripted.bodies("/other")
    assert len(scripted.bodies(CHAT)) == 1


@pytest.mark.parametrize("reply", [(200, {"token_ids": [1], "features": None}), (200, [])])
def test_what_is_no_answer_to_a_prompt(scripted: ScriptedServer, reply: Any) -> None:
    with connect(scripted) as remote:
        scripted.routes[COMPLETION] = reply
        assert remote.normalize(prompt="a").reason is Reason.REMOTE_UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "kind", "param", "reason"),
    [
        (400, "BadRequestError", None, Reason.INVALID_REQUEST),
        (400, "Bad Request", "body.messages", Reason.INVALID_REQUEST),
        (400, "BadRequestError", "input_tokens", Reason.PROMPT_TOO_LONG),
        (400, "BadRequestError", "image", Reason.TOO_MANY_IMAGES),
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
def test_refusals(
    scripted: ScriptedServer, status: int, kind: str, param: Any, reason: Reason
) -> None:
    error = {"message": "this is why", "type": kind, "param": param, "code": status}
    scripted.routes[CHAT] = (status, {"error": error})
    with connect(scripted) as remote:
        routing = remote.normalize(messages=HI)
    assert routing.reason is reason
    assert "this is why" in routing.message


# --- connections ----------------------------------------------------------------------------------


def test_connections_are_kept_and_closed(scripted: ScriptedServer) -> None:
    with connect(scripted) as remote:
        for _ in range(5):
            assert remote.normalize(prompt="a").exact
        assert len(set(scripted.clients)) == 1
    assert remote.normalize(prompt="a").exact  # and it may go on
    assert len(set(scripted.clients)) == 2
    remote.close()
    remote.close()


def test_connections_are_bounded(scripted: ScriptedServer) -> None:
    with connect(scripted, max_connections=2) as remote, ThreadPoolExecutor(8) as pool:
        scripted.delay = 0.02
        routings = list(pool.map(lambda _: remote.normalize(prompt="a"), range(24)))
    assert all(routing.exact for routing in routings)
    assert scripted.busiest == 2
    assert len(set(scripted.clients)) <= 2


def test_a_forked_process_has_its_own_connections(scripted: ScriptedServer) -> None:
    with connect(scripted) as remote:
        child = os.fork()
        if not child:
            os._exit(0 if remote.normalize(prompt="a").exact else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert remote.normalize(prompt="a").exact
    connections = list(dict.fromkeys(scripted.clients))
    assert len(connections) == 2
    assert scripted.clients[-1] == connections[0]


# httpcore leaves a socket that found nobody to the garbage collector, which warns of it.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_server_that_is_started_again(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    source = ModelSource(str(small_model(QWEN)), ("m",))
    with listening(Models([source]), uds=tmp_path / "s") as url:
        remote = Normalizer.from_pretrained("m", remote=url)
        assert remote.normalize(prompt="a").exact
    away = remote.normalize(prompt="a")
    assert away.reason is Reason.REMOTE_UNAVAILABLE
    assert "cannot be reached" in away.message
    gc.collect()
    with listening(Models([source]), uds=tmp_path / "s"), remote:
        assert remote.normalize(prompt="a").exact


@contextlib.contextmanager
def answering(behave: Callable[[socket.socket, int], None]) -> Iterator[tuple[str, list[int]]]:
    """A socket whose connections are handed to a function, one by one; how many there were."""
    count: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    count.append(len(count))
                    with connection, contextlib.suppress(OSError):
                        behave(connection, count[-1])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", count
        listener.shutdown(socket.SHUT_RDWR)


def receive(connection: socket.socket) -> bytes:
    """One request."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        chunk = connection.recv(65536)
        if not chunk:
            raise OSError
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        while name.lower() == b"content-length" and len(body) < int(value):
            body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def send(connection: socket.socket, value: Any) -> None:
    content = json.dumps(value).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)


def greet(connection: socket.socket) -> None:
    """What a client asks first, and wants to hear."""
    receive(connection)
    send(connection, {"version": "0.33.0"})
    receive(connection)
    send(connection, {"data": [{"id": "m", "parent": None}]})
    receive(connection)
    send(connection, [{"token_ids": [1], "features": None}])


def test_a_kept_connection_that_is_closed_at_the_wrong_moment() -> None:
    """The request was sent, and nobody read it: it is sent once more."""
    requests = []

    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
            requests.append(receive(connection))
            return  # closed without a word
        requests.append(receive(connection))
        send(connection, [{"token_ids": [2], "features": None}])

    with answering(behave) as (url, count), Normalizer.from_pretrained("m", remote=url) as remote:
        assert remote.normalize(prompt="b").token_ids.tolist() == [2]
    assert len(count) == 2
    assert requests[0] == requests[1]


def test_a_new_connection_that_is_closed_is_not_tried_again() -> None:
    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
        else:
            receive(connection)

    with answering(behave) as (url, count), Normalizer.from_pretrained("m", remote=url) as remote:
        remote.close()
        assert remote.normalize(prompt="b").reason is Reason.REMOTE_UNAVAILABLE
        assert len(count) == 2


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n["],
    ids=["nothing", "headers", "body"],
)
@pytest.mark.parametrize("drips", [False, True])
def test_a_slow_server(beginning: bytes, drips: bool) -> None:
    """Whatever it sends, and however slowly, a request ends when its time is over."""
    done = threading.Event()

    def behave(connection: socket.socket, _: int) -> None:
        greet(connection)
        receive(connection)
        connection.sendall(beginning or b"HTTP" * drips)
        while not done.wait(0.05):
            if drips:
                connection.sendall(b" ")

    with answering(behave) as (url, count):
        remote = Normalizer.from_pretrained("m", remote=Remote(url, timeout=1.0))
        routing = remote.normalize(prompt="b")
        done.set()
        remote.close()
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert "within 1 s" in routing.message
    assert len(count) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http(answer: bytes) -> None:
    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
        receive(connection)
        connection.sendall(answer)

    with answering(behave) as (url, _), Normalizer.from_pretrained("m", remote=url) as remote:
        assert remote.normalize(prompt="b").reason is Reason.REMOTE_UNAVAILABLE


def test_an_answer_without_end() -> None:
    sent = 0

    def behave(connection: socket.socket, _: int) -> None:
        nonlocal sent
        greet(connection)
        receive(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * (1 << 20))
            sent += 1 << 20

    with answering(behave) as (url, _):
        remote = Normalizer.from_pretrained("m", remote=Remote(url, timeout=60))
        routing = remote.normalize(prompt="b")
        remote.close()
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert "more than" in routing.message
    assert sent < 80 << 20


# --- the first contact ----------------------------------------------------------------------------


def refused(model: str, remote: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        Normalizer.from_pretrained(model, remote=remote)
    return caught.value


def test_names_that_are_not_served(served: str) -> None:
    error = refused("small-qwen2.5-v1", served)
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert "did you mean 'small-qwen2.5-vl'?" in str(error)


def test_adapters_are_given_with_requests(scripted: ScriptedServer) -> None:
    scripted.routes["/v1/models"] = (200, {"data": [{"id": "m"}, {"id": "a", "parent": "m"}]})
    error = refused("a", scripted.url)
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert "give `lora`" in str(error)


@pytest.mark.parametrize(
    ("path", "reply", "why"),
    [
        ("/v1/models", (401, {"error": "Unauthorized"}), "API key"),
        ("/v1/models", (404, {"detail": "Not Found"}), "is it a vLLM server"),
        ("/v1/models", (200, {"data": [3]}), "names no model"),
        ("/v1/models", (200, b"<html>"), "names no model"),
        (COMPLETION, (403, {"error": {"message": "Restart with --enable-scale-out"}}), "scale-out"),
        (COMPLETION, (404, {"detail": "Not Found"}), "Not Found"),
        (COMPLETION, (503, {"error": {"message": "is being loaded"}}), "is being loaded"),
        (COMPLETION, (400, {"error": {"message": "no"}}), "renders no prompt for 'm': no"),
    ],
)
def test_servers_that_cannot_answer(
    scripted: ScriptedServer, path: str, reply: Any, why: str
) -> None:
    scripted.routes[path] = reply
    error = refused("m", scripted.url)
    assert error.reason is Reason.REMOTE_UNAVAILABLE
    assert why in str(error)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # as above
def test_no_server(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9", f"unix://{tmp_path}/none", "https://127.0.0.1:9/v1"):
        error = refused("m", url)
        assert error.reason is Reason.REMOTE_UNAVAILABLE
        assert "cannot be reached" in str(error)
        del error
        gc.collect()


def test_the_api_key(scripted: ScriptedServer) -> None:
    with connect(scripted, api_key="secret") as remote:
        assert scripted.headers[-1]["Authorization"] == "Bearer secret"
        assert "secret" not in repr(remote) + repr(remote.remote)


def test_a_url_may_end_in_v1(scripted: ScriptedServer) -> None:
    with Normalizer.from_pretrained("m", remote=f"{scripted.url}/v1/") as remote:
        assert remote.normalize(prompt="a").exact
    assert {path for path, _ in scripted.asked} == {"/version", "/v1/models", COMPLETION}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": 3}, "must be a text"),
        ({"url": "localhost:8000"}, "must be of the form"),
        ({"url": "http://"}, "must be of the form"),
        ({"url": "http://h/?x=1"}, "must be of the form"),
        ({"url": "http://h:port"}, "malformed"),
        ({"url": "unix://run/x.sock"}, "must be of the form"),
        ({"url": "unix:///x?y=1"}, "must be of the form"),
        ({"url": "http://user:secret@h"}, "credentials"),
        ({"url": "http://h", "api_key": "a\nb"}, "api_key"),
        ({"url": "http://h", "api_key": 3}, "api_key"),
        ({"url": "http://h", "timeout": 0}, "timeout"),
        ({"url": "http://h", "timeout": float("inf")}, "timeout"),
        ({"url": "http://h", "connect_timeout": "1"}, "connect_timeout"),
        ({"url": "http://h", "max_connections": 0}, "max_connections"),
        ({"url": "http://h", "max_connections": True}, "max_connections"),
    ],
    ids=str,
)
def test_settings_that_are_none(settings: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Remote(**settings)
    assert "secret" not in str(caught.value)


def test_nothing_else_goes_with_a_server() -> None:
    others: list[dict[str, Any]] = [{"backend": "x"}, {"model_id": "x"}, {"self_check": True}]
    for other in others:
        with pytest.raises(TypeError, match="remote"):
            Normalizer.from_pretrained("m", remote="http://h", **other)
    with pytest.raises(TypeError, match="URL or a Remote"):
        Normalizer.from_pretrained("m", remote=3)  # type: ignore[call-overload]  # what is tested


@pytest.mark.parametrize("said", ["0.12.0", "0.28.0", "0.34.0", "0.33.1.dev7+g0a1b2c3"])
def test_a_server_of_other_rules_is_told(scripted: ScriptedServer, said: str) -> None:
    scripted.routes["/version"] = 200, {"version": said}
    with pytest.warns(EngineVersionWarning, match=re.escape(f"vllm {said}: ")):
        connect(scripted).close()


@pytest.mark.parametrize("said", ["0.33.0+cu130", "0.31.0"])
def test_a_server_of_the_newest_rules_is_not_warned_of(scripted: ScriptedServer, said: str) -> None:
    scripted.routes["/version"] = 200, {"version": said}
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineVersionWarning)
        connect(scripted).close()


def test_block_hashes_follow_the_rules_of_the_server_s_version(scripted: ScriptedServer) -> None:
    images = [RANGE | {"offset": 1, "length": 15}]
    features = {"mm_hashes": {"image": ["aa"]}, "mm_placeholders": {"image": images}}
    scripted.routes[CHAT] = 200, {"token_ids": list(range(32)), "features": features}
    scripted.routes["/version"] = 200, {"version": "0.28.0"}
    with pytest.warns(EngineVersionWarning), connect(scripted) as remote:
        routing = remote.normalize(messages=user(picture(8, 8)))
    with pytest.raises(InexactError, match="PYTHONHASHSEED"):
        routing.block_hashes()
    assert (
        routing.block_hashes(seed="0").hex()
        == hash_older_blocks(
            routing.token_ids,
            [HashedItem("aa", 1, 15)],
            find_engine("vllm==0.28").hashing,
            algorithm="sha256",
            block_size=16,
            seed="0",
            lora=None,
            cache_salt=None,
        ).hex()
    )
