"""Fields of a body that the engine refuses or follows for one family of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, user
from server_helpers import error_of, serving
from starlette.testclient import TestClient

from mmroute.server.loading import ModelSource

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def kimi_k3(small_model: Callable[[str], Path]) -> Iterator[TestClient]:
    with serving([ModelSource(str(small_model("small-kimi-k3")), ("kimi",))]) as client:
        yield client


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"response_format": {"type": "json_object"}}, "unsupported_field"),
        ({"tools": [TOOL], "tool_choice": "none"}, "unsupported_field"),
        ({"tools": [TOOL], "tool_choice": "auto"}, None),
        ({"tool_choice": "none"}, None),
    ],
)
def test_fields_that_change_prompts_of_kimi_k3_are_refused(
    kimi_k3: TestClient, fields: dict[str, Any], reason: str | None
) -> None:
    body = {"messages": user({"type": "text", "text": "x"}), **fields}
    answer = kimi_k3.post(CHAT, json=body)
    if reason is None:
        assert answer.status_code == HTTPStatus.OK, answer.text
    else:
        assert error_of(answer) == (422, "InexactRouting", reason)
