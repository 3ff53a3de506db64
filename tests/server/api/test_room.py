"""The server finds what it knows of an engine by name, and engines know no room above them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mmroute

ROOT: Final = Path(mmroute.__file__).parent


def imported(files: Iterator[Path]) -> set[str]:
    """The modules that files import anywhere, also for types only."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
    return found


def test_the_server_finds_the_routes_of_an_engine_by_name() -> None:
    found = imported((ROOT / "server").glob("*.py"))
    assert "mmroute.server.api" in found
    assert not {name for name in found if name.startswith("mmroute.server.engines")}
    assert not {name for name in found if name.startswith("mmroute.engines.vllm")}


def test_engines_know_no_room_that_answers_requests() -> None:
    found = imported((ROOT / "engines").rglob("*.py"))
    assert "mmroute.chat.renderer" in found
    answer = tuple(f"mmroute.{room}" for room in ("answering", "normalizer", "server"))
    assert not {name for name in found if name.startswith(answer)}
