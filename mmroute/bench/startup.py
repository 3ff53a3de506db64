"""Measure the time and memory of loading a model in a fresh process."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mmroute.errors import MmrouteError, Reason
from mmroute.fast_paths import FastPaths
from mmroute.normalizer import Normalizer

__all__ = ["Startup", "measure_startup", "rss_bytes"]

# The import is timed in a process that has imported nothing but the clock.
_SCRIPT: Final = """\
import time
started = time.perf_counter()
import mmroute
imported = time.perf_counter() - started
import sys
from mmroute.bench.startup import report
report(sys.argv[1], imported)
"""
_LONGEST: Final = 600  # seconds


@dataclass(frozen=True, slots=True)
class Startup:
    """A fresh process that loads one model.

    Attributes:
        encoder: name and version of who encodes; empty for a model's own chat encoder.
        import_seconds: of ``import mmroute``.
        load_seconds: of `Normalizer.from_pretrained`, with the libraries it imports.
        ready_seconds: from the beginning of that, until the encoder is chosen and proved.
        rss_imported_bytes: resident memory after the import.
        rss_loaded_bytes: once the model is ready.
        rss_again_bytes: once it is loaded a second time beside the first, which needs no
            library anew: the difference is the model alone.
    """

    encoder: str
    import_seconds: float
    load_seconds: float
    ready_seconds: float
    rss_imported_bytes: int
    rss_loaded_bytes: int
    rss_again_bytes: int


def measure_startup(**loaded_with: object) -> Startup:
    """Load a model in a process of its own.

    Args:
        **loaded_with: arguments of `Normalizer.from_pretrained`, as JSON has them; `encoder` in
            the place of `fast_paths`.

    Raises:
        MmrouteError: it could not be loaded there.
    """
    command = [sys.executable, "-c", _SCRIPT, json.dumps(loaded_with)]
    done = subprocess.run(  # noqa: S603 - this interpreter, and a script of ours
        command, capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise MmrouteError(
            Reason.SELF_CHECK_FAILED, f"a fresh process could not load the model: {said}"
        )
    return Startup(**json.loads(done.stdout.splitlines()[-1]))


def report(loaded_with: str, import_seconds: float) -> None:
    """Load a model twice, and print what it took as JSON. Runs in the fresh process."""
    arguments: dict[str, Any] = json.loads(loaded_with)
    fast_paths = FastPaths(encoder=arguments.pop("encoder"))
    imported = rss_bytes()
    started = time.perf_counter()
    normalizer = Normalizer.from_pretrained(**arguments, fast_paths=fast_paths)
    loaded = time.perf_counter() - started
    stats = normalizer.stats()  # waits for the encoder
    ready = time.perf_counter() - started
    rss = rss_bytes()
    again = Normalizer.from_pretrained(**arguments, fast_paths=fast_paths)
    again.stats()
    found = {
        "encoder": stats.encoder.engine if stats.encoder else "",
        "import_seconds": import_seconds,
        "load_seconds": loaded,
        "ready_seconds": ready,
        "rss_imported_bytes": imported,
        "rss_loaded_bytes": rss,
        "rss_again_bytes": rss_bytes(),
    }
    sys.stdout.write(json.dumps(found))


def rss_bytes() -> int:
    """Resident memory of this process in bytes; its peak where the system does not tell more."""
    import resource  # not on Windows

    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
