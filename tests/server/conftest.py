"""Models that the tests of the server share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from server_helpers import DIRECTORIES

from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server import ModelSource
from mmroute.server.models import Models


@pytest.fixture(scope="session")
def models(small_model: Callable[[str], Path]) -> Models:
    """Three small models and the embedded one, loaded once for all applications."""
    sources = [ModelSource(str(small_model(name)), (name, f"{name}-b")) for name in DIRECTORIES]
    found = Models([*sources, ModelSource(EMBEDDED_MODEL, ("embedded",))])
    for entry in found.load():
        entry.loading.result()
    found.load = list  # type: ignore[method-assign]  # each application would do it again
    return found
