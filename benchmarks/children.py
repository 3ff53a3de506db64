"""Processes that answer requests, each of one build of mmroute."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks import answering
from benchmarks.mixes import Mix
from mmroute.errors import MmrouteError, Reason

_IN_A_ROW: Final = 10  # requests to one process before the other's turn, as a server gets them
UNTIMED: Final = range(1_000_000_000, 1_000_000_005)
"""The numbers of warm-up requests, which no measured request has."""
_SCRIPT: Final = 'import runpy, sys; runpy.run_path(sys.argv[1])["main"]()'


@dataclass(frozen=True, slots=True)
class Build:
    """A build of mmroute, and its settings.

    Attributes:
        name: the name that messages give it.
        python: the interpreter that runs it.
        tree: a source tree to use in place of the installed package; empty for none.
        fast_paths: the arguments of `FastPaths`.
    """

    name: str
    python: str
    tree: str
    fast_paths: Mapping[str, Any]


def this_build(fast_paths: Mapping[str, Any], name: str = "") -> Build:
    """The build that is running, with other settings."""
    return Build(name, sys.executable, str(Path(__file__).parents[1]), fast_paths)


class Child:
    """A process of a build that answers, until the `with` block ends."""

    def __init__(self, build: Build, setup: Mapping[str, Any]) -> None:
        self.name = build.name
        # The child is to import its own installed package, and not that of this process.
        path = [build.tree, os.environ.get("PYTHONPATH", "")] if build.tree else []
        # -P: the working directory must not come before what is compared. Warnings, as of a
        # guessed model string, say nothing of times.
        self._process = subprocess.Popen(
            [build.python, "-P", "-W", "ignore", "-c", _SCRIPT, answering.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
        self.send({**setup, "fast_paths": build.fast_paths})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, *lines: object) -> None:
        """Give commands of `Answering`, each a list of its name and its arguments."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # `receive` reports it with more detail
                self._process.stdin.writelines(
                    json.dumps(each, default=asdict) + "\n" for each in lines
                )
                self._process.stdin.flush()

    def receive(self) -> Any:
        """The result of the next command."""
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise MmrouteError(
                Reason.SELF_CHECK_FAILED,
                "a measured process ended early; its own message stands above",
            )
        return json.loads(line)

    def ask(self, command: str, *arguments: Any) -> Any:
        """Give a command, and wait for its result."""
        self.send([command, *arguments])
        return self.receive()

    def warm_up(self, mix: Mix) -> None:
        """Have it answer the requests before those of a mix, and a few warm-up requests."""
        for request in (*mix.before(), *map(mix.request, UNTIMED)):
            self.ask("answer", request, True)
        self.ask("quiet")


def different_answers(mix: Mix, number: int, first: Child, second: Child) -> MmrouteError:
    """The error for a run in which two processes gave different answers to one request."""
    return MmrouteError(
        Reason.SELF_CHECK_FAILED,
        f"{mix.name}: {first.name} and {second.name} give different answers to request {number}; "
        "nothing is reported",
    )


def in_turns(
    first: Child, second: Child, mix: Mix, repeat: int, *, watched: Sequence[bool]
) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Have two warm processes answer the same requests in turns, so that load affects both alike.

    Yields the number of each request, and both answers, which are equal.
    """
    for start in range(0, repeat, _IN_A_ROW):
        numbers = range(start, min(start + _IN_A_ROW, repeat))
        questions = [["answer", mix.request(n), watched[n % len(watched)]] for n in numbers]
        answers: dict[Child, list[dict[str, Any]]] = {}
        # The processes take turns in being first, because the second finds warmer caches.
        for child in (first, second) if start % (2 * _IN_A_ROW) else (second, first):
            child.send(*questions)
            answers[child] = [child.receive() for _ in numbers]
        for number, one, other in zip(numbers, answers[first], answers[second], strict=True):
            if _answered(one) != _answered(other):
                raise different_answers(mix, number, first, second)
            yield number, one, other


def _answered(answer: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of an answer that must be equal in both processes."""
    if "refusal" in answer:
        return (answer["refusal"][0],)
    return (answer["digest"], answer["hashes"])
