"""The API room stands below the server, which reaches it by its face."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mmroute

ROOT: Final = Path(mmroute.__file__).parent
FACE: Final = "mmroute.engines.vllm.api"


def imported(room: Path) -> Iterator[str]:
    """The modules that a room imports anywhere, also for types only."""
    for file in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield node.module or ""
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names)


def test_the_api_knows_no_server() -> None:
    found = set(imported(ROOT / "engines/vllm/api"))
    assert "mmroute.normalizer" in found
    assert not {name for name in found if name.startswith(("mmroute.server", "mmroute.ray"))}


def test_a_server_reaches_the_api_by_its_face_alone() -> None:
    for room in ("server", "ray"):
        found = {name for name in imported(ROOT / room) if name.startswith(FACE)}
        assert found == {FACE}


def test_the_engines_do_not_need_their_api() -> None:
    own = ROOT / "engines/vllm/api"
    for room in sorted((ROOT / "engines").rglob("*.py")):
        if own not in room.parents:
            assert FACE not in room.read_text()
