"""The reference of spec fields is what the code says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change: python tools/generate_spec_reference.py."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    reference = importlib.import_module("generate_spec_reference")
    written = (ROOT / "docs" / "spec-reference.md").read_text(encoding="utf-8")
    assert written == reference.page()
