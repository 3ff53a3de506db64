"""Answers a trace on several processes, in chunks of lines that are kept in a directory."""

from __future__ import annotations

import itertools
import json
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec

from mmroute.lab.traces.requests import Chunk, TracedRequest, read_chunk
from mmroute.normalizer import Normalizer

Lines: TypeAlias = "list[tuple[int, bytes]]"
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_CHUNK_LINES: Final = 1000
_CHUNK_BYTES: Final = 16 << 20  # lines may hold images
_AHEAD: Final = 2  # tasks that wait for each process

_CHUNKS: Final = msgspec.msgpack.Decoder(Chunk)

_normalizers: Final[list[Normalizer | None]] = []  # this process's normalizer, once it is loaded


class Processes:
    """Runs functions of a normalizer and one argument in processes; before `start`, in this one."""

    def __init__(self, most: int, normalizer: Normalizer | None) -> None:
        self._most = most
        self._normalizer = normalizer
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def count(self) -> int:
        """The number of processes that work."""
        return 1 if self._pool is None else self._most

    def start(self) -> None:
        """Start the processes, if there is to be more than one."""
        if self._most > 1:
            self._pool = ProcessPoolExecutor(
                self._most,
                multiprocessing.get_context("spawn"),  # a fork would lose the tokenizers' threads
                initializer=_keep,
                initargs=(self._normalizer,),
            )

    def map(
        self,
        function: Callable[[Normalizer | None, _Argument], _Result],
        arguments: Iterable[_Argument],
    ) -> Iterator[_Result]:
        """The results in the order of the arguments; a few arguments are read ahead."""
        if self._pool is None:
            yield from (function(self._normalizer, argument) for argument in arguments)
            return
        waiting = iter(arguments)
        pending: deque[Future[_Result]] = deque()
        while True:
            for argument in itertools.islice(waiting, self._most * _AHEAD - len(pending)):
                pending.append(self._pool.submit(_run, function, argument))
            if not pending:
                return
            yield pending.popleft().result()


def _keep(normalizer: Normalizer | None) -> None:
    _normalizers.append(normalizer)
    if normalizer is not None:
        normalizer.stats()  # wait for its encoder, so that the first requests do not pay for it


def _run(
    function: Callable[[Normalizer | None, _Argument], _Result], argument: _Argument
) -> _Result:
    return function(_normalizers[0], argument)


def chunks_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[Lines]:
    """The lines in chunks of a thousand, or of 16 MiB if that is less."""
    chunk: Lines = []
    size = 0
    for number, line in lines:
        chunk.append((number, line))
        size += len(line)
        if len(chunk) == _CHUNK_LINES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class ChunkFiles:
    """The chunks of one trace in a directory, where a later run finds the finished ones."""

    def __init__(self, directory: Path, made_of: Mapping[str, Any]) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        label = directory / "made_of.json"
        if not label.exists():
            label.write_text(json.dumps(made_of), encoding="utf-8")
        known = json.loads(label.read_text(encoding="utf-8"))
        differ = sorted(name for name, value in made_of.items() if known.get(name) != value)
        if differ:
            raise ValueError(
                f"{directory} has the chunks of another run, which differs in {', '.join(differ)}; "
                "give an empty directory"
            )

    def read_all(
        self, chunks: Iterable[Lines], block_size: int | None, processes: Processes
    ) -> Iterator[tuple[Path, Chunk]]:
        """The chunks in their order; only chunks that are not finished are answered."""

        def tasks() -> Iterator[_Task]:
            for number, lines in enumerate(itertools.chain(first, waiting)):
                path = self._path(number)
                yield path, [] if path.exists() else lines, block_size

        waiting = iter(chunks)
        first = list(itertools.islice(waiting, 2))
        if len(first) > 1:  # for one chunk, starting processes would take longer
            processes.start()
        for path in processes.map(_write_chunk, tasks()):
            yield path, _CHUNKS.decode(path.read_bytes())

    def keep_all(
        self, chunks: Iterable[Chunk], processes: Processes
    ) -> Iterator[tuple[Path, Chunk]]:
        """Write chunks that were answered elsewhere to files."""
        for number, chunk in enumerate(chunks):
            if number == 1:
                processes.start()
            path = self._path(number)
            path.write_bytes(msgspec.msgpack.encode(chunk))
            yield path, chunk

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:06}.msgpack"


_Task: TypeAlias = "tuple[Path, Lines, int | None]"


def _write_chunk(normalizer: Normalizer | None, task: _Task) -> Path:
    path, lines, block_size = task
    if lines:
        chunk = read_chunk(lines, normalizer.answer if normalizer else None, block_size)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(msgspec.msgpack.encode(chunk))
        unfinished.replace(path)
    return path


def traced_requests(paths: Iterable[Path]) -> Iterator[TracedRequest]:
    """The requests in files of chunks."""
    for path in paths:
        yield from _CHUNKS.decode(path.read_bytes()).requests
