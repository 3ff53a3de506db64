"""The machine and the library versions of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Final

from mmroute.health.tested_versions import UNKNOWN, version_of
from mmroute.lab.bench.throughput import cores

_PACKAGES: Final = (
    "mmroute", "tokenizers", "fastokens", "mistral-common", "numpy", "jinja2", "xxhash", "blake3",
    "pillow",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """The processor, cores, load, Python, and the versions of the libraries in use."""
    versions = {name: version_of(name) for name in _PACKAGES}
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return {
        "processor": _processor(),
        "cores": len(cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": [round(value, 2) for value in load],
        "python": platform.python_version(),
        "versions": {name: version for name, version in versions.items() if version != UNKNOWN},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
