"""What the tests of this room share."""

from __future__ import annotations

import pytest
from registry_helpers import Loader


@pytest.fixture
def load() -> Loader:
    return Loader()
