"""Servers that the tests of this room ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from remote_helpers import QWEN, listening
from scripted_server import ScriptedServer
from small_models import SMALL_MODELS

from mmroute import connect
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.remote.normalizer import RemoteNormalizer
from mmroute.server.settings import ServerSettings


@pytest.fixture(scope="session")
def served(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """All models of the vectors behind a Unix socket."""
    sources = [
        *(ModelSource(str(small_model(name)), (name,), f"org/{name}") for name in SMALL_MODELS),
        ModelSource(EMBEDDED_MODEL, (EMBEDDED_MODEL,), f"org/{EMBEDDED_MODEL}"),
    ]
    settings = ServerSettings(trust_request_mm_kwargs=True)
    socket_path = tmp_path_factory.mktemp("remote") / "s"
    models = Models(sources, fast_paths=REFERENCE_ONLY)
    with listening(models, settings, uds=socket_path) as url:
        yield url


@pytest.fixture
def qwen(served: str) -> Iterator[RemoteNormalizer]:
    with connect(QWEN, served) as remote:
        yield remote


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server
