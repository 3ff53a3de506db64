"""Fetching a file from a link, within the limits of `ImageLinks`."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpcore

from mmroute.errors import InexactError, Reason, shown
from mmroute.images.links import ImageLinks

__all__ = ["check_url", "fetch"]

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_REDIRECTS: Final = 5
_SCHEMES: Final = frozenset({"http", "https"})
_OK: Final = 200
_PARTIAL: Final = 206
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CONTENT_RANGE: Final = re.compile(rb"bytes 0-(\d+)/(\d+|\*)")
# Addresses inside which another address travels: what they lead to cannot be told from them.
_TUNNELS: Final = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48")))


def fetch(
    url: str, links: ImageLinks, deadline: float, *, first_bytes: int | None = None
) -> tuple[bytes, bool]:
    """A file; or its beginning, if that is enough and the server can send it alone.

    Args:
        url: where it is.
        links: the limits.
        deadline: by `time.monotonic`.
        first_bytes: how much of it to ask for; None for all.

    Returns:
        The bytes, and whether they are the whole file.

    Raises:
        InexactError: `image_link_refused`, `image_link_failed`.
    """
    headers = [("Accept", "image/*"), ("Accept-Encoding", "identity")]
    if first_bytes is not None:
        headers.append(("Range", f"bytes=0-{first_bytes - 1}"))
    networks = tuple(map(ipaddress.ip_network, links.networks))
    backend = _CheckedBackend(networks, deadline)
    try:
        with httpcore.ConnectionPool(
            ssl_context=_ssl_context(), network_backend=backend, max_connections=1
        ) as pool:
            return _follow(pool, url, links, headers)
    except (httpcore.TimeoutException, TimeoutError) as error:
        raise _failed(url, f"no whole answer within {links.timeout} seconds") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError, ValueError) as error:
        raise _failed(url, f"{type(error).__name__}: {error}") from error


def check_url(url: str, links: ImageLinks) -> str:
    """Check that a link may be followed, and return its host and port as they stand in it.

    Raises:
        InexactError: `image_link_refused`.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
        url.encode("ascii")
    except ValueError as error:
        raise _refused(url, f"it is malformed ({error})") from error
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise _refused(url, "only http and https links with a host are followed")
    if "@" in parts.netloc:
        raise _refused(url, "it carries credentials")
    host = parts.hostname.rstrip(".")
    if not any(fnmatchcase(host, pattern.lower()) for pattern in links.hosts):
        raise _refused(url, f"its host {host!r} is not among the allowed ones")
    return parts.netloc


def _follow(
    pool: httpcore.ConnectionPool, url: str, links: ImageLinks, headers: list[tuple[str, str]]
) -> tuple[bytes, bool]:
    at = url
    for _ in range(_MAX_REDIRECTS + 1):
        host = ("Host", check_url(at, links))
        with pool.stream("GET", httpcore.URL(at), headers=[host, *headers]) as response:
            target = _header(response, b"location")
            if response.status not in _REDIRECTS or target is None:
                complete = _is_complete(url, response)
                return b"".join(_limited(url, response, links.max_bytes)), complete
            at = urljoin(at, target.decode("latin-1"))
    raise _failed(url, f"more than {_MAX_REDIRECTS} redirects")


def _is_complete(url: str, response: httpcore.Response) -> bool:
    if response.status not in (_OK, _PARTIAL):
        raise _failed(url, f"the server answered with status {response.status}")
    if _header(response, b"content-encoding") not in (None, b"identity"):
        raise _failed(url, "the server compressed the file, which it was asked not to")
    if response.status == _OK:
        return True
    sent = _CONTENT_RANGE.fullmatch(_header(response, b"content-range") or b"")
    if sent is None:
        raise _failed(url, "the server sent another part of the file than was asked for")
    return sent[2] != b"*" and int(sent[1]) + 1 == int(sent[2])


def _limited(url: str, response: httpcore.Response, max_bytes: int) -> Iterator[bytes]:
    left = max_bytes
    for chunk in response.iter_stream():
        left -= len(chunk)
        if left < 0:
            raise _failed(url, f"the file has more than {max_bytes} bytes")
        yield chunk


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to checked addresses, and to nothing else, until the deadline."""

    def __init__(self, networks: tuple[_IpNetwork, ...], deadline: float) -> None:
        self._networks = networks
        self._deadline = deadline
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline decides
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        error: Exception = OSError(f"{host} has no address")
        for address in _resolve(host, port, _left(self._deadline)):
            self._check(host, address)
            try:
                stream = self._backend.connect_tcp(
                    address, port, _left(self._deadline), local_address, socket_options
                )
            except httpcore.NetworkError as failed:
                error = failed
                continue
            self._check(host, stream.get_extra_info("server_addr")[0])
            return _DeadlineStream(stream, self._deadline)
        raise error

    def _check(self, host: str, text: str) -> None:
        address = ipaddress.ip_address(text.partition("%")[0])
        if any(address in network for network in self._networks) or _is_public(address):
            return
        raise InexactError(
            Reason.IMAGE_LINK_REFUSED,
            f"the host {host!r} has the address {address}, which is not a public one",
        )


class _DeadlineStream(httpcore.NetworkStream):
    """A connection on which no operation outlasts the deadline, and so no sequence of them."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline)
        stream = self._stream.start_tls(ssl_context, server_hostname, left)
        return _DeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - as in httpcore
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int, timeout: float) -> list[str]:
    """The addresses of a host. The system's resolver takes no timeout, so it runs in a thread."""
    found: list[str] = []
    errors: list[OSError | UnicodeError] = []

    def run() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(str(info[4][0]) for info in infos)
        except (OSError, UnicodeError) as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="mmroute-resolve")
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise TimeoutError(host)
    if errors:
        raise OSError(f"{host} cannot be resolved: {errors[0]}")
    return found


def _is_public(address: _IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _is_public(address.ipv4_mapped)
        if address.sixtofour is not None or address.teredo is not None:
            return False
    tunnelled = any(address in network for network in _TUNNELS)
    return address.is_global and not address.is_multicast and not tunnelled


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


def _header(response: httpcore.Response, name: bytes) -> bytes | None:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[0] if values else None


def _refused(url: str, why: str) -> InexactError:
    return InexactError(Reason.IMAGE_LINK_REFUSED, f"the link {shown(url)} is not followed: {why}")


def _failed(url: str, why: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_LINK_FAILED, f"the image at {shown(url)} was not fetched: {why}"
    )
