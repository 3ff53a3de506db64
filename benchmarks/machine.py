"""The machine and the library versions of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Final

from mmroute.health.tested_versions import UNKNOWN, version_of

_PACKAGES: Final = (
    "mmroute", "tokenizers", "fastokens", "mistral-common", "numpy", "jinja2", "xxhash", "blake3",
    "pillow",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """The processor, cores, load, Python, and the versions of the libraries in use."""
    versions = {name: version_of(name) for name in _PACKAGES}
    return {
        "processor": _processor(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: version for name, version in versions.items() if version != UNKNOWN},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
