"""A subscriber to the KV events of running engines, for threads and for asyncio.

It only moves frames between sockets and `Streams`, which says what they mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, Self

try:
    import zmq
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "subscribing to events needs pyzmq: pip install 'mmroute[events]'", name="zmq"
    ) from error

from mmroute.kv_events.streams import Message, Position, Source, Streams

_TICK: Final = 0.25  # seconds between two looks at whether it was closed
_REPLAY_TIMEOUT: Final = 5.0  # seconds after which a replay that does not go on is given up
_SILENCE: Final = 10.0  # seconds without a message, after which the publisher is asked
_MOST_AT_ONCE: Final = 256
# A flood waits in these queues, and then its publisher drops messages, which are asked for again.
_OPTIONS: Final = {
    zmq.LINGER: 0,
    zmq.RCVHWM: 10_000,
    zmq.MAXMSGSIZE: 64 << 20,
    zmq.HEARTBEAT_IVL: 10_000,  # milliseconds: a peer that does not answer is connected to anew
    zmq.HEARTBEAT_TIMEOUT: 30_000,
}


class Subscriber:
    """Receives KV events, in their order. Iterate over it, with ``for`` or ``async for``.

    It connects, and connects again, in the background. What was published before, and what was
    missed, it asks the publisher's replay endpoint for. Use it in one thread at a time.

    Args:
        endpoint: the publisher's address, such as ``tcp://worker-0:5557``. The engine calls it
            ``endpoint`` in its ``--kv-events-config``.
        topic: the prefix of the topics that are wanted; empty for all.
        replay_endpoint: the same publisher's address for replays; None where it has none.
        bind: whether this binds `endpoint`, and publishers connect to it.
        taken: the place of each publisher up to which its batches were taken before; see
            `BlockIndex.positions`.

    Raises:
        ValueError: a replay endpoint where many publishers may connect.
        zmq.ZMQError: an endpoint cannot be used.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        topic: str = "",
        replay_endpoint: str | None = None,
        bind: bool = False,
        taken: Mapping[Source, Position] | None = None,
    ) -> None:
        if bind and replay_endpoint is not None:
            raise ValueError("replays are of one publisher, and many may connect to what is bound")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._streams = Streams(replays=replay_endpoint is not None, taken=taken or {})
        self._replay_endpoint = replay_endpoint or ""
        self._deadline = 0.0
        self._heard = time.monotonic()
        self._replays: zmq.Socket[bytes] | None = None
        self._closing = False
        self._events = self._socket(zmq.SUB)
        self._events.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._connections = self._events.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            self._events.bind(endpoint) if bind else self._events.connect(endpoint)
            self._ask()
        except zmq.ZMQError:
            self._context.destroy()
            raise

    def receive(self, timeout: float) -> list[Message]:
        """What has arrived, after waiting so many seconds for the first of it; may be empty."""
        messages: list[Message] = []
        poller = zmq.Poller()
        poller.register(self._connections, zmq.POLLIN)
        poller.register(self._events, zmq.POLLIN)
        if self._replays is not None:
            poller.register(self._replays, zmq.POLLIN)
        for socket, _ in poller.poll(int(timeout * 1000)):
            if socket is self._connections:
                # Who is connected to again may be another process, whatever number it goes on with.
                list(_frames(socket))
                self._streams.check()
                continue
            self._heard = time.monotonic()
            for frames in _frames(socket):
                if socket is self._events:
                    messages += self._streams.received(frames)
                else:
                    self._deadline = time.monotonic() + _REPLAY_TIMEOUT
                    messages += self._streams.replayed(frames[1:])  # an empty frame comes first
        if self._streams.is_replaying and time.monotonic() > self._deadline:
            messages += self._streams.ended()
        if time.monotonic() > self._heard + _SILENCE:
            self._heard = time.monotonic()
            self._streams.check()
        self._ask()
        return messages

    def __iter__(self) -> Iterator[Message]:
        while not self._closing:
            yield from self.receive(_TICK)
        self._context.destroy()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._closing:
            for message in await asyncio.to_thread(self.receive, _TICK):
                yield message
        self._context.destroy()

    def close(self) -> None:
        """End the iteration, from whatever thread. Without one, leave a ``with`` statement."""
        self._closing = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._context.destroy()

    def _ask(self) -> None:
        """Ask for the replay that is wanted, on a socket on which no earlier one can arrive."""
        number = self._streams.take_request()
        if number is None:
            return
        if self._replays is not None:
            self._replays.close()
        self._replays = self._socket(zmq.DEALER)
        self._replays.connect(self._replay_endpoint)
        self._replays.send_multipart([b"", number])
        self._deadline = time.monotonic() + _REPLAY_TIMEOUT

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        for option, value in _OPTIONS.items():
            socket.setsockopt(option, value)
        return socket


def _frames(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """What is there already, up to a limit."""
    for _ in range(_MOST_AT_ONCE):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
