"""Merges the metrics of several processes into the metrics of one server."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "mmroute-metrics-"
_LONG: Final = 600.0  # seconds
_ENDED: Final = ".ended"
# Metrics that have the same value in all processes. All others are added up.
_SAME: Final = ("_info", "_matches", "_start_time_seconds", "_max_fds", "_created")


@contextlib.contextmanager
def shared_directory() -> Iterator[Path]:
    """A new directory for pages of metrics.

    It also removes directories of dead servers. A server writes to its directory every second, and
    leaves it behind if all its processes are killed.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another server may have removed it
            if time.time() - path.stat().st_mtime > _LONG:
                shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


class SharedPages:
    """A directory with the metrics page of each process, so that each can show all metrics.

    The counters of a process stay after it has ended, because counters must not decrease.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, page: bytes) -> None:
        """Write the page of this process."""
        path = self._directory / str(os.getpid())
        beside = path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):  # `remove`, by another process
            beside.write_bytes(page)
            beside.replace(path)

    def remove(self) -> None:
        """Remove the directory. Each process shows only its own page then."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def end(self, pid: int) -> None:
        """Keep the counters of a process that has ended, and drop its gauges."""
        path = self._directory / str(pid)
        if path.exists():
            path.replace(path.with_suffix(_ENDED))

    def merged(self) -> bytes:
        """One page with the metrics of all processes.

        Lines are added up as text. The parser of prometheus_client takes ten times as long, and
        requests would have to wait for it.
        """
        families: dict[str, dict[str, float]] = {}  # by the lines that describe them
        paths = [path for path in self._directory.iterdir() if path.suffix in ("", _ENDED)]
        for path in paths:
            about, samples = "", dict[str, float]()
            for line in path.read_bytes().decode().rstrip("\n").split("\n"):
                if line.startswith("# HELP"):
                    about = f"{line}\n"
                elif line.startswith("# TYPE"):
                    samples = families.setdefault(f"{about}{line}", {})
                    if path.suffix == _ENDED and line.endswith(" gauge"):
                        samples = {}
                    about = ""
                else:
                    name, _, text = line.rpartition(" ")
                    known, value = samples.get(name, 0.0), float(text)
                    same = name.partition("{")[0].endswith(_SAME)
                    samples[name] = max(known, value) if same else known + value
        about = "# HELP mmroute_processes Processes that answer\n# TYPE mmroute_processes gauge"
        families[about] = {"mmroute_processes": float(sum(path.suffix == "" for path in paths))}
        lines = list[str]()
        for about, samples in families.items():
            lines += about, *(f"{name} {value}" for name, value in samples.items())
        return "\n".join([*lines, ""]).encode()
