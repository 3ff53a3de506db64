"""Programs of the system that some tests need."""

from __future__ import annotations

import shutil

import pytest


def needs(program: str, why: str) -> pytest.MarkDecorator:
    """Skip where a program is missing, which the report says."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program}: {why}")
