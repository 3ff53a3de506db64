"""A publisher of KV events as vLLM's: its sockets, sequence numbers and replays."""

from __future__ import annotations

import threading

import zmq

END = (-1).to_bytes(8, "big", signed=True)


class Worker:
    """The sockets of a publisher, and its thread that answers replays.

    Args:
        before: a worker that was closed, whose place this one takes.
    """

    endpoint: str
    replay_endpoint: str

    def __init__(self, before: Worker | None = None) -> None:
        self.context = zmq.Context()
        self.events = self.context.socket(zmq.XPUB)  # as PUB, and tells of subscribers
        self.replays = self.context.socket(zmq.ROUTER)
        ends = (before.endpoint, before.replay_endpoint) if before else ("tcp://127.0.0.1:*",) * 2
        for socket, end in zip((self.events, self.replays), ends, strict=True):
            socket.bind(end)
        self.endpoint = self.events.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = self.replays.getsockopt_string(zmq.LAST_ENDPOINT)
        self.sent: list[list[bytes]] = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.answer)
        self.thread.start()

    def answer(self) -> None:
        while not self.ending.is_set():
            if self.replays.poll(20):
                client, empty, number = self.replays.recv_multipart()
                for frames in (*(f for f in list(self.sent) if f[1] >= number), [b"", END, b""]):
                    self.replays.send_multipart([client, empty, *frames])

    def close(self) -> None:
        self.ending.set()
        self.thread.join()
        self.context.destroy(linger=0)

    def publish(self, *payloads: bytes, heard: bool = True) -> None:
        for payload in payloads:
            frames = [b"kv@w", len(self.sent).to_bytes(8, "big"), payload]
            self.sent.append(frames)
            if heard:
                self.events.send_multipart(frames)
