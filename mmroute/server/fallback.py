"""A real vLLM render, asked where mmroute has no exact answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import httpcore

from mmroute.errors import Reason
from mmroute.remote.settings import Remote
from mmroute.server.errors import ApiError

__all__ = ["Fallback", "Upstream"]

_MAX_CONNECTIONS: Final = 64
_MAX_ANSWER: Final = 1 << 28  # tensors of many images; one 3000x2000 image has 48 MB
_CONNECT_TIMEOUT: Final = 2.0
_HANDED_BACK: Final = frozenset({b"content-type", b"retry-after"})


@dataclass(frozen=True, slots=True)
class Upstream:
    """What the fallback answered.

    Attributes:
        status: of its response.
        body: as it was sent.
        headers: those that are handed back.
    """

    status: int
    body: bytes = field(repr=False)
    headers: dict[str, str]


class _TooMuchError(Exception):
    """An answer is larger than any that is handed back."""


class Fallback:
    """Hands requests on, as they were sent, over connections that are kept.

    The client's own API key is not handed on, nor is a proxy of the environment used.

    Args:
        url: of the server, with or without ``/v1``.
        api_key: sent as a bearer token.
        timeout: seconds for the whole of one request.

    Attributes:
        url: of the server, without ``/v1``.

    Raises:
        ValueError: it is no http or https URL.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 30.0) -> None:
        try:
            remote = Remote(url, api_key=api_key)
        except ValueError as error:
            raise ValueError(f"the fallback URL: {error}") from None
        if remote.socket_path is not None:
            raise ValueError("the fallback URL must be http or https")
        self.url: Final = remote.base
        self._api_key = api_key
        self._timeout = timeout
        self._pool = httpcore.AsyncConnectionPool(max_connections=_MAX_CONNECTIONS)

    async def ask(
        self, path: str, body: bytes, request_id: bytes | None, reason: Reason
    ) -> Upstream:
        """The fallback's answer, whatever its status.

        Raises:
            ApiError: 502: there is none.
        """
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        if self._api_key is not None:
            headers.append((b"authorization", f"Bearer {self._api_key}".encode()))
        if request_id is not None:
            headers.append((b"x-request-id", request_id))
        try:
            async with asyncio.timeout(self._timeout):
                return await self._ask(f"{self.url}{path}", headers, body)
        except TimeoutError:
            raise self._failed(f"did not answer within {self._timeout:g} s", reason) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise self._failed(f"failed: {type(error).__name__}", reason) from error
        except _TooMuchError:
            raise self._failed(f"answered with more than {_MAX_ANSWER} bytes", reason) from None

    async def close(self) -> None:
        """Close its connections."""
        await self._pool.aclose()

    async def _ask(self, url: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Upstream:
        timeouts = dict.fromkeys(("read", "write", "pool"), self._timeout)
        async with self._pool.stream(
            "POST",
            url,
            headers=headers,
            content=body,
            extensions={"timeout": {**timeouts, "connect": _CONNECT_TIMEOUT}},
        ) as response:
            chunks, size = [], 0
            async for chunk in response.aiter_stream():
                size += len(chunk)
                if size > _MAX_ANSWER:
                    raise _TooMuchError
                chunks.append(chunk)
            handed_back = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
                if name.lower() in _HANDED_BACK
            }
            return Upstream(response.status, b"".join(chunks), handed_back)

    def _failed(self, what: str, reason: Reason) -> ApiError:
        return ApiError(
            HTTPStatus.BAD_GATEWAY,
            "BadGatewayError",
            f"There is no exact answer ({reason.value}), and the fallback {what}.",
            param=reason.value,
            reason=reason,
        )
