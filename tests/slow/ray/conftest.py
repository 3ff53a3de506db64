"""Tests of mmroute.server.ray, which need Ray; without it pytest finds none here, and says so."""

from __future__ import annotations

import importlib.metadata

try:
    importlib.metadata.version("ray")
except importlib.metadata.PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
