"""The machine and the library versions of a measurement."""

from __future__ import annotations

import os
import platform
from typing import Any, Final

from mmroute.health.tested_versions import UNKNOWN, version_of
from mmroute.lab import bench

_PACKAGES: Final = (
    "mmroute", "tokenizers", "fastokens", "mistral-common", "numpy", "jinja2", "xxhash", "blake3",
    "pillow",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """The processor, cores, load, Python, and the versions of the libraries in use."""
    versions = {name: version_of(name) for name in _PACKAGES}
    return bench.machine() | {
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: version for name, version in versions.items() if version != UNKNOWN},
    }
