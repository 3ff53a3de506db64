"""Bodies to forward, and what vLLM's own routes made of the same ones (`vectors/forwarding`)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import paths
import pytest
from chat_requests import CHAT, COMPLETION, HI
from comparison import expanded, read_vectors
from server_helpers import error_of, serving
from small_models import SMALL_MODELS, fingerprint

from mmroute import ImageSize, InexactError, Normalizer, Reason, Routing, forwarding
from mmroute.hashing import pad_value
from mmroute.server import ModelSource

VECTORS: Final = sorted((paths.VECTORS / "forwarding").glob("*.jsonl"))
SAMPLING: Final = {"temperature": 0.0, "max_tokens": 5}
Load = Callable[[str], Normalizer]


def cases() -> list[Any]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem}-{case['route']}-{case['name']}")
        for path in VECTORS
        for case in read_vectors(path)[1]
    ]


def request_of(model: str, name: str) -> dict[str, Any]:
    """A request of the vectors."""
    (path,) = (path for path in VECTORS if path.stem == model)
    found: dict[str, Any] = next(
        case["request"] for case in read_vectors(path)[1] if case["name"] == name
    )
    return found


def route(normalizer: Normalizer, request: dict[str, Any]) -> Routing:
    return normalizer.normalize(messages=request["messages"], cache_salt=request.get("cache_salt"))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors_are_of_these_models(path: Path) -> None:
    meta = read_vectors(path)[0]
    if meta["model"] in SMALL_MODELS:
        assert fingerprint(SMALL_MODELS[meta["model"]]()) == meta["fingerprint"]


@pytest.mark.parametrize(("model", "case"), cases())
def test_vllm_makes_the_routed_prompt_of_it(
    normalizer: Load, model: str, case: dict[str, Any]
) -> None:
    request, expect, name = case["request"], case["expect"], case["route"]
    routing = route(normalizer(model), request)
    more: dict[str, Any] = {} if name == "vllm_chat" else {"sampling_params": SAMPLING}
    cached = name == "vllm_generate_cached"
    embeds = [sum(n for embed, n in p.embed_runs or ((1, p.length),) if embed)
              for p in routing.placeholders]  # fmt: skip
    if cached and ("refused" in expect or expect["num_embeds"] != embeds):
        with pytest.raises(ValueError, match="vllm_generate"):
            forwarding.vllm_generate_cached(routing, request, **more)
        return
    body = getattr(forwarding, name)(routing, request, **more)
    recorded = dict(case["body"])
    if "token_ids" in recorded:
        recorded["token_ids"] = expanded(recorded["token_ids"])
    assert json.loads(json.dumps(body)) == recorded
    assert routing.token_ids.tolist() == expanded(expect["token_runs"])
    assert [[p.offset, p.length] for p in routing.placeholders] == expect["ranges"]
    assert [identity.value for _, identity in routing.identified()] == expect["mm_hashes"]
    assert embeds == expect["num_embeds"]
    assert expect["cache_salt"] == routing.cache_salt
    if routing.placeholders:
        assert any(expect["with_pixels"]) is not cached


def test_the_vectors_show_what_features_cannot_say() -> None:
    """Otherwise the refusals would have nothing to prove them."""
    refused, misread = set(), set()
    for path in VECTORS:
        for case in read_vectors(path)[1]:
            if case["route"] == "vllm_generate_cached":
                if "refused" in case["expect"]:
                    refused.add(path.stem)
                elif case["expect"]["num_embeds"] == [260]:
                    misread.add(path.stem)
    assert refused == misread == {"small-gemma-3"}


@pytest.mark.parametrize(
    "build",
    [
        lambda *of: forwarding.vllm_generate(*of, sampling_params={}),
        lambda *of: forwarding.vllm_generate_cached(*of, sampling_params={}),
        lambda *of: forwarding.sglang_generate(*of, sampling_params={}),
        forwarding.vllm_chat,
        forwarding.sglang_chat,
    ],
)
def test_there_is_no_body_of_an_inexact_routing(
    normalizer: Load, build: Callable[..., dict[str, Any]]
) -> None:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
    routing = normalizer("small-qwen2.5-vl").normalize(**request)
    with pytest.raises(InexactError) as inexact:
        build(routing, request)
    assert inexact.value.reason is Reason.IMAGE_COUNT_MISMATCH


def test_chats_take_token_ids_only_without_images(normalizer: Load) -> None:
    loaded = normalizer("small-qwen2.5-vl")
    text = {"messages": HI, "tools": None, "stream": True, "kv_transfer_params": {"x": 1}}
    routing = loaded.normalize(messages=HI)
    ids = routing.token_ids.tolist()
    assert forwarding.sglang_chat(routing, text) == {**text, "input_ids": ids}
    assert forwarding.vllm_chat(routing, text) == {
        **text,
        "kv_transfer_params": {"x": 1, "prompt_token_ids": ids},
    }
    assert text["kv_transfer_params"] == {"x": 1}
    for wrong in ({"echo": True}, {"kv_transfer_params": {"prompt_token_ids": [1]}}):
        with pytest.raises(ValueError, match=r"token_ids|token IDs"):
            forwarding.vllm_chat(routing, text | wrong)
    request = request_of("small-qwen2.5-vl", "one image")
    for build in (forwarding.vllm_chat, forwarding.sglang_chat):
        with pytest.raises(ValueError, match=r"images of a chat|chat with images"):
            build(route(loaded, request), request)


def test_sglang_gets_the_pictures_their_hashes_and_one_placeholder_each(normalizer: Load) -> None:
    loaded = normalizer("small-qwen2.5-vl")
    request = request_of("small-qwen2.5-vl", "images apart") | {"rid": "7", "user": "me"}
    routing = route(loaded, request)
    body = forwarding.sglang_generate(routing, request, sampling_params={"max_new_tokens": 8})
    parts = [p for p in request["messages"][0]["content"] if p["type"] == "image_url"]
    fill = routing.token_ids[routing.placeholders[0].offset]
    assert body["image_data"] == [part["image_url"]["url"] for part in parts]
    assert body["input_ids"].count(fill) == len(parts)
    assert body["sampling_params"] == {"max_new_tokens": 8}
    assert (body["rid"], "user" in body, "text" in body) == ("7", False, False)
    # SGLang 0.5.13 to 0.5.22: set_hash(int(hex_hash, 16)), then 1_000_000 + the low 30 bits.
    values = [pad_value(int(digits, 16)) for digits in body["mm_hashes"]]
    padded = routing.pad_value_ids()
    assert [int(padded[p.offset]) for p in routing.placeholders] == values
    text = forwarding.sglang_generate(
        loaded.normalize(messages=HI), {"messages": HI}, sampling_params={}
    )
    assert text.keys() == {"input_ids", "sampling_params"}


@pytest.mark.parametrize("model", ["pixtral-12b-2409", "small-pixtral-hf", "small-gemma-3"])
def test_sglang_keeps_no_token_ids_beside_rows_and_borders(normalizer: Load, model: str) -> None:
    request = request_of(model, "one image")
    with pytest.raises(ValueError, match="more than one token ID"):
        forwarding.sglang_generate(route(normalizer(model), request), request, sampling_params={})


def test_sglang_ignores_the_hashes_of_qwen3_vl(normalizer: Load) -> None:
    request = request_of("small-qwen2.5-vl", "one image")
    routing = route(normalizer("small-qwen3-vl"), request)
    with pytest.raises(ValueError, match="before it reads mm_hashes"):
        forwarding.sglang_generate(routing, request, sampling_params={})


def test_a_routing_belongs_to_its_request(normalizer: Load) -> None:
    """Otherwise the images of one of them would be gone without a word."""
    loaded, request = normalizer("small-qwen2.5-vl"), request_of("small-qwen2.5-vl", "one image")
    for routing, other in (
        (loaded.normalize(messages=HI), request),
        (route(loaded, request), {"messages": HI}),
        (route(loaded, request), {"prompt": "Hi"}),
    ):
        for build in (forwarding.vllm_chat, forwarding.sglang_chat):
            with pytest.raises(ValueError, match="answers another request"):
                build(routing, other)
        for generate in (
            forwarding.vllm_generate,
            forwarding.vllm_generate_cached,
            forwarding.sglang_generate,
        ):
            with pytest.raises(ValueError, match="answers another request"):
                generate(routing, other, sampling_params={})
    body = forwarding.vllm_generate(
        loaded.normalize(prompt="Hi"), {"prompt": "Hi"}, sampling_params={}
    )
    assert body["token_ids"] == loaded.normalize(prompt="Hi").token_ids.tolist()


def test_pictures_must_be_in_the_request(normalizer: Load) -> None:
    loaded = normalizer("small-qwen2.5-vl")
    sized = [ImageSize(64, 48, uuid="page-1")]
    bare: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
    routing = loaded.normalize(**bare, images=sized)
    with pytest.raises(ValueError, match="neither a link nor a uuid"):
        forwarding.vllm_generate(routing, bare, sampling_params={})
    url = "https://example.org/a.png"
    link = {"type": "image_url", "image_url": {"url": url}, "uuid": "page-1"}
    linked = {"messages": [{"role": "user", "content": [link]}]}
    body = forwarding.vllm_generate(routing, linked, sampling_params={})
    assert body["content_parts"] == [{"type": "image_url", "url": url, "uuid": "page-1"}]
    by_name = {"messages": [{"role": "user", "content": [{"type": "image", "uuid": "page-1"}]}]}
    body = forwarding.vllm_generate(routing, by_name, sampling_params={})
    assert body["content_parts"] == [{"type": "image_url", "url": None, "uuid": "page-1"}]
    with pytest.raises(ValueError, match="image 1 has no link"):
        forwarding.sglang_generate(routing, by_name, sampling_params={})


def test_features_need_to_know_each_image(normalizer: Load) -> None:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
    routing = normalizer("small-qwen2.5-vl").normalize(**request, images=[ImageSize(64, 48)])
    with pytest.raises(InexactError) as inexact:
        forwarding.vllm_generate_cached(routing, request, sampling_params={})
    assert inexact.value.reason is Reason.IMAGE_IDENTITY_UNKNOWN


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cache_salt": "other"}, "cache_salt is 'other'"),
        ({"mm_processor_kwargs": {"max_pixels": 1}}, "no place for mm_processor_kwargs"),
    ],
)
def test_what_the_route_cannot_carry_is_refused(
    normalizer: Load, more: dict[str, Any], message: str
) -> None:
    routing = normalizer("small-qwen2.5-vl").normalize(messages=HI)
    with pytest.raises(ValueError, match=message):
        forwarding.vllm_generate(routing, {"messages": HI, **more}, sampling_params={})


def test_output_modes(normalizer: Load) -> None:
    routing, request = normalizer("small-qwen2.5-vl").normalize(messages=HI), {"messages": HI}
    build = forwarding.vllm_generate
    for mode in forwarding.OUTPUT_MODES:
        body = build(routing, request, sampling_params={}, output_mode=mode, parse_context={})
        assert (body["output_mode"], body["parse_context"]) == (mode, {})
    with pytest.raises(ValueError, match="did you mean 'tokens'"):
        build(routing, request, sampling_params={}, output_mode="token")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stream"):
        build(routing, request | {"stream": True}, sampling_params={}, output_mode="derender")
    with pytest.raises(ValueError, match="detokenize"):
        build(routing, request, sampling_params={"detokenize": False}, output_mode="text")


def test_the_server_carries_output_mode_to_the_generate_route(
    small_model: Callable[[str], Path],
) -> None:
    with serving([ModelSource(str(small_model("small-qwen2.5-vl")), ("m",))]) as client:
        chat = {"messages": HI}
        assert client.post(CHAT, json=chat).json()["output_mode"] == "tokens"
        assert client.post(CHAT, json={**chat, "output_mode": "derender"}).json()[
            "output_mode"
        ] == "derender"  # fmt: skip
        answers = client.post(COMPLETION, json={"prompt": ["a", "b"], "output_mode": "text"}).json()
        assert [answer["output_mode"] for answer in answers] == ["text", "text"]
        for wrong in ("txt", None, ["text"], 1):
            response = client.post(CHAT, json={**chat, "output_mode": wrong})
            assert error_of(response) == (400, "Bad Request", "body.output_mode")
        message = client.post(CHAT, json={**chat, "output_mode": "txt"}).json()["error"]["message"]
        assert all(mode in message for mode in forwarding.OUTPUT_MODES)


def test_the_unexpanded_prompt_stays_with_a_routing(normalizer: Load) -> None:
    request = request_of("small-gemma-3", "adjacent images")
    routing = route(normalizer("small-gemma-3"), request)
    again = pickle.loads(pickle.dumps(routing))
    assert again.unexpanded_token_ids.tolist() == routing.unexpanded_token_ids.tolist()
    assert len(routing.unexpanded_token_ids) < len(routing.token_ids)
    assert not routing.unexpanded_token_ids.flags.writeable
    with pytest.raises(InexactError):
        _ = Routing(reason=Reason.EMPTY_PROMPT).unexpanded_token_ids
