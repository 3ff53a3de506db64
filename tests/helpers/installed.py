"""What pip writes beside a package that it installs: its name, its version and its entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path


def describe(site: Path, name: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """Make a distribution of a site known, with its entry points by group."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in points.items()
        for line in (f"[{group}]", *(f"{entry} = {place}" for entry, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def describe_project(site: Path, project: Path) -> None:
    """The same for the project of a ``pyproject.toml``."""
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    describe(site, table["name"], table["entry-points"])
