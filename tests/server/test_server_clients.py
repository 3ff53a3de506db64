"""Clients that know nothing of ``mmroute serve``: those of the pages, and the official one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from chat_requests import EMBEDDINGS, HI
from paths import ROOT
from server_helpers import DIRECTORIES, listening

from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server import Models, ModelSource, ServerSettings
from tools import needs

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def port() -> Iterator[int | None]:
    """Of a server of the embedded model, as the pages start it."""
    models = Models([ModelSource(EMBEDDED_MODEL, (EMBEDDED_MODEL,))])
    with listening(models, ServerSettings(admin_key="secret")) as client:
        yield client.base_url.port


@needs("curl", "the examples of the pages call it")
def test_the_examples_of_the_pages(port: int) -> None:
    blocks = [
        (page, block)
        for page in (ROOT / "docs" / "server.md", ROOT / "docs" / "engines.md")
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if "curl" in block
    ]
    for page, block in blocks:
        script = "set -e\n" + block.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        result = subprocess.run(
            ["/bin/sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KEY": "secret"},
        )
        assert result.returncode == 0, result.stderr
        assert '"error":{' not in result.stdout
        assert "nauthorized" not in result.stdout
        if "image_url" in block:  # the page shows the answer
            answer = json.loads(result.stdout)
            shown = re.search(r'"token_ids":(\[.*?\])', page.read_text(encoding="utf-8"))
            assert shown is not None
            assert answer["token_ids"] == json.loads(shown[1])
            assert answer["features"]["mm_placeholders"]["image"][0]["is_embed"]


def test_the_official_client_as_the_page_has_it(port: int) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "openai" in b]
    (shown,) = re.findall(r"# (\[.*\])", block)
    command = [sys.executable, "-c", block.replace("127.0.0.1:8000", f"127.0.0.1:{port}")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == f"{shown}\n"


def test_the_official_client(models: Models) -> None:
    import openai  # takes long

    with listening(models, ServerSettings(api_keys=("k",))) as plain:
        client = openai.OpenAI(base_url=str(plain.base_url.join("/v1")), api_key="k")
        assert {model.id for model in client.models.list()} > set(DIRECTORIES)
        answer = client.post(
            "/chat/completions/render",
            body={"model": DIRECTORIES[0], "messages": HI},
            cast_to=object,
        )
        assert isinstance(answer, dict)
        assert answer["token_ids"]
        with pytest.raises(openai.UnprocessableEntityError) as found:
            client.post("/chat/completions/render", body={"messages": EMBEDDINGS}, cast_to=object)
        assert found.value.param == "unsupported_modality"
        assert found.value.type == "InexactRouting"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()
