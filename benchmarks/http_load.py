"""Requests over many kept connections: as fast as they are answered, or at a fixed rate."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_OK = b"HTTP/1.1 200 "


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent.

    Attributes:
        request: the pieces of the request of a number, its head included.
        requests: how many.
        connections: how many are kept; each has one request on its way.
        per_second: at this rate; None for as fast as they are answered.
        check: sees the number and the body of every hundredth answer, when all have come.
        first: the number of the first request.
    """

    request: Callable[[int], Sequence[bytes]]
    requests: int
    connections: int
    per_second: float | None = None
    check: Callable[[int, bytes], None] | None = None
    first: int = 0


@dataclass(slots=True)
class Load:
    """What a server did under load.

    Attributes:
        answered: requests with status 200.
        refused: those with another one.
        seconds: from the first request to the last answer.
        latencies: of each request in seconds; at a fixed rate from the moment it was due, not
            from the one when it could be sent.
    """

    answered: int = 0
    refused: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Answers in a second."""
        return self.answered / self.seconds

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.latencies)

    def percentile(self, percent: int) -> float:
        """Seconds within which this part of all requests was answered."""
        return statistics.quantiles(self.latencies, n=100)[percent - 1]


class Connection(asyncio.Protocol):
    """One kept connection, with at most one request on its way."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = bytearray()
        self._expected: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._expected is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(self._received, 0, end)
            assert found is not None, "an answer without its length"
            self._expected = end + 4 + int(found[1])
        if len(self._received) >= self._expected and self._answer is not None:
            self._answer.set_result(bytes(self._received))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed before it answered"))

    async def ask(self, request: Sequence[bytes]) -> bytes:
        assert self.transport is not None
        if self.transport.is_closing():
            raise ConnectionError("closed between two requests")
        self._received.clear()
        self._expected = None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.writelines(request)
        return await self._answer


def run_load(ports: Sequence[int], plan: Plan) -> Load:
    """Send requests to the servers of this machine that listen there, connections shared out."""
    return asyncio.run(_run(ports, plan))


async def _run(ports: Sequence[int], plan: Plan) -> Load:
    connections = await connect(ports, plan.connections)
    load = await send(connections, plan)
    for connection in connections:
        assert connection.transport is not None
        connection.transport.close()
    return load


async def connect(ports: Sequence[int], count: int) -> list[Connection]:
    """So many connections, shared out among the servers of this machine that listen there."""
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(Connection, "127.0.0.1", ports[number % len(ports)])
        for number in range(count)
    ]
    return [connection for _, connection in made]


async def send(connections: Sequence[Connection], plan: Plan) -> Load:
    """Send the requests of a plan over connections that are kept."""
    load, numbers = Load(), iter(range(plan.requests))
    kept: list[tuple[int, bytes]] = []
    began = time.perf_counter()

    async def ask_in_turn(connection: Connection) -> None:
        for number in numbers:
            due = time.perf_counter()
            if plan.per_second is not None:
                due = began + number / plan.per_second
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            answer = await connection.ask(plan.request(plan.first + number))
            load.latencies.append(time.perf_counter() - due)
            if not answer.startswith(_OK):
                load.refused += 1
                continue
            load.answered += 1
            if number % 100 == 0:
                kept.append((plan.first + number, answer.partition(b"\r\n\r\n")[2]))

    await asyncio.gather(*map(ask_in_turn, connections))
    load.seconds = time.perf_counter() - began
    if plan.check is not None:
        for number, body in kept:
            plan.check(number, body)
    return load
