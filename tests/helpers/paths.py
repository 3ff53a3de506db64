"""Where the tests find the repository, its vectors, and real models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VECTORS: Final = ROOT / "tests" / "conformance" / "vectors"

_LONGEST_LINK: Final = 200


def real_models(variable: str = "MMROUTE_MODELS") -> Path | None:
    """Real model directories, where there are any; then every one that is used must exist."""
    root = os.environ.get(variable)
    if not root:
        return None
    path = Path(root)
    if not path.is_dir():
        raise NotADirectoryError(f"{variable} is {root}, which is not a directory")
    return path


def with_links(directory: Path, scratch: Path) -> Path:
    """The directory; if its tokenizer.json became the text of a link, one that has the link."""
    linked = directory / "tokenizer.json"
    if not linked.is_file() or linked.stat().st_size > _LONGEST_LINK:
        return directory
    copy = scratch / directory.name
    if copy.is_dir():
        return copy
    copy.mkdir()
    for file in directory.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / linked.name).unlink()
    (copy / linked.name).symlink_to((directory / linked.read_text()).resolve())
    return copy
