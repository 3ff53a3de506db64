"""The address of a server, and the settings of connections to it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from mmroute.errors import quoted

_SCHEMES: Final = ("http", "https")
_UNIX: Final = "unix"
_KEY: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that speaks vLLM's protocol: ``mmroute serve``, or vLLM's own.

    Proxies named in the environment are not used, and redirects are not followed.

    Attributes:
        url: the server's URL: ``http://HOST:PORT`` or ``https://HOST:PORT``, with or without
            ``/v1``; or ``unix:///PATH`` for a Unix socket.
        api_key: the key that is sent as a bearer token; None for no key.
        timeout: the seconds for one request, from waiting for a free connection to the last byte.
            The time to resolve the host's name is limited by the system only.
        connect_timeout: the part of these seconds that a new connection may take.
        max_connections: the most connections at a time; further requests wait for a free one.

    >>> Remote("unix:///run/mmroute/http.sock").socket_path
    '/run/mmroute/http.sock'
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    connect_timeout: float = 1.0
    max_connections: int = 16

    def __post_init__(self) -> None:
        """Check the values."""
        _split(self.url)
        key = self.api_key
        if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):
            raise ValueError("api_key must be a text of printable ASCII characters without spaces")
        for name in ("timeout", "connect_timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, found {quoted(value)}")
        if type(self.max_connections) is not int or self.max_connections < 1:
            raise ValueError(
                f"max_connections must be at least 1, found {quoted(self.max_connections)}"
            )

    @property
    def base(self) -> str:
        """The URL before the path of a route, without a slash at its end."""
        return _split(self.url)[0]

    @property
    def socket_path(self) -> str | None:
        """The Unix socket to connect to; None for the host in the URL."""
        return _split(self.url)[1]


def _split(url: object) -> tuple[str, str | None]:
    """The base of all routes, and the path of the Unix socket."""
    if not isinstance(url, str):
        raise ValueError(f"the URL must be a text, found {quoted(url)}")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError("the URL carries credentials; give the API key on its own")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"{quoted(url)} is malformed: {error}") from error
    more = parts.query or parts.fragment
    if parts.scheme == _UNIX and not parts.netloc and parts.path.startswith("/") and not more:
        return "http://localhost", parts.path
    if parts.scheme not in _SCHEMES or not parts.hostname or more:
        raise ValueError(
            f"{quoted(url)} must be of the form http://HOST:PORT, https://HOST:PORT or unix:///PATH"
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}", None
