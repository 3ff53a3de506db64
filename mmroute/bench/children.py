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

from mmroute.bench import answering
from mmroute.bench.mixes import Mix
from mmroute.errors import MmrouteError, Reason

_IN_A_ROW: Final = 10  # requests of one process before the other's turn: a server at work
UNTIMED: Final = range(1_000_000_000, 1_000_000_005)
"""Numbers of requests to warm up with, which no measured request has."""
# The import is timed in a process that has imported nothing but the clock.
_SCRIPT: Final = """\
import time
started = time.perf_counter()
import mmroute
imported = time.perf_counter() - started
import runpy, sys
runpy.run_path(sys.argv[1])["main"](imported)
"""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of mmroute, and its settings.

    Attributes:
        name: the name that messages give it.
        python: the interpreter that runs it.
        tree: a source tree in the place of what is installed there; empty for none.
        fast_paths: the arguments of `FastPaths`.
    """

    name: str
    python: str
    tree: str
    fast_paths: Mapping[str, Any]


def this_build(fast_paths: Mapping[str, Any], name: str = "") -> Build:
    """The build that runs, with other settings."""
    return Build(name, sys.executable, str(Path(__file__).parents[2]), fast_paths)


class Child:
    """A process of a build that answers, until the `with` block ends.

    Args:
        build: which one.
        setup: the first line for `answering.main`, without ``fast_paths``. What loading took is the
            first thing to `receive`.
    """

    def __init__(self, build: Build, setup: Mapping[str, Any]) -> None:
        self.name = build.name
        # What is installed there, and not what this process was told to import.
        path = [build.tree, os.environ.get("PYTHONPATH", "")] if build.tree else []
        # -P: the working directory must not come before what is compared. Warnings, as of a
        # guessed model string, say nothing of times.
        self._process = subprocess.Popen(  # noqa: S603 - an interpreter that the user names, a script of ours
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
            with contextlib.suppress(BrokenPipeError):  # which `receive` tells better
                self._process.stdin.writelines(
                    json.dumps(each, default=asdict) + "\n" for each in lines
                )
                self._process.stdin.flush()

    def receive(self) -> Any:
        """What the next command returned.

        Raises:
            MmrouteError: the process ended.
        """
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise MmrouteError(
                Reason.SELF_CHECK_FAILED,
                "a measured process ended early; its own message stands above",
            )
        return json.loads(line)

    def ask(self, command: str, *arguments: Any) -> Any:
        """Give a command, and wait for what it returns."""
        self.send([command, *arguments])
        return self.receive()

    def warm_up(self, mix: Mix) -> None:
        """Let it answer what comes before the requests of a mix, and a few more."""
        for request in (*mix.before(), *map(mix.request, UNTIMED)):
            self.ask("answer", request, True)
        self.ask("quiet")


def different_answers(mix: Mix, number: int, first: Child, second: Child) -> MmrouteError:
    """The error of a run: the time of a wrong answer says nothing."""
    return MmrouteError(
        Reason.SELF_CHECK_FAILED,
        f"{mix.name}: {first.name} and {second.name} give different answers to request {number}; "
        "nothing is reported",
    )


def in_turns(
    first: Child, second: Child, mix: Mix, repeat: int, *, watched: Sequence[bool]
) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Let two processes that are warm answer the same requests: their numbers, and both answers.

    Whatever else the machine does meets both. Their answers are the same, or no answer is given.

    Args:
        first: one process.
        second: the other one.
        mix: the requests.
        repeat: how many there are.
        watched: whether the stages of a request are timed: of the first one, the second, and so
            on, then of the first again.

    Raises:
        MmrouteError: a process ended, or the two gave different answers.
    """
    for start in range(0, repeat, _IN_A_ROW):
        numbers = range(start, min(start + _IN_A_ROW, repeat))
        asked = [["answer", mix.request(n), watched[n % len(watched)]] for n in numbers]
        answers: dict[Child, list[dict[str, Any]]] = {}
        # Who comes first finds other things in the processor's caches.
        for child in (first, second) if start % (2 * _IN_A_ROW) else (second, first):
            child.send(*asked)
            answers[child] = [child.receive() for _ in numbers]
        for number, one, other in zip(numbers, answers[first], answers[second], strict=True):
            if _answered(one) != _answered(other):
                raise different_answers(mix, number, first, second)
            yield number, one, other


def _answered(answer: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be the same of two answers."""
    if "refusal" in answer:
        return (answer["refusal"][0],)
    return (answer["digest"], answer["hashes"])
