"""What a server is asked before the first request, and what makes it none."""

from __future__ import annotations

import gc
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, COMPLETION, picture, user
from remote_helpers import RANGE, connected
from scripted_server import ScriptedServer

from mmroute import InexactError, ModelError, Reason, Remote, connect
from mmroute.engines.vllm.older import hash_older_blocks
from mmroute.errors import EngineVersionWarning

pytestmark = pytest.mark.process


def refused(model: str, remote: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        connect(model, remote)
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
    with connected(scripted, api_key="secret") as remote:
        assert scripted.headers[-1]["Authorization"] == "Bearer secret"
        assert "secret" not in repr(remote) + repr(remote.remote)


def test_a_url_may_end_in_v1(scripted: ScriptedServer) -> None:
    with connect("m", f"{scripted.url}/v1/") as remote:
        assert remote.normalize(prompt="a").exact
    assert {path for path, _ in scripted.asked} == {
        "/version",
        "/metrics",
        "/v1/models",
        COMPLETION,
    }


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


def test_what_is_no_server() -> None:
    with pytest.raises(TypeError, match="URL or a Remote"):
        connect("m", 3)


@pytest.mark.parametrize("said", ["0.12.0", "0.28.0", "0.34.0", "0.33.1.dev7+g0a1b2c3"])
def test_a_server_of_other_rules_is_told(scripted: ScriptedServer, said: str) -> None:
    scripted.routes["/version"] = 200, {"version": said}
    with pytest.warns(EngineVersionWarning, match=re.escape(f"vllm {said}: ")):
        connected(scripted).close()


def test_block_hashes_of_an_unknown_version_are_refused(scripted: ScriptedServer) -> None:
    scripted.routes["/version"] = 200, {"version": "0.34.0"}
    with pytest.warns(EngineVersionWarning), connected(scripted) as remote:
        routing = remote.normalize(prompt="a")
    assert routing.exact
    with pytest.raises(InexactError, match=r"0\.34\.0") as caught:
        routing.block_hashes()
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


@pytest.mark.parametrize("said", ["0.33.0+cu130", "0.31.0"])
def test_a_server_of_the_newest_rules_is_not_warned_of(scripted: ScriptedServer, said: str) -> None:
    scripted.routes["/version"] = 200, {"version": said}
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineVersionWarning)
        connected(scripted).close()


def test_block_hashes_follow_the_rules_of_the_server_s_version(scripted: ScriptedServer) -> None:
    images = [RANGE | {"offset": 1, "length": 15}]
    features = {"mm_hashes": {"image": ["aa"]}, "mm_placeholders": {"image": images}}
    scripted.routes[CHAT] = 200, {"token_ids": list(range(32)), "features": features}
    scripted.routes["/version"] = 200, {"version": "0.28.0"}
    with pytest.warns(EngineVersionWarning), connected(scripted) as remote:
        routing = remote.normalize(messages=user(picture(8, 8)))
    with pytest.raises(InexactError, match="PYTHONHASHSEED"):
        routing.block_hashes()
    assert (
        routing.block_hashes(seed="0").hex()
        == hash_older_blocks(
            routing.token_ids,
            [(("aa", 1),), None],
            algorithm="sha256",
            block_size=16,
            seed="0",
            random_root=True,
        ).hex()
    )
