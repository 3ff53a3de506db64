"""Models that the tests of the server share, and the threads that answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_helpers import DIRECTORIES

from mmroute.answering.pipeline import prepare
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server import ModelSource
from mmroute.server.models import Models


@pytest.fixture
def memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers search no memory for removed models: that of all tests takes a second each time."""
    monkeypatch.setattr("mmroute.server.models.reclaim", lambda: None)


@pytest.fixture(scope="session")
def models(small_model: Callable[[str], Path]) -> Models:
    """Three small models and the embedded one, loaded once for all applications."""
    sources = [ModelSource(str(small_model(name)), (name, f"{name}-b")) for name in DIRECTORIES]
    found = Models([*sources, ModelSource(EMBEDDED_MODEL, ("embedded",))])
    for entry in found.load():
        entry.loading.result()
    found.load = list  # type: ignore[method-assign]  # each application would do it again
    return found


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which requests of clients were answered."""
    found: list[str] = []
    monkeypatch.setattr(Models, "warm", lambda _: None)

    def seen(*arguments: Any, **more: Any) -> Any:
        found.append(threading.current_thread().name.rpartition("_")[0])
        return prepare(*arguments, **more)

    monkeypatch.setattr("mmroute.answering.pipeline.prepare", seen)
    return found
