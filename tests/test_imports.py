"""What modules import, and what importing mmroute and its command line does not load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest
from paths import ROOT

import mmroute
from mmroute import ModelError
from mmroute.errors import needs_extra

# The request path needs neither transformers nor torch, nor mistral-common for most models.
RARELY_NEEDED: Final = {
    "transformers", "torch", "mistral_common", "PIL", "huggingface_hub", "httpcore", "ssl",
}  # fmt: skip
OF_EXTRAS: Final = {
    "grpc", "google.protobuf", "httptools", "mmroute.server", "orjson", "prometheus_client",
    "uvicorn", "zmq",
}  # fmt: skip


# Parsing the modules takes thirty times as long.
IMPORT: Final = re.compile(r"^\s*from (\S+) import (\([^)]*\)|.+)$", re.MULTILINE)


@pytest.mark.process
def test_importing_is_light() -> None:
    code = (
        "import json, sys, mmroute; print(json.dumps([*sys.modules]));"
        "import mmroute.cli, mmroute.kv_events; print(json.dumps([*sys.modules]))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    first, all_of_them = (set(json.loads(line)) for line in printed.splitlines())
    assert "mmroute.normalizer" in first
    assert not first & RARELY_NEEDED
    assert "mmroute.kv_events" in all_of_them
    assert not all_of_them & OF_EXTRAS


def test_a_package_of_an_extra_is_missing_or_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_codec.py").write_text("raise ImportError('its part')")
    monkeypatch.syspath_prepend(tmp_path)
    messages = []
    for package in ("missing_codec", "broken_codec"):
        with pytest.raises(ModelError) as raised, needs_extra("formats", package, "x.gguf"):
            __import__(package)
        messages.append(str(raised.value))
    missing, broken = messages
    assert missing.endswith(
        "which is not installed: pip install '.[formats]' in a checkout of mmroute"
    )
    assert "which is installed and cannot be imported (its part)" in broken


@cache
def imports() -> list[tuple[str, str]]:
    """Each module with one that it imports anywhere, also for types only."""
    pairs = []
    root = Path(mmroute.__file__).parent
    names = {
        ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for file in root.rglob("*.py")
    }
    for name, file in names.items():
        for package, imported in IMPORT.findall(file.read_text()):
            modules = (f"{package}.{word}" for word in re.findall(r"\w+", imported))
            pairs += [(name, module if module in names else package) for module in modules]
    return pairs


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("part", [str, room])
def test_imports_go_one_way(part: Callable[[str], str]) -> None:
    graph: dict[str, set[str]] = {}
    for module, imported in imports():
        if part(module) != part(imported):
            graph.setdefault(part(module), set()).add(part(imported))
    assert "mmroute.normalizer" in graph
    tuple(TopologicalSorter(graph).static_order())  # CycleError names a circle


NAMES_NO_ENGINE: Final = (
    "answering", "chat", "families", "geometry", "hashing", "model", "placement", "requests",
    "tokenizers",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES_NO_ENGINE)
def test_the_core_has_no_word_of_one_engine_s_variant(name: str) -> None:
    word = re.compile(r"\brust|_rust|sglang", re.IGNORECASE)
    files = [*(Path(mmroute.__file__).parent / name).rglob("*.py")]
    assert files
    assert [file.name for file in files if word.search(file.read_text("utf-8"))] == []


def test_only_names_lead_from_the_core_to_engines() -> None:
    core = {f"mmroute.{name}" for name in (*NAMES_NO_ENGINE, "engine", "normalizer", "plugins")}
    found = [pair for pair in imports() if room(pair[0]) in core]
    assert found
    assert [pair for pair in found if room(pair[1]) == "mmroute.engines"] == []


def test_the_front_of_the_server_knows_no_models_and_no_api() -> None:
    found = {
        imported for module, imported in imports() if module.startswith("mmroute.server.front.")
    }
    assert not [name for name in found if name.startswith("mmroute.server.api")]
    rooms = ("models", "loading", "service")
    assert found.isdisjoint(f"mmroute.server.{room}" for room in rooms)


TOOLS: Final = {path.stem: path for path in (ROOT / "tools").glob("*.py")}
TEST_MODULES: Final = {
    path.stem
    for room in ("helpers", "core/conformance", "text/decode")
    for path in (ROOT / "tests" / room).glob("*.py")
}


def loaded_by(tool: str) -> set[str]:
    """The modules that a tool imports anywhere, also by other tools."""
    text = TOOLS[tool].read_text(encoding="utf-8")
    found = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
    return found.union(*(loaded_by(other) for other in found & TOOLS.keys()))


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_program_that_needs_the_modules_of_the_tests_finds_them(tool: str) -> None:
    """Here they are on the path, and where an engine is installed they are not."""
    if "__main__" in TOOLS[tool].read_text(encoding="utf-8"):
        found = loaded_by(tool)
        assert "vector_files" in found or not found & TEST_MODULES
