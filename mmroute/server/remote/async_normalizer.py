"""The normalizer of a server's model, for asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Self, Unpack

from mmroute.answering.routing import Routing
from mmroute.net.remote import Remote
from mmroute.requests.request import Request, RequestFields
from mmroute.server.remote.normalizer import RemoteNormalizer, connect


class AsyncRemoteNormalizer:
    """Asks a server as `RemoteNormalizer` does, in threads of its own, and stalls no event loop.

    Attributes:
        wrapped: the normalizer that the threads share.
    """

    def __init__(self, wrapped: RemoteNormalizer) -> None:
        self.wrapped = wrapped
        # More threads than connections would only wait for one another.
        self._threads = ThreadPoolExecutor(wrapped.remote.max_connections, "mmroute-remote")

    def __repr__(self) -> str:
        return f"<AsyncRemoteNormalizer of {self.wrapped!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the threads. Requests that run are answered."""
        self._threads.shutdown(wait=False)
        self.wrapped.close()

    async def normalize(self, **fields: Unpack[RequestFields]) -> Routing:
        """The token IDs of one request; see `RemoteNormalizer.normalize`.

        A request whose task is cancelled keeps its thread until the server answers, or until the
        timeout of the `Remote`.
        """
        return await self.answer(Request.of(fields))

    async def answer(self, request: Request) -> Routing:
        """The token IDs of one request; see `normalize`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.wrapped.answer, request)


async def connect_async(model: str, remote: str | Remote) -> AsyncRemoteNormalizer:
    """Connect to a server that has loaded a model, from an event loop.

    Args:
        model: the server's name for the model.
        remote: the URL of the server, or a `Remote`.

    Raises:
        TypeError: `remote` is neither.
        ValueError: the URL is malformed.
        ModelError: as for `RemoteNormalizer`.
    """
    return AsyncRemoteNormalizer(await asyncio.to_thread(connect, model, remote))
