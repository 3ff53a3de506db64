"""The tokens before the first image: the engine's own, whatever the images are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, TOKENIZE
from comparison import expanded, read_vectors
from paths import VECTORS
from server_helpers import error_of, metric, serving
from small_models import SMALL_MODELS

from mmroute import Normalizer
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.placement.targets import Targets
from mmroute.requests.request import Request
from mmroute.server import InexactPolicy, ModelSource, ServerSettings
from mmroute.server.engines.vllm.text_prefix import text_prefix

OPTIONS = ("add_special_tokens", "add_generation_prompt", "continue_final_message",
           "chat_template_kwargs", "tools")  # fmt: skip
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}
SYSTEM = {"role": "system", "content": "You know much about pictures. " * 8}


def prefix(normalizer: Normalizer, request: dict[str, Any]) -> list[int] | None:
    options = {name: request[name] for name in OPTIONS if name in request}
    found = text_prefix(normalizer.model, Request(messages=request["messages"], **options))
    return None if found is None else found.tolist()


@pytest.mark.parametrize("name", [*SMALL_MODELS, EMBEDDED_MODEL])
def test_it_is_the_beginning_of_the_engines_answer(
    name: str, normalizer: Callable[[str], Normalizer]
) -> None:
    """For all chats with images that the engine answers; or it is not said at all."""
    model, said = normalizer(name), 0
    for case in read_vectors(VECTORS / f"{name}.jsonl")[1]:
        expected = case["expect"]
        if "messages" not in case or not expected.get("placeholders"):
            continue
        first = min(place["offset"] for place in expected["placeholders"])
        found = prefix(model, case)
        if found is not None:
            said += 1
            assert found == expanded(expected["token_runs"])[:first], case["id"]
    assert (said > 10) == isinstance(model.model.placement, Targets)


def test_it_is_not_said_where_an_image_has_no_placeholder(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """The engine decodes and encodes such a prompt anew, before it gives up or finds a place."""
    directory = tmp_path / "model"
    shutil.copytree(small_model("small-qwen2.5-vl"), directory)
    template = (
        "{% for m in messages %}{{ m.role }}: {% for p in m.content %}"
        "{% if p.type == 'text' %}{{ p.text }}"
        "{% elif m.role == 'user' %}<|image_pad|>{% endif %}{% endfor %}{% endfor %}"
    )
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    model = Normalizer.from_pretrained(directory)
    image, text = {"type": "image"}, {"type": "text", "text": "a"}
    user = {"role": "user", "content": [text, image]}
    assert prefix(model, {"messages": [{"role": "system", "content": [text]}, user]}) is not None
    assert prefix(model, {"messages": [{"role": "system", "content": [image]}, user]}) is None


@pytest.mark.parametrize("reason", ["image_size_unknown", "image_unreadable"])
def test_the_server_says_what_it_gives(small_model: Callable[[str], Path], reason: str) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    settings = ServerSettings(inexact=InexactPolicy.TEXT_PREFIX)
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    image = LINK if reason == "image_size_unknown" else broken
    messages = [SYSTEM, {"role": "user", "content": [image]}]
    body = {"messages": messages}
    normalizer = Normalizer.from_pretrained(directory)
    with serving([ModelSource(directory, ("qwen",))], settings) as client:
        answer = client.post(f"{CHAT}?block_size=16", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-mmroute-outcome"] == "text_prefix"
        assert answer.headers["x-mmroute-reason"] == reason
        found = answer.json()
        assert found["inexact"]["reason"] == reason
        assert found["features"] is None
        assert found["token_ids"] == prefix(normalizer, body)
        whole = normalizer.normalize(messages=[SYSTEM, {"role": "user", "content": "a"}])
        begun = normalizer.model.tokenizer.decode(found["token_ids"])
        assert normalizer.model.tokenizer.decode(whole.token_ids.tolist()).startswith(
            begun.partition("<|vision_start|>")[0]
        )
        hashes = [found.hex() for found in whole.block_hashes(block_size=16)]
        assert len(found["block_hashes"]) == len(found["token_ids"]) // 16
        assert found["block_hashes"][:2] == hashes[:2]
        name = f'model="qwen",outcome="text_prefix",reason="{reason}"'
        assert metric(client, f"mmroute_routings_total{{{name}}}") == 1
        # Whoever counts tokens must not get a part of them.
        assert client.post(TOKENIZE, json=body).status_code in (400, 422)


def test_what_else_is_wrong_with_a_request_stays_an_error(
    small_model: Callable[[str], Path],
) -> None:
    """A cut that is not covered, and text that cannot be encoded."""
    settings = ServerSettings(inexact=InexactPolicy.TEXT_PREFIX)
    messages = [SYSTEM, {"role": "user", "content": [LINK]}]
    source = ModelSource(str(small_model("small-qwen2.5-vl")), ("qwen",))
    with serving([source], settings) as client:
        assert client.post(CHAT, json={"messages": messages}).json()["sampling_params"] is None
        cut = client.post(CHAT, json={"messages": messages, "truncate_prompt_tokens": 3})
        assert cut.status_code == 422
        raw = json.dumps({"messages": [{"role": "system", "content": "\ud800"}, messages[1]]})
        headers = {"content-type": "application/json"}
        assert client.post(CHAT, content=raw, headers=headers).status_code in (400, 422)


def test_everything_else_stays_an_error(small_model: Callable[[str], Path]) -> None:
    settings = ServerSettings(inexact=InexactPolicy.TEXT_PREFIX)
    sources = [ModelSource(str(small_model(name)), (name,)) for name in ("small-gemma-3",)]
    with serving([*sources, ModelSource(EMBEDDED_MODEL, ("pixtral",))], settings) as client:
        for name in ("small-gemma-3", "pixtral"):
            body: dict[str, Any] = {
                "model": name,
                "messages": [{"role": "user", "content": [LINK]}],
            }
            found = client.post(CHAT, json=body)
            assert error_of(found) == (422, "InexactRouting", "image_size_unknown")
        body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
        body["kv_transfer_params"] = {"prompt_token_ids": [1, 2]}
        assert error_of(client.post(CHAT, json=body)) == (
            422,
            "InexactRouting",
            "unsupported_field",
        )
