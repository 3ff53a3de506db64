"""The service as an ASGI application: inside of another program, and in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from mmroute.engines.vllm.api import ApiError
from mmroute.server.exchange import CLIENT_HAS_GONE, Exchange
from mmroute.server.front.drain import Drain
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
    drain: Drain | None = None,
    on_failure: Callable[[str], object] | None = None,
) -> _Application:
    """The application. Models are loaded when its lifespan begins, and ``/health`` says when.

    The limits of connections are those of the server that runs it.

    Args:
        models: the models to serve.
        settings: limits and choices.
        drain: set when the server is about to stop.
        on_failure: is called with a message where a model cannot be loaded; nothing else is done.

    Raises:
        ValueError: the fallback's URL is malformed.
    """
    service = Service(models, settings or ServerSettings(), drain=drain, on_failure=on_failure)

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
    """Answer one HTTP request, of an ASGI scope of type ``http``."""
    headers = {name.lower(): value for name, value in reversed(scope["headers"])}
    query = scope["query_string"].decode("latin-1")
    exchange = service.begin(Head(scope["method"], scope["path"], query, headers))
    status = CLIENT_HAS_GONE
    try:
        response = await _response(service, exchange, receive)
        found = {
            **service.headers(exchange, response),
            "content-length": str(len(response.body)),
        }
        await send({
            "type": "http.response.start",
            "status": response.status,
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in found.items()],
        })  # fmt: skip
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})
        status = response.status
    except _ClientHasGoneError:
        pass
    finally:
        service.end(exchange, status)


async def _response(service: Service, exchange: Exchange, receive: _Receive) -> Response:
    try:
        exchange.expect()
        async with asyncio.timeout(service.settings.request_timeout):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _ClientHasGoneError
                exchange.take(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        return service.late(exchange)
    except ApiError as error:
        return service.refuse(exchange, error)
    answer = service.answer(exchange)
    return answer if isinstance(answer, Response) else await service.wait(exchange, answer)
