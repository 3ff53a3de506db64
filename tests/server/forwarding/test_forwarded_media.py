"""Media in bodies to forward: their names, an encoder's metadata, and what an engine holds."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, HI
from media_files import media_files, png_url
from server_helpers import error_of, serving

from mmroute import AudioLength, ImageSize, Normalizer, Reason, Routing, VideoSize, forwarding
from mmroute.engines.forwarding import CARRIERS
from mmroute.engines.vllm.forwarding import mm_metadata
from mmroute.requests.items import Modality
from mmroute.requests.request import RequestFields
from mmroute.server import ModelSource

SAMPLING: Final = {"temperature": 0.0, "max_tokens": 5}
Load = Callable[[str], Normalizer]


def route(normalizer: Normalizer, request: dict[str, Any]) -> Routing:
    return normalizer.normalize(messages=request["messages"])


def media_chat(*parts: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "text", "text": "<|video_pad|>"}  # which the small template does not write
    return {"messages": [{"role": "user", "content": [*parts, text]}]}


def carried(data: bytes, kind: str) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    if kind == "input_audio":
        return {"type": kind, kind: {"data": encoded, "format": "wav"}}
    return {"type": kind, kind: {"url": f"data:x/y;base64,{encoded}"}}


def test_videos_are_forwarded_by_their_modality(normalizer: Load) -> None:
    video = carried(media_files("videos")["plain"].data, "video_url") | {"uuid": "clip"}
    request = media_chat(video)
    routing = normalizer("small-qwen2.5-vl").normalize(messages=request["messages"])
    body = forwarding.vllm_generate(routing, request, sampling_params=SAMPLING)
    url = video["video_url"]["url"]
    assert body["content_parts"] == [{"type": "video_url", "url": url, "uuid": "clip"}]
    cached = forwarding.vllm_generate_cached(routing, request, sampling_params=SAMPLING)
    assert cached["features"]["mm_hashes"] == {"video": ["clip"]}
    assert cached["features"]["kwargs_data"] == {"video": [None]}
    with pytest.raises(ValueError, match="another request"):
        forwarding.vllm_generate(routing, {"messages": HI}, sampling_params=SAMPLING)


def test_files_get_one_name_each_and_modality() -> None:
    wav, mp4 = media_files("audios")["wav-PCM_16"].data, media_files("videos")["plain"].data
    parts = [
        carried(wav, "input_audio"), carried(wav, "audio_url"), carried(mp4, "video_url"),
        carried(mp4, "image_url"), carried(mp4, "video_url") | {"uuid": "mine"},
        {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
    ]  # fmt: skip
    request = media_chat(*parts)
    *named, _ = forwarding.with_uuids(request)["messages"][0]["content"]
    first, second, video, image, mine, link = [part.get("uuid") for part in named]
    assert first == second != video != image
    assert (mine, link) == ("mine", None)
    assert "uuid" not in request["messages"][0]["content"][0]
    assert forwarding.with_uuids(forwarding.with_uuids(request)) == forwarding.with_uuids(request)


FORWARD: Final = "/v1/chat/completions/forward"


def two_pictures() -> dict[str, Any]:
    urls = [png_url(64, 48), png_url(40, 90)]
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What?"}]}]}


def encoded(routing: Routing) -> dict[str, Any]:
    """What an encoder's engine answers (vLLM 0.32.0)."""
    return {
        identity.value: {"item_indices": [number], "metadata": {"image_grid_thw": [1, 4, 4]}}
        for number, (_, identity) in enumerate(routing.identified())
    }


def test_metadata_in_the_place_of_media(normalizer: Load) -> None:
    request = two_pictures()
    qwen = normalizer("small-qwen2.5-vl")
    with pytest.raises(ValueError, match="ec_transfer_params"):
        forwarding.vllm_generate_metadata(route(qwen, request), request, sampling_params=SAMPLING)
    routing = route(qwen, request)
    request["ec_transfer_params"] = encoded(routing)
    body = forwarding.vllm_generate_metadata(routing, request, sampling_params=SAMPLING)
    cached = forwarding.vllm_generate_cached(routing, request, sampling_params=SAMPLING)
    assert body["features"].pop("mm_metadata") == mm_metadata(routing)
    assert (body["features"].pop("kwargs_data"), cached["features"].pop("kwargs_data")) == (
        None, {"image": [None, None]},
    )  # fmt: skip
    assert body == cached
    # An encoder that lost an item says so by empty metadata (vLLM 0.33.0, its CPU connector).
    nothing: list[dict[str, Any]] = [{}, {"metadata": {}}]
    for lost in nothing:
        told = {**request["ec_transfer_params"], routing.identified()[1][1].value: lost}
        chat = {**request, "ec_transfer_params": told}
        with pytest.raises(ValueError, match="no metadata of item 2"):
            forwarding.vllm_generate_metadata(routing, chat, sampling_params=SAMPLING)
        with pytest.raises(ValueError, match="no metadata of item 2"):
            forwarding.vllm_chat_metadata(routing, chat)
    # vLLM 0.32.0 and 0.33.0: numeric JSON arrays, and the uuid as the item's hash.
    chat = forwarding.vllm_chat_metadata(routing, request)
    (message,) = chat["messages"]
    grids = ([1, 4, 4], [1, 6, 4])
    assert message["content"][:2] == [
        {"type": "image_embeds", "image_embeds": {"image_grid_thw": grid}, "uuid": identity.value}
        for grid, (_, identity) in zip(grids, routing.identified(), strict=True)
    ]
    assert json.loads(json.dumps(chat)) == chat
    llava = normalizer("small-llava-next")  # its embeddings come without metadata
    routing = route(llava, request)
    with pytest.raises(ValueError, match="no metadata of this image in a chat"):
        forwarding.vllm_chat_metadata(routing, {**request, "ec_transfer_params": encoded(routing)})


def test_items_that_an_engine_holds_are_named_alone(normalizer: Load) -> None:
    request = forwarding.with_uuids(two_pictures())
    routing = route(normalizer("small-qwen2.5-vl"), request)
    held = {routing.identities[1].value}  # type: ignore[union-attr]  # a uuid is known
    chat = forwarding.vllm_chat_cached(routing, request, held)
    first, second, text = chat["messages"][0]["content"]
    sent = request["messages"][0]["content"]
    assert (first, text) == (sent[0], sent[2])
    assert second == {"type": "image_url", "image_url": None, "uuid": next(iter(held))}
    # Router and engine know it by the same name and prompt as before.
    assert forwarding.vllm_chat_cached(routing, request, ()) == request


@pytest.mark.parametrize("kind", CARRIERS)
def test_an_item_that_is_named_by_its_uuid_alone_is_read_again(normalizer: Load, kind: str) -> None:
    modality = CARRIERS[kind].modality
    data: bytes
    sizes: RequestFields
    if modality is Modality.IMAGE:
        data = base64.b64decode(png_url(64, 48).partition(",")[2])
        sizes = {"images": [ImageSize(64, 48)]}
    elif modality is Modality.VIDEO:
        data, sizes = media_files("videos")["plain"].data, {"videos": [VideoSize(32, 16, 6, 30.0)]}
    else:
        data, sizes = media_files("audios")["flac"].data, {"audios": [AudioLength(9001, 22_050)]}
    omni = normalizer("small-qwen2.5-omni")
    # The small template writes the placeholders of images alone.
    text = {"type": "text", "text": "" if modality == "image" else f"<|{modality.upper()}|>"}
    part = carried(data, kind) | {"uuid": "held"}
    request = {"messages": [{"role": "user", "content": [part, text]}]}
    routing = route(omni, request)
    sent = forwarding.vllm_chat_cached(routing, request, {"held"})
    assert sent["messages"][0]["content"] == [{"type": kind, kind: None, "uuid": "held"}, text]
    assert route(omni, sent).reason is Reason.IMAGE_SIZE_UNKNOWN
    sizes["messages"] = sent["messages"]
    again = omni.normalize(**sizes)
    assert again.token_ids.tolist() == routing.token_ids.tolist()
    assert again.block_hashes(block_size=1) == routing.block_hashes(block_size=1)
    assert forwarding.vllm_chat_cached(again, sent, {"held"}) == sent


def test_uuids_are_scoped_by_tenant() -> None:
    request = two_pictures()
    request["messages"][0]["content"][1]["uuid"] = "mine"

    def uuids(key: bytes | None) -> list[str]:
        parts = forwarding.with_uuids(request, tenant_key=key)["messages"][0]["content"]
        return [part["uuid"] for part in parts[:2]]

    plain, one, other = uuids(None), uuids(b"one"), uuids(b"other")
    assert plain[1] == "mine"
    assert len({*plain, *one, *other}) == 6
    assert one == uuids(b"one")
    # HMAC-SHA256 of RFC 2104.
    assert one[1] == hmac.new(b"one", b"uuid mine", "sha256").hexdigest()
    # A client cannot name by hand what its own file is called.
    content = request["messages"][0]["content"][0]["image_url"]["url"].partition(",")[2]
    request["messages"][0]["content"][1]["uuid"] = f"image {content}"
    assert uuids(b"one")[0] != uuids(b"one")[1]
    with pytest.raises(ValueError, match="tenant_key is empty"):
        uuids(b"")


def test_the_server_answers_with_the_body_to_forward(small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    request = forwarding.with_uuids({**two_pictures(), "max_tokens": 7})
    routing = Normalizer.from_pretrained(directory).normalize(messages=request["messages"])
    request["ec_transfer_params"] = encoded(routing)
    held = [routing.identities[0].value]  # type: ignore[union-attr]  # a uuid is known
    with serving([ModelSource(directory, ("a",))]) as client:
        rendered = client.post(CHAT, json=request).json()
        told = {
            name: rendered[name] for name in ("sampling_params", "output_mode", "parse_context")
        }
        for name in ("vllm_generate", "vllm_generate_cached", "vllm_generate_metadata"):
            expected = getattr(forwarding, name)(routing, request, **told)
            for path in (FORWARD, f"{FORWARD}?fields=tokens"):
                found = client.post(path, json={**request, "forward_to": name}).json()
                assert found == expected
        assert found["sampling_params"]["max_tokens"] == 7
        found = client.post(FORWARD, json={**request, "forward_to": "vllm_chat_metadata"}).json()
        assert found == forwarding.vllm_chat_metadata(routing, request)
        body = {**request, "forward_to": "vllm_chat_cached", "held": held}
        found = client.post(FORWARD, json=body).json()
        assert found == forwarding.vllm_chat_cached(routing, request, held)
        # What a route cannot carry.
        refused = client.post(FORWARD, json={**request, "forward_to": "vllm_chat"})
        assert error_of(refused) == (400, "BadRequestError", "forward_to")
        unknown = client.post(FORWARD, json={**request, "forward_to": "nowhere"})
        assert error_of(unknown) == (400, "Bad Request", "body.forward_to")
