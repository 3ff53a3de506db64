"""The fields that requests have in earlier releases of vLLM, by the schemas in their wheels."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from chat_requests import CHAT, COMPLETION, HI, MESSAGES, RESPONSES
from server_helpers import error_of, serving
from starlette.testclient import TestClient

from mmroute.engines.vllm.bodies.schemas import release_of, schema_of
from mmroute.engines.vllm.versions import ERAS
from mmroute.server import ModelSource
from mmroute.server.engines.vllm.routes import OWN_ROUTES, ROUTES

TABLE: Final = resources.files("mmroute.engines.vllm.bodies") / "request_fields.toml"
ASKED: Final[dict[str, dict[str, Any]]] = {
    CHAT: {"messages": HI},
    COMPLETION: {"prompt": "Hi"},
    MESSAGES: {"messages": HI, "max_tokens": 9},
    RESPONSES: {"input": "Hi"},
}
RELEASES: Final = ("vllm", "vllm==0.28", "vllm==0.18.1")


@pytest.fixture(scope="module")
def client(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    directory = str(small_model("small-llava-1.5"))
    with serving([ModelSource(directory, (name,), backend=name) for name in RELEASES]) as found:
        yield found


# By the fields that the classes of requests have in the wheels of 0.33.0, 0.28.0 and 0.18.1.
@pytest.mark.parametrize(
    ("path", "field", "statuses"),
    [
        (CHAT, {"mm_payload": 5}, (400, 200, 200)),
        (CHAT, {"stream_interval": "x"}, (400, 400, 200)),
        (CHAT, {"media_io_kwargs": "x"}, (400, 400, 400)),
        (CHAT, {"reasoning_effort": "max"}, (200, 200, 400)),
        (CHAT, {"return_assistant_tokens_mask": True}, (200, 422, 200)),
        (CHAT, {"return_assistant_tokens_mask": False}, (200, 200, 200)),
        (COMPLETION, {"bad_words": "x"}, (400, 400, 200)),
        (MESSAGES, {"thinking": {"type": "nonsense"}}, (400, 200, 200)),
        (MESSAGES, {"cache_salt": 5}, (400, 400, 200)),
        (RESPONSES, {"min_p": "x"}, (400, 200, 200)),
        (RESPONSES, {"chat_template_kwargs": "x"}, (400, 400, 200)),
    ],
)
def test_a_release_reads_the_fields_that_it_knows(
    client: TestClient, path: str, field: dict[str, Any], statuses: tuple[int, int, int]
) -> None:
    for model, status in zip(RELEASES, statuses, strict=True):
        reply = client.post(path, json={**ASKED[path], **field, "model": model})
        assert reply.status_code == status, (model, reply.text)
        if status == 422:
            assert error_of(reply) == (422, "InexactRouting", "unsupported_field")


def test_a_field_that_is_read_over_changes_nothing(client: TestClient) -> None:
    body = {"model": "vllm==0.18.1", "messages": HI, "max_tokens": 9}
    found = client.post(MESSAGES, json={**body, "cache_salt": "a"}).json()
    assert found["cache_salt"] is None
    assert found["token_ids"] == client.post(MESSAGES, json=body).json()["token_ids"]


def test_a_body_without_a_model_that_is_served_is_read_as_for_the_first_one(
    client: TestClient,
) -> None:
    for model in (None, "nobody", 5, ["a"]):
        reply = client.post(CHAT, json={"model": model, "messages": HI, "mm_payload": 5})
        assert reply.status_code == 400


# They change no answer; the older name of `mm_payload` is read before the fields are checked.
UNREAD = {
    "include_reasoning", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "return_mm_kwargs", "safety_identifier", "session_id",
}  # fmt: skip


def test_each_field_of_the_table_is_one_of_the_newest_release_or_gone() -> None:
    for path, fields in tomllib.loads(TABLE.read_text()).items():
        kinds = get_args(ROUTES[path].request) or (ROUTES[path].request,)
        known = {name for kind in kinds for name in kind.model_fields}
        assert {name for name, bounds in fields.items() if len(bounds) == 1} <= known | UNREAD
        assert known.isdisjoint(name for name, bounds in fields.items() if len(bounds) == 2)


def test_every_era_has_a_schema_of_every_route() -> None:
    for profile in ERAS:
        for path, route in ROUTES.items():
            release = release_of(profile.release.backend)
            assert schema_of(OWN_ROUTES.get(path, path), release, kind=route.request) is not None


def test_no_request_waits_until_its_schema_is_made(small_model: Callable[[str], Path]) -> None:
    schema_of.cache_clear()
    source = ModelSource(str(small_model("small-llava-1.5")), ("a",), backend="vllm==0.18.1")
    with serving([source]) as client:
        made = schema_of.cache_info().misses
        for path, body in ASKED.items():
            assert client.post(path, json={**body, "model": "a"}).status_code == 200
        assert schema_of.cache_info().misses == made
