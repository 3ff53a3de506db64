"""Answers the lines of a trace by Ray Data, on several nodes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import ray.data

from mmroute.lab.traces.requests import Chunk, read_chunk
from mmroute.normalizer import Normalizer

_RANGE_BYTES: Final = 16 << 20  # the part of a file that one task reads
_CHUNK_LINES: Final = 1000
_READING: Final = 0.1  # the share of a core for reading, which would else wait for a core for ever


class _Answers:
    """Answers batches of lines. Each worker has an instance with a normalizer of its own."""

    def __init__(self, normalizer: Normalizer, block_size: int | None) -> None:
        self._normalizer = normalizer
        self._block_size = block_size

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        numbered = [(n, line) for n, line in enumerate(batch["line"], 1) if line.strip()]
        chunk = read_chunk(numbered, self._normalizer.answer, self._block_size)
        return {"lines": [len(batch["line"])], "chunk": [chunk]}


def chunks_by_ray(path: str, normalizer: Normalizer, block_size: int | None) -> Iterator[Chunk]:
    """The chunks of a trace in their order, while Ray answers the next ones.

    Ray is started, or found by RAY_ADDRESS. It repeats the work of a lost worker.
    """
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    size = Path(path).stat().st_size
    ranges = [{"start": n, "end": n + _RANGE_BYTES} for n in range(0, size, _RANGE_BYTES)]
    lines = ray.data.from_items(ranges)
    answered = lines.flat_map(functools.partial(_lines, path), num_cpus=_READING).map_batches(
        _Answers,
        fn_constructor_args=(normalizer, block_size),
        batch_size=_CHUNK_LINES,
        num_cpus=1 - _READING,
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=max(1, int(ray.cluster_resources().get("CPU", 1)))
        ),
    )
    before = 0
    for row in answered.iter_rows():
        chunk: Chunk = row["chunk"]
        chunk.refused = [(reason, line + before) for reason, line in chunk.refused]
        yield chunk
        before += row["lines"]


def _lines(path: str, part: dict[str, int]) -> Iterator[dict[str, bytes]]:
    """The lines that begin in one range of a file."""
    start, end = part["start"], part["end"]
    with Path(path).open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()  # skip the line that begins in the range before
        while file.tell() < end and (line := file.readline()):
            yield {"line": line}
