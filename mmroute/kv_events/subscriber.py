"""A subscriber to the KV events of running engines, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Self

from mmroute.errors import MissingExtraError

try:
    import zmq
    from zmq.utils.monitor import parse_monitor_message
except ModuleNotFoundError as error:
    raise MissingExtraError("subscribing to events needs pyzmq", "events", "zmq") from error

from mmroute.kv_events.health import SubscriberState, WorkerHealth
from mmroute.kv_events.streams import Message, Position, Received, Source, Streams

_LOG: Final = logging.getLogger(__name__)
_TICK: Final = 0.25  # seconds between two looks at whether it was closed
_REPLAY_TIMEOUT: Final = 5.0  # seconds without a part of a replay after which it is given up
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

    It connects, and connects again, in the background. It asks the publisher's replay endpoint for
    events that were published before and for those that were missed. While that endpoint does not
    answer, new events are given without waiting for it. It logs, with the endpoint: no answer for
    ten seconds, connections that end, and replays without an answer. Use it in one thread at a
    time. ``async for`` takes a thread of its own.

    Args:
        endpoint: the publisher's address, such as ``tcp://worker-0:5557``. The engine calls it
            ``endpoint`` in its ``--kv-events-config``.
        topic: the prefix of the topics that are wanted; empty for all.
        replay_endpoint: the publisher's address for replays; None if it has none.
        bind: whether this binds `endpoint`, and publishers connect to it.
        taken: for each publisher the place up to which its batches were taken before; see
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
            raise ValueError(
                "replay_endpoint is for one publisher, and with bind many may connect; give one "
                "of them"
            )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._streams = Streams(
            replays=replay_endpoint is not None, taken=taken or {}, endpoint=endpoint
        )
        self._endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._deadline = 0.0
        self._heard = time.monotonic()
        self._health = WorkerHealth()
        self._connected = 0
        self._absence_logged = False
        # Source: vLLM 0.33.0 ``distributed/kv_events.py`` (`_is_bind_endpoint`)
        self._absence_hint = "" if bind else (
            "; vLLM listens only where its endpoint has * or ::, such as tcp://*:5557, and "
            "connects to any other: then subscribe to that one with bind=True"
        )  # fmt: skip
        self._replays: zmq.Socket[bytes] | None = None
        self._refusals: zmq.Socket[bytes] | None = None
        self._closing = False
        self._events = self._socket(zmq.SUB)
        self._events.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._connections = self._events.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        try:
            self._events.bind(endpoint) if bind else self._events.connect(endpoint)
            self._ask()
        except zmq.ZMQError:
            self._context.destroy()
            raise

    def receive(self, timeout: float) -> list[Message]:
        """The messages that have arrived. Waits up to `timeout` seconds for the first one."""
        messages: list[Message] = []
        for socket in self._ready(timeout):
            messages += self._taken(socket)
        if self._streams.is_replaying and time.monotonic() > self._deadline:
            messages += self._give_up(f"no answer for {_REPLAY_TIMEOUT:g} seconds")
        if time.monotonic() > self._heard + _SILENCE:
            self._heard = time.monotonic()
            self._streams.check()
            if not self._connected and not self._absence_logged:
                self._absence_logged = True
                _LOG.warning(
                    "%s: no publisher of events is connected%s", self._endpoint, self._absence_hint
                )
        self._ask()
        self._count(messages)
        return messages

    def state(self) -> SubscriberState:
        """Whether the publisher is connected and answers replays, and what was heard of it."""
        replays = None if self._replay_endpoint is None else self._streams.replays
        return SubscriberState(self._endpoint, self._connected, replays, replace(self._health))

    def __iter__(self) -> Iterator[Message]:
        while not self._closing:
            yield from self.receive(_TICK)
        self._context.destroy()

    async def __aiter__(self) -> AsyncIterator[Message]:
        # It waits nearly all the time, and the event loop's own threads are few.
        thread = ThreadPoolExecutor(1, "mmroute-events")
        receive = asyncio.get_running_loop().run_in_executor
        try:
            while not self._closing:
                for message in await receive(thread, self.receive, _TICK):
                    yield message
        finally:
            thread.shutdown(wait=False)
        self._context.destroy()

    def close(self) -> None:
        """End the iteration, from whatever thread. Without one, leave a ``with`` statement."""
        self._closing = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._context.destroy()

    def _ready(self, timeout: float) -> list[zmq.Socket[bytes]]:
        poller = zmq.Poller()
        for socket in (self._connections, self._events, self._replays, self._refusals):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        return [socket for socket, _ in poller.poll(int(timeout * 1000))]

    def _taken(self, socket: zmq.Socket[bytes]) -> Iterator[Message]:
        """The messages that the frames at one socket make ready."""
        if socket is self._refusals:
            yield from self._give_up("the connection is refused")
        elif socket is self._connections:
            self._note_connections()
        elif socket is self._events:
            self._heard = time.monotonic()
            for frames in _frames(socket):
                yield from self._streams.received(frames)
        elif self._streams.replays:
            self._heard = time.monotonic()
            self._deadline = self._heard + _REPLAY_TIMEOUT
            for frames in _frames(socket):
                yield from self._streams.replayed(frames[1:])  # an empty frame comes first
        else:  # the request that was given up is answered after all
            _LOG.info("%s: replays are answered again", self._replay_endpoint)
            self._streams.replays = True
            self._streams.check()

    def _note_connections(self) -> None:
        for frames in _frames(self._connections):
            if parse_monitor_message(frames)["event"] == zmq.EVENT_DISCONNECTED:
                self._connected = max(0, self._connected - 1)  # also ends without a handshake
                _LOG.warning("%s: the connection has ended", self._endpoint)
            else:
                # Who is connected to again may be another process, whatever number it goes on with.
                self._connected += 1
                self._absence_logged = False
                self._streams.replays = self._replay_endpoint is not None
                self._streams.check()

    def _give_up(self, why: str) -> Iterator[Message]:
        """Wait for no replay until one is answered. The request stays, and zmq connects again."""
        self._stop_watching()
        if self._connected:  # a worker that is not there has no replays either
            _LOG.warning("%s: replays are not answered: %s", self._replay_endpoint, why)
        return self._streams.give_up()

    def _ask(self) -> None:
        """Ask for the replay that is wanted, on a socket on which no earlier one can arrive."""
        number = self._streams.take_request()
        if number is None or self._replay_endpoint is None:
            return
        self._stop_watching()
        if self._replays is not None:
            self._replays.close()
        self._replays = self._socket(zmq.DEALER)
        self._refusals = self._replays.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
        self._replays.connect(self._replay_endpoint)
        self._replays.send_multipart([b"", number])
        self._deadline = time.monotonic() + _REPLAY_TIMEOUT

    def _count(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Received):
                self._health.enter(message.changes.ts)
            else:
                self._health.interrupt(message)

    def _stop_watching(self) -> None:
        if self._replays is not None and self._refusals is not None:
            self._replays.disable_monitor()
            self._refusals.close()
            self._refusals = None

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        for option, value in _OPTIONS.items():
            socket.setsockopt(option, value)
        return socket


def _frames(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """The frames that have arrived already, up to a limit."""
    for _ in range(_MOST_AT_ONCE):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
