"""A server of several models takes the settings of each engine from its own command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION, HI
from media_files import png_url
from server_helpers import serving
from starlette.testclient import TestClient

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.engines.vllm import ApiError, ApiOptions, LoadedModel, answer_body

MODEL: Final = "small-qwen2.5-vl"
IMAGE: Final = {"type": "image_url", "image_url": {"url": png_url(100, 60)}}
PICTURE: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": [IMAGE]}]}
KWARGS: Final = {**PICTURE, "mm_processor_kwargs": {"max_pixels": 3136}}
TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {}}}
TOOLS: Final = {"messages": HI, "tools": [TOOL]}
TEMPLATE: Final = {"messages": HI, "chat_template": "x"}
WITH_TOOLS: Final = (
    "--chat-template '{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}'"
)
LINES: Final = {
    "plain": f"vllm serve plain {WITH_TOOLS} --chat-template-content-format string",
    "trusting": "vllm serve trusting --trust-request-mm-kwargs --trust-request-chat-template "
    f"--enable-auto-tool-choice --tool-call-parser hermes {WITH_TOOLS} "
    "--chat-template-content-format string",
    "textual": "vllm serve textual --limit-mm-per-prompt.image 0",
    "guarded": "vllm serve guarded --allowed-media-domains example.org",
    "rust": "VLLM_USE_RUST_FRONTEND=1 vllm serve rust --tool-call-parser hermes "
    "--enable-auto-tool-choice",
}


@pytest.fixture(scope="module", params=[("plain", "trusting"), ("trusting", "plain")])
def client(
    small_model: Callable[[str], Path], request: pytest.FixtureRequest
) -> Iterator[TestClient]:
    """The order of the models must not matter."""
    names = (*request.param, *(LINES.keys() - {*request.param}))
    model = str(small_model(MODEL))
    sources = [
        ModelSource(model, (name,), engine_settings=VllmSettings.from_args(LINES[name]))
        for name in names
    ]
    with serving(sources, ServerSettings(strict=True)) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("plain", KWARGS, 400),
        ("trusting", KWARGS, 200),
        ("plain", PICTURE, 200),
        ("textual", PICTURE, 400),
        ("textual", {"messages": HI}, 200),
        ("plain", TOOLS, 200),
        ("trusting", TOOLS, 200),
        ("plain", TEMPLATE, 400),
        ("trusting", TEMPLATE, 422),
    ],
)
def test_each_model_has_the_settings_of_its_engine(
    client: TestClient, name: str, body: dict[str, Any], status: int
) -> None:
    answer = client.post(CHAT, json={**body, "model": name})
    assert answer.status_code == status, answer.text


def test_hosts_of_links_are_those_of_the_model(client: TestClient) -> None:
    link = {"type": "image_url", "image_url": {"url": "https://elsewhere.org/a.png"}}
    body = {"messages": [{"role": "user", "content": [link]}]}
    found = {
        name: client.post(CHAT, json={**body, "model": name}).headers["x-mmroute-reason"]
        for name in ("plain", "guarded")
    }
    assert found["plain"] != found["guarded"]


def test_json_is_read_as_the_frontend_of_the_model_reads_it(client: TestClient) -> None:
    """The Rust frontend refuses what Python's JSON takes, such as NaN."""
    text = '{"model": "%s", "prompt": "Hi", "truncate_prompt_tokens": NaN}'
    messages = {
        name: client.post(
            COMPLETION, content=text % name, headers={"content-type": "application/json"}
        ).json()["error"]["message"]
        for name in ("plain", "rust")
    }
    assert "strict JSON" in messages["rust"]
    assert "strict JSON" not in messages["plain"]


def test_a_body_without_a_server_is_answered_by_the_settings_of_its_model(
    small_model: Callable[[str], Path],
) -> None:
    def asked(line: str, options: ApiOptions) -> int:
        settings = VllmSettings.from_args(LINES[line])
        normalizer = Normalizer.from_pretrained(small_model(MODEL), engine_settings=settings)
        model = LoadedModel.of(normalizer, line)
        try:
            answer_body(model, CHAT, KWARGS, options)
        except ApiError as error:
            return error.status
        return 200

    assert asked("plain", ApiOptions()) == 400
    assert asked("trusting", ApiOptions()) == 200
