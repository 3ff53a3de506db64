"""The page of the Python interface lists what the packages export, and nothing else."""

from __future__ import annotations

import importlib
import re
from typing import Final

import pytest
from paths import ROOT

LISTED: Final = re.findall(
    r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE
)
PUBLIC: Final = (
    "mmroute",
    "mmroute.kv_events",
    "mmroute.text",
    "mmroute.server",
    "mmroute.lab",
)


@pytest.mark.parametrize("package", PUBLIC)
def test_every_exported_name_is_on_the_page(package: str) -> None:
    names = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    on_the_page = {name for name in LISTED if name.rpartition(".")[0] == package}
    assert package in LISTED or names <= on_the_page
    if package not in LISTED:
        assert on_the_page - set(PUBLIC) <= names | {"mmroute.forwarding"}


@pytest.mark.parametrize("listed", LISTED)
def test_what_the_page_lists_exists_and_says_what_it_is(listed: str) -> None:
    try:
        found = importlib.import_module(listed)
    except ModuleNotFoundError:
        module, _, name = listed.rpartition(".")
        found = getattr(importlib.import_module(module), name)
    assert found.__doc__
    for name in getattr(found, "__all__", ()):
        assert getattr(found, name) is not None
