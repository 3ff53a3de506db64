"""What mmroute.ray uses of Ray's alpha and private parts is as it was when it was written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import ray

from mmroute.ray.alpha import PINNED


def shown(path: Path) -> set[str]:
    """Every statement of a module; of functions and classes the line that defines them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list, node.body = [], []
            found.add(ast.unparse(node).strip().removesuffix(":"))
        elif isinstance(node, ast.stmt):
            found.add(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", PINNED)
def test_ray_has_what_is_relied_on(path: str) -> None:
    statements = shown(Path(ray.__file__).parent / path)
    missing = [statement for statement in PINNED[path] if statement not in statements]
    assert not missing, f"Ray {ray.__version__} has changed {path}: look at mmroute/ray/alpha.py"
