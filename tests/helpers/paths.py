"""Where the tests find the repository, its vectors, and real models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VECTORS: Final = ROOT / "tests" / "core" / "conformance" / "vectors"


def real_models(variable: str = "MMROUTE_MODELS") -> Path | None:
    """Real model directories, where there are any; then every one that is used must exist."""
    root = os.environ.get(variable)
    if not root:
        return None
    path = Path(root)
    if not path.is_dir():
        raise NotADirectoryError(f"{variable} is {root}, which is not a directory")
    return path
