"""Connections with one deadline for all operations together; httpcore's is for each alone."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any

import httpcore


def left_until(deadline: float) -> float:
    """The seconds until a deadline, which is a time of `time.monotonic`."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class DeadlineStream(httpcore.NetworkStream):
    """A connection whose operations all end by one deadline."""

    def __init__(self, stream: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._left())
        return DeadlineStream(stream, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
