"""The service as an ASGI application, for a server that runs it and for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from mmroute.server.api_errors import ApiError
from mmroute.server.errors import late_body
from mmroute.server.exchange import CLIENT_HAS_GONE, Deferred, Exchange
from mmroute.server.front.http import Head, Response
from mmroute.server.models import Models
from mmroute.server.service import Service
from mmroute.server.settings import ServerSettings

_LARGE: Final = 1 << 16  # bytes of an answer that a client may take long to read
_LINGER: Final = 5.0  # seconds for which the rest of a refused body is read

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
    return application(Service(models, settings or ServerSettings(), on_failure=on_failure))


def application(service: Service) -> _Application:
    """The application of a service."""

    async def answer(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await service.start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await service.close()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await respond(service, scope, receive, send)

    return answer


async def respond(service: Service, scope: _Message, receive: _Receive, send: _Send) -> None:
    """Answer one HTTP request, which has an ASGI scope of type ``http``."""
    received = {name: value.strip() for name, value in reversed(scope["headers"])}
    query = scope["query_string"].decode("latin-1")
    exchange = service.begin(Head(scope["method"], scope["path"], query, received))
    status, is_early = CLIENT_HAS_GONE, False
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
        is_early, is_large = not exchange.complete, len(body) > _LARGE
        if is_large:
            exchange.keep(len(body))
        await send({
            "type": "http.response.body", "body": body, "more_body": is_early or is_large
        })  # fmt: skip
        if is_large and not is_early:  # this waits until the client has taken most of it
            await send({"type": "http.response.body", "body": b""})
        status = response.status
    except _ClientHasGoneError:
        pass
    finally:
        service.end(exchange, status)
    if is_early:
        await _read_on(receive)
        await send({"type": "http.response.body", "body": b""})


async def _response(service: Service, exchange: Exchange, receive: _Receive) -> Response:
    seconds = service.settings.request_timeout
    try:
        exchange.expect()
        async with asyncio.timeout(seconds):
            while not exchange.complete:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _ClientHasGoneError
                exchange.complete = not message.get("more_body", False)
                exchange.take(message.get("body", b""))
    except TimeoutError:
        return service.refuse(exchange, late_body(seconds))
    except ApiError as error:
        return service.refuse(exchange, error)
    answer = service.answer(exchange)
    if isinstance(answer, Response):
        return answer
    return await _unless_gone(service, exchange, answer, receive)


async def _unless_gone(
    service: Service, exchange: Exchange, answer: Deferred, receive: _Receive
) -> Response:
    """The answer, whose work is cancelled if the client closes its connection."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work = asyncio.ensure_future(service.wait(exchange, answer))
    waiting = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise _ClientHasGoneError
        return work.result()
    finally:
        work.cancel()
        waiting.cancel()


async def _read_on(receive: _Receive) -> None:
    """Read the rest of a refused body. If it was not, a reset would destroy the answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body"):
                pass
