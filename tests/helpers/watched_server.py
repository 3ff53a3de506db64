"""A server that tells how long its event loop stood still, in processor time of its own code.

    python watched_server.py PORT MODEL

Each line on its standard input is answered with the longest time in seconds that the process
worked between two turns of the loop, since the line before. Processor time is that of all threads:
one that holds the interpreter's lock stops the loop as well as its own work does. On a busy machine
a thread that holds no lock adds to it, so the least of several attempts counts. Time in the kernel
is left out: a virtual machine may take 20 us for each page of memory that it gives for the first
time, which is 60 ms for a list of 250,000 texts.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any, Final

from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.front.listening import Listen, open_sockets
from mmroute.server.models import Models
from mmroute.server.run import Server

_TURN: Final = 0.001


def _worked() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


class _Watch:
    """Looks at the time of the process whenever the loop has a turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sys.stdin, self._tell)
        self._longest = 0.0
        self._last = _worked()
        self._look()

    def _look(self) -> None:
        now = _worked()
        self._longest, self._last = max(self._longest, now - self._last), now
        self._loop.call_later(_TURN, self._look)

    def _tell(self) -> None:
        sys.stdin.readline()
        print(self._longest, flush=True)
        self._longest = 0.0


class _WatchedServer(Server):
    async def startup(self, sockets: Any = None) -> None:
        _Watch()
        await super().startup(sockets)


def _main(port: int, directory: str) -> None:
    listen = Listen(port=port)
    sources = [ModelSource(directory, ("model",)), ModelSource(EMBEDDED_MODEL, ("embedded",))]
    _WatchedServer(Models(sources), ServerSettings(), listen).run(open_sockets(listen))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
