"""Clients that know nothing of ``mmroute serve``: those of the pages, and the official one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_requests import EMBEDDINGS, HI
from paths import ROOT
from server_helpers import process, running

from mmroute.lab.engines.vllm.process import free_port
from mmroute.model_directory import EMBEDDED_MODEL
from tools import needs

pytestmark = pytest.mark.process


@needs("curl", "the examples of the pages call it")
def test_the_examples_of_the_pages(tmp_path: Path) -> None:
    blocks = [
        (page, block)
        for page in (ROOT / "docs" / "server.md", ROOT / "docs" / "with-llm-d.md")
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if "curl" in block
    ]
    port, log = free_port(), tmp_path / "log"
    with process(EMBEDDED_MODEL, "--port", str(port), "--admin-key", "secret", log=log):
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


def test_the_official_client_as_the_page_has_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "openai" in b]
    (shown,) = re.findall(r"# (\[.*\])", block)
    with running(EMBEDDED_MODEL, log=tmp_path / "log") as (_, plain):
        code = block.replace("127.0.0.1:8000", f"127.0.0.1:{plain.base_url.port}")
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == f"{shown}\n"


def test_the_official_client(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    import openai  # takes long

    directory = str(small_model("small-qwen2.5-vl"))
    with running(directory, "--api-key", "k", log=tmp_path / "log") as (_, plain):
        client = openai.OpenAI(base_url=str(plain.base_url.join("/v1")), api_key="k")
        assert [model.id for model in client.models.list()] == [directory]
        answer = client.post(
            "/chat/completions/render", body={"model": directory, "messages": HI}, cast_to=object
        )
        assert isinstance(answer, dict)
        assert answer["token_ids"]
        with pytest.raises(openai.UnprocessableEntityError) as found:
            client.post("/chat/completions/render", body={"messages": EMBEDDINGS}, cast_to=object)
        assert found.value.param == "unsupported_modality"
        assert found.value.type == "InexactRouting"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()
