"""A body that Python parses is answered as by the route, with nothing told beside the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION
from server_vectors import HARMONY_MODEL, START_DATE, requests_to, served_files
from small_models import write_model

from mmroute import InexactError, Normalizer, Reason, Routing, from_openai
from mmroute.engines.vllm import VllmSettings
from mmroute.server.engines.vllm import ApiError, LoadedModel, answer_body

PLAIN: Final = "vllm serve served"
TRUSTING: Final = (
    f"{PLAIN} --trust-request-mm-kwargs --trust-request-chat-template --enable-lora "
    "--lora-modules alias=/adapters/alias"
)
# A request has one prompt, and a prompt that is cut or forwarded is not made of it.
# Which llm-d sends without types, and bodies alone take.
WARM_UP: Final = {"messages": [{"role": "user", "content": [{"text": "warmup"}]}]}
ONLY_BY_ROUTES: Final = ("truncate_prompt_tokens", "kv_transfer_params")


def in_python(normalizer: Normalizer, body: dict[str, Any]) -> Routing | Reason:
    try:
        routing = normalizer.answer(from_openai(body))
    except InexactError as error:
        return error.reason
    return routing if routing.reason is None else routing.reason


def by_route(model: LoadedModel, path: str, body: dict[str, Any]) -> Routing | Reason:
    try:
        reply = answer_body(model, path, body)
        written = json.loads(json.dumps(reply.body))
        first = written[0] if isinstance(written, list) else written
        assert first["token_ids"] == reply.routings[0].token_ids.tolist()
        return reply.routings[0]
    except ApiError as error:  # one of a schema has no reason
        return error.reason or Reason.INVALID_REQUEST


def is_only_for_routes(path: str, body: dict[str, Any]) -> bool:
    prompt = body.get("prompt")
    several = (
        path == COMPLETION and isinstance(prompt, list) and not all(type(i) is int for i in prompt)
    )
    return several or any(body.get(name) is not None for name in ONLY_BY_ROUTES)


@pytest.mark.parametrize("line", [PLAIN, TRUSTING])
@pytest.mark.parametrize(("name", "fewest"), [("small-qwen2.5-vl", 100), (HARMONY_MODEL, 5)])
def test_every_recorded_body(tmp_path: Path, name: str, fewest: int, line: str) -> None:
    settings = VllmSettings.from_args(f"VLLM_SYSTEM_START_DATE={START_DATE} {line}")
    normalizer = Normalizer.from_pretrained(
        write_model(served_files(name), tmp_path / "m"), engine_settings=settings
    )
    model = LoadedModel.of(normalizer)
    bodies = [(c.path, c.body) for c in requests_to(name) if c.path in (CHAT, COMPLETION)]
    exact = 0
    for path, body in bodies:
        given = {**body, "model": "alias"}
        if is_only_for_routes(path, body) or (path == CHAT) is not ("messages" in body):
            continue
        theirs, ours = by_route(model, path, given), in_python(normalizer, given)
        if body.keys() == {"messages"} and body != WARM_UP:
            by_fields = normalizer.normalize(messages=body["messages"])
            assert by_fields.exact is isinstance(ours, Routing), body
        if ours is Reason.TOKEN_OUT_OF_VOCABULARY:
            continue  # which the route returns as they are, without hashes
        if isinstance(ours, Reason) or isinstance(theirs, Reason):
            assert ours is theirs, body
            continue
        exact += 1
        assert ours.token_ids.tolist() == theirs.token_ids.tolist(), body
        assert ours.lora == theirs.lora
        assert (ours.lora is None) is ("alias" not in settings.loras)
        assert ours.block_hashes(block_size=4) == theirs.block_hashes(block_size=4), body
    assert exact > fewest
