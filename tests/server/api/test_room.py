"""The API room stands below the server, which reaches it by its face, and above the engines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mmroute

ROOT: Final = Path(mmroute.__file__).parent
FACE: Final = "mmroute.api.vllm"


def imported(room: Path) -> Iterator[str]:
    """The modules that a room imports anywhere, also for types only."""
    for file in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield node.module or ""
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names)


def test_the_api_knows_no_server() -> None:
    found = set(imported(ROOT / "api/vllm"))
    assert "mmroute.normalizer" in found
    assert not {name for name in found if name.startswith(("mmroute.server", "mmroute.server.ray"))}


def test_a_server_reaches_the_api_by_its_face_alone() -> None:
    for room in ("server", "ray"):
        found = {name for name in imported(ROOT / room) if name.startswith(FACE)}
        assert found == {FACE}


def test_engines_know_no_room_that_answers_requests() -> None:
    found = set(imported(ROOT / "engines"))
    assert "mmroute.chat.renderer" in found
    answer = tuple(f"mmroute.{room}" for room in ("answering", "normalizer", "api", "server"))
    assert not {name for name in found if name.startswith(answer)}
