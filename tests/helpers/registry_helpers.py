"""Loaders and workers of a registry in the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bundle_helpers import Entry, serving, zip_of

OLD = {"config.json": b"{}", "tokenizer.json": b"old"}
NEW = {"config.json": b"{}", "tokenizer.json": b"new"}
ARCHIVE = zip_of(*(Entry(name.encode(), content) for name, content in OLD.items()))


class Loader:
    """Counts how often it loads, and what."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, bytes]] = []
        self.fail: Exception | None = None

    def __call__(self, name: str, directory: Path) -> bytes:
        if self.fail is not None:
            raise self.fail
        content = (directory / "tokenizer.json").read_bytes()
        self.loaded.append((name, content))
        return content


@contextlib.contextmanager
def fleet(tmp_path: Path, *contents: dict[str, bytes]) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(serving(files, tmp_path / f"worker{number}"))
            for number, files in enumerate(contents)
        ]
