"""`engines/port.toml` against the docstrings: what it lists is what they say."""

from __future__ import annotations

from ports import ROOT, named_sources, recorded


def test_every_source_of_a_docstring_is_listed_with_its_modules() -> None:
    listed = {port: set(entry["here"]) for port, entry in recorded().items()}
    assert listed == named_sources()


def test_every_listed_module_exists() -> None:
    modules = {module for entry in recorded().values() for module in entry["here"]}
    assert modules
    assert all((ROOT / module).is_file() for module in modules)
