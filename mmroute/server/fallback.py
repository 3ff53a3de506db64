"""A client of vLLM's render server, which answers requests that have no exact answer here.

It is asked for its version, too: whether it is the engine that this server matches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import httpcore
import msgspec

from mmroute.engine import Engine
from mmroute.engines.running import ask_engine
from mmroute.errors import InexactError, Reason
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.server.api_errors import ApiError
from mmroute.server.front.http import Response
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

_LOG: Final = logging.getLogger(__name__)
_ASKED_EVERY: Final = 30.0  # seconds; a fleet may be upgraded while this server runs

_MAX_REQUESTS: Final = 64
_MAX_ANSWER: Final = 1 << 26  # bytes; answers have no tensors
_FAILURES: Final = 5  # failures in a row after which no request is sent for a while
_PAUSE: Final = 5.0  # seconds until one request is sent again
_AWAY: Final = frozenset({502, 503, 504})
_LAST_STATUS: Final = 599  # which HTTP has
_OWN_KEY_REFUSED: Final = frozenset({401, 403})
_CONNECT_TIMEOUT: Final = 2.0
_PAYLOAD: Final = "mm_payload"
_HANDED_BACK: Final = frozenset({b"content-type", b"retry-after"})


class Fallback:
    """Forwards requests to the fallback, over persistent connections.

    A request is forwarded unchanged, except that it asks for no tensors: mmroute's answers have
    none, and no router reads them. The client's API key is not forwarded. Proxies named in the
    environment are not used. After several failures no request is sent for a few seconds.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 30.0) -> None:
        try:
            remote = Remote(url, api_key=api_key)
        except ValueError as error:
            raise ValueError(f"the fallback URL: {error}") from None
        if remote.socket_path is not None:
            raise ValueError("the fallback URL must be http or https")
        self.url: Final = remote.base
        self._headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        if api_key is not None:
            self._headers.append((b"authorization", f"Bearer {api_key}".encode()))
        self._timeout = timeout
        self._pool = httpcore.AsyncConnectionPool(max_connections=_MAX_REQUESTS)
        self._requests = 0
        self._failures = 0
        self._asked_again = 0.0

    async def ask(
        self,
        path: str,
        body: bytes,
        request_id: bytes | None,
        reason: Reason,
        keep: Callable[[int], object],
    ) -> Response:
        """Forward a request, and return the fallback's response, whatever its status.

        It has the headers that the client gets.
        """
        self._check_may_ask(reason)
        if path.partition("?")[0].endswith("/render"):
            body = _without_tensors(body)
        headers = [*self._headers]
        if request_id is not None:
            headers.append((b"x-request-id", request_id))
        self._requests += 1
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._ask(f"{self.url}{path}", headers, body, reason, keep)
        except TimeoutError:
            raise self._failed(f"did not answer within {self._timeout:g} s", reason) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise self._failed(f"failed: {type(error).__name__}", reason) from error
        finally:
            self._requests -= 1
        if answer.status in _AWAY:
            self._count_failure()
        else:
            self._failures = 0
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def _ask(
        self,
        url: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        reason: Reason,
        keep: Callable[[int], object],
    ) -> Response:
        timeouts = dict.fromkeys(("read", "write", "pool"), self._timeout)
        async with self._pool.stream(
            "POST",
            url,
            headers=headers,
            content=body,
            extensions={"timeout": {**timeouts, "connect": _CONNECT_TIMEOUT}},
        ) as response:
            if response.status in _OWN_KEY_REFUSED:  # the key is this server's
                raise self._failed("does not take the API key of this server", reason)
            if response.status > _LAST_STATUS:
                raise self._failed(f"answered with the status {response.status}", reason)
            chunks, size = [], 0
            async for chunk in response.aiter_stream():
                size += len(chunk)
                keep(len(chunk))
                if size > _MAX_ANSWER:
                    raise self._failed(f"answered with more than {_MAX_ANSWER} bytes", reason)
                chunks.append(chunk)
            handed_back = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
                if name.lower() in _HANDED_BACK
            }
            return Response(response.status, b"".join(chunks), handed_back)

    def _check_may_ask(self, reason: Reason) -> None:
        if self._requests >= _MAX_REQUESTS:
            raise _no_answer(f"has {_MAX_REQUESTS} others to answer", reason, limit="fallback")
        if self._failures >= _FAILURES:
            now = time.monotonic()
            if now < self._asked_again:
                raise _no_answer("failed repeatedly, and is left alone for a moment", reason)
            self._asked_again = now + _PAUSE

    def _failed(self, what: str, reason: Reason) -> ApiError:
        self._count_failure()
        return _no_answer(what, reason)

    def _count_failure(self) -> None:
        self._failures += 1
        self._asked_again = time.monotonic() + _PAUSE


def _no_answer(what: str, reason: Reason, limit: str | None = None) -> ApiError:
    return ApiError(
        HTTPStatus.BAD_GATEWAY,
        "BadGatewayError",
        f"There is no exact answer ({reason.value}), and the fallback {what}.",
        param=reason.value,
        reason=reason,
        limit=limit,
    )


def _without_tensors(body: bytes) -> bytes:
    """A body that asks for no tensors; each other field stays as the client wrote it.

    The key must not stand in it twice: what a server makes of that is left open.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = {}  # no strict JSON, which a server in Python reads all the same, the last key too
    if _PAYLOAD in fields:
        return msgspec.json.encode({**fields, _PAYLOAD: "none"})
    return body.rstrip()[:-1] + b',"mm_payload":"none"}'


async def watch_fallback(
    settings: ServerSettings,
    matched: Engine,
    metrics: Metrics,
    on_failure: Callable[[str], object] | None,
) -> None:
    """Ask the fallback for its version every 30 seconds, and warn if its rules are others."""
    if settings.fallback_url is None:
        return
    transport = Transport(
        Remote(settings.fallback_url, settings.fallback_api_key, settings.fallback_timeout)
    )
    said = None
    with contextlib.closing(transport):
        while True:
            with contextlib.suppress(InexactError):
                running = await asyncio.to_thread(ask_engine, transport)
                if str(running) != said:
                    said = str(running)
                    warning = running.warning(matched)
                    metrics.fallback_engine(running, matches=not warning)
                    if warning:
                        _LOG.warning("fallback of other rules", extra={"fields": {"why": warning}})
                        if settings.strict and on_failure is not None:
                            on_failure(f"the fallback: {warning}")
            await asyncio.sleep(_ASKED_EVERY)
