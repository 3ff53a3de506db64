"""Programs of the system that some tests need."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str, why: str) -> pytest.MarkDecorator:
    """Skip where a program is missing; not in CI, where the test then fails."""
    missing = shutil.which(program) is None and "CI" not in os.environ
    return pytest.mark.skipif(missing, reason=f"there is no {program}: {why}")
