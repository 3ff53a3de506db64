"""Other tests once more, in a way that takes longer."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from paths import ROOT

pytestmark = pytest.mark.process

WITH_PROPERTIES: Final = (
    "tests/core/answering", "tests/core/chat", "tests/core/hashing", "tests/core/images",
    "tests/core/kv_events", "tests/core/reuse", "tests/core/tokenizers", "tests/text",
    "tests/server/bundle", "tests/server/test_server_properties.py",
)  # fmt: skip
WITH_MODELS: Final = ("tokenizers", "chat", "answering", "model")


def run(*arguments: str, **variables: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]


def test_without_the_plugin_that_loads_each_tokenizer_and_template_once() -> None:
    rooms = [f"tests/core/{room}" for room in WITH_MODELS]
    run("--unpatched", "-m", "not process and not conformance", *rooms)


def test_properties_with_many_examples() -> None:
    run("-m", "hypothesis", *WITH_PROPERTIES, MMROUTE_EXAMPLES="200")
