"""The service as an ASGI application, for other programs and for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from mmroute.server.exchange import CLIENT_HAS_GONE, Exchange
from mmroute.server.front.http import Head, Response
from mmroute.server.models import Models
from mmroute.server.service import Service
from mmroute.server.settings import ServerSettings

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_Application: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]


class _ClientHasGoneError(Exception):
    """Nobody waits for the answer."""


def create_app(
    models: Models,
    settings: ServerSettings | None = None,
    *,
    on_failure: Callable[[str], object] | None = None,
) -> _Application:
    """Make the application. It loads the models when its lifespan begins.

    ``/health`` answers 200 when they are loaded. The server that runs the application limits
    connections.

    The arguments are those of `mmroute.server.service.Service`.

    Raises:
        ValueError: the fallback's URL is malformed.
    """
    service = Service(models, settings or ServerSettings(), on_failure=on_failure)

    async def application(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await _live(service, receive, send)
        elif scope["type"] == "http":
            await respond(service, scope, receive, send)

    return application


async def _live(service: Service, receive: _Receive, send: _Send) -> None:
    await receive()
    await service.start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await service.close()
    await send({"type": "lifespan.shutdown.complete"})


async def respond(service: Service, scope: _Message, receive: _Receive, send: _Send) -> None:
    """Answer one HTTP request, which has an ASGI scope of type ``http``."""
    received = {name.lower(): value for name, value in reversed(scope["headers"])}
    query = scope["query_string"].decode("latin-1")
    exchange = service.begin(Head(scope["method"], scope["path"], query, received))
    status = CLIENT_HAS_GONE
    try:
        response = await _response(service, exchange, receive)
        headers = {
            **service.headers(exchange, response),
            "content-length": str(len(response.body)),
        }
        await send({
            "type": "http.response.start",
            "status": response.status,
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
        })  # fmt: skip
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})
        status = response.status
    except _ClientHasGoneError:
        pass
    finally:
        service.end(exchange, status)


async def _response(service: Service, exchange: Exchange, receive: _Receive) -> Response:
    refusal = service.expect(exchange)
    more = refusal is None
    try:
        async with asyncio.timeout(service.settings.request_timeout):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _ClientHasGoneError
                refusal = service.take(exchange, message.get("body", b""))
                more = refusal is None and message.get("more_body", False)
    except TimeoutError:
        return service.late(exchange)
    if refusal is not None:
        return refusal
    answer = service.answer(exchange)
    return answer if isinstance(answer, Response) else await service.wait(exchange, answer)
