"""Fetches the files behind links, within the limits of `ImageLinks`."""

from __future__ import annotations

import functools
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import BinaryIO, Final, NamedTuple, cast
from urllib.parse import SplitResult, urljoin, urlsplit

import httpcore

from mmroute.errors import InexactError, Reason, quoted
from mmroute.net.deadlines import DeadlineStream, left_until
from mmroute.net.links import ImageLinks
from mmroute.net.transport import FairSemaphore

FIRST_PART: Final = 1 << 18
"""The number of bytes that are fetched first."""


class RangeFile(io.RawIOBase):
    """A seekable file that holds one part of the file behind a link, and fetches others."""

    def __init__(self, first: bytes, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._part = first
        self._start = 0
        self._size = size
        self._fetch = fetch
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(begin + offset, 0)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, fewer only at the end of the file."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        if not (self._start <= self._at and end <= self._start + len(self._part)):
            self._hold(end)
        data = self._part[self._at - self._start : end - self._start]
        self._at = end
        return data

    def _hold(self, end: int) -> None:
        """Fetch the missing bytes up to an offset, and more if reading continues the part."""
        behind = self._start + len(self._part)
        if self._start <= self._at <= behind:
            until = min(max(end, behind + len(self._part)), self._size)
            self._part += self._fetch(behind, until)
        else:
            until = min(max(end, self._at + FIRST_PART), self._size)
            self._part, self._start = self._fetch(self._at, until), self._at


_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_REDIRECTS: Final = 5
_SCHEMES: Final = frozenset({"http", "https"})
_OK: Final = 200
_PARTIAL: Final = 206
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CONTENT_RANGE: Final = re.compile(rb"bytes (\d+)-(\d+)/(\d+)")
# The addresses that are routed in public, and the networks among them that relay to others.
_PUBLIC_V6: Final = ipaddress.ip_network("2000::/3")
_RELAYS: Final = tuple(map(ipaddress.ip_network, ("2001::/32", "2002::/16", "192.88.99.0/24")))
_MAX_PARTS: Final = 16
_MAX_WAITING: Final = 32  # the most name resolutions that run on after their request gave up


class _Part(NamedTuple):
    """The part of a file that a server sent."""

    data: bytes
    size: int  # the size of the complete file, in bytes
    tag: bytes | None  # the entity tag, by which the server names this version of the file

    @property
    def is_complete(self) -> bool:
        """Whether the part is the complete file."""
        return len(self.data) == self.size


class LinkFetcher:
    """Fetches the files behind the links of one request, within its time and its bytes."""

    def __init__(self, links: ImageLinks) -> None:
        self._links = links
        self._deadline = time.monotonic() + links.timeout
        self._left = links.max_bytes

    def may_follow(self, url: str) -> bool:
        """Whether a link leads to an allowed host."""
        return _allowed(_parts(url), self._links)

    def fetch(self, url: str) -> bytes:
        """Fetch the complete file behind a link."""
        part = self._fetch(url, "image/*")
        if not part.is_complete:
            raise _failed(url, "the server sent only a part of the file, or the file is too large")
        return part.data

    def open(self, url: str, *, complete: bool, accept: str) -> BinaryIO:
        """Open the file behind a link, to be read in parts if the server sends parts."""
        first = self._fetch(url, accept, 0, FIRST_PART)
        if first.is_complete:
            return io.BytesIO(first.data)

        parts = iter(range(_MAX_PARTS))

        def fetch_part(start: int, end: int) -> bytes:
            if next(parts, None) is None:
                raise _failed(url, f"the header of the file is in more than {_MAX_PARTS} parts")
            part = self._fetch(url, accept, start, end)
            if (part.size, part.tag, len(part.data)) != (first.size, first.tag, end - start):
                raise _failed(url, "the file changed meanwhile, or the server sent too few bytes")
            return part.data

        if complete and first.size - len(first.data) < self._left:
            return io.BytesIO(first.data + fetch_part(len(first.data), first.size))
        return cast("BinaryIO", RangeFile(first.data, first.size, fetch_part))

    def _fetch(self, url: str, accept: str, start: int = 0, end: int | None = None) -> _Part:
        """Request the bytes of a file from `start` up to `end`, or the complete file."""
        networks = tuple(map(ipaddress.ip_network, self._links.networks))
        backend = _CheckedBackend(networks, self._deadline)
        try:
            with httpcore.ConnectionPool(
                ssl_context=_ssl_context(), network_backend=backend, max_connections=1
            ) as pool:
                # The response to a range request has the file's size before its first byte.
                last = (end or self._left) - 1
                headers = [("Accept", accept), ("Range", f"bytes={start}-{last}")]
                return self._follow(pool, url, headers, start, complete=end is None)
        except (httpcore.TimeoutException, TimeoutError) as error:
            raise _failed(
                url, f"no complete response within {self._links.timeout} seconds (`timeout`)"
            ) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError, ValueError) as error:
            raise _failed(url, f"{type(error).__name__}: {error}") from error

    def _follow(
        self,
        pool: httpcore.ConnectionPool,
        url: str,
        own: list[tuple[str, str]],
        start: int,
        *,
        complete: bool,
    ) -> _Part:
        at = url
        for _ in range(_MAX_REDIRECTS + 1):
            target, headers = self._request(at)
            with pool.stream("GET", target, headers=[*headers, *own]) as response:
                location = _header(response, b"location")
                if response.status not in _REDIRECTS or location is None:
                    return self._read(url, response, start, complete=complete)
                at = urljoin(at, location.decode("latin-1"))
        raise _failed(url, f"more than {_MAX_REDIRECTS} redirects")

    def _read(self, url: str, response: httpcore.Response, start: int, *, complete: bool) -> _Part:
        if response.status not in (_OK, _PARTIAL) or (start and response.status == _OK):
            raise _failed(url, f"the server responded with status {response.status}")
        if _header(response, b"content-encoding") not in (None, b"identity"):
            raise _failed(url, "the server compressed the file, although the request forbids it")
        tag, size = _header(response, b"etag"), None
        if response.status == _PARTIAL:
            sent = _CONTENT_RANGE.fullmatch(_header(response, b"content-range") or b"")
            if sent is None or int(sent[1]) != start:
                raise _failed(url, "the server sent another part of the file than was requested")
            size = int(sent[3])
            if complete and int(sent[2]) + 1 != size:
                return _Part(b"", size, tag)
        data = b"".join(self._limited(url, response))
        return _Part(data, len(data) if size is None else size, tag)

    def _request(self, url: str) -> tuple[httpcore.URL, list[tuple[str, str]]]:
        parts = _parts(url)
        if not _allowed(parts, self._links):
            raise _refused(
                url, f"its host {parts.hostname!r} is not among the allowed ones (`hosts`)"
            )
        path = parts.path or "/"
        target = httpcore.URL(
            scheme=parts.scheme.encode(),
            host=(parts.hostname or "").encode(),
            port=parts.port,
            target=(f"{path}?{parts.query}" if parts.query else path).encode(),
        )
        return target, [
            ("Host", parts.netloc),
            ("User-Agent", "mmroute"),
            ("Accept-Encoding", "identity"),
        ]

    def _limited(self, url: str, response: httpcore.Response) -> Iterator[bytes]:
        for chunk in response.iter_stream():
            self._left -= len(chunk)
            if self._left <= 0:
                raise _failed(
                    url,
                    f"the files of the request have {self._links.max_bytes} bytes or more "
                    "(`max_bytes`)",
                )
            yield chunk


def _parts(url: str) -> SplitResult:
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
    return parts


def _allowed(parts: SplitResult, links: ImageLinks) -> bool:
    host = (parts.hostname or "").rstrip(".")
    return any(fnmatchcase(host, pattern.lower()) for pattern in links.hosts)


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects only to addresses that it has checked, and only until the deadline."""

    def __init__(self, networks: tuple[_IpNetwork, ...], deadline: float) -> None:
        self._networks = networks
        self._deadline = deadline
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        error: Exception = OSError(f"{host} has no address")
        for address in _resolve(host, port, left_until(self._deadline)):
            self._check(host, address)
            try:
                stream = self._backend.connect_tcp(
                    address, port, left_until(self._deadline), local_address, socket_options
                )
            except httpcore.NetworkError as failed:
                error = failed
                continue
            try:
                self._check(host, stream.get_extra_info("server_addr")[0])
            except InexactError:
                stream.close()
                raise
            return DeadlineStream(stream, functools.partial(left_until, self._deadline))
        raise error

    def _check(self, host: str, text: str) -> None:
        address = ipaddress.ip_address(text.partition("%")[0])
        if any(address in network for network in self._networks) or _is_public(address):
            return
        raise InexactError(
            Reason.IMAGE_LINK_REFUSED,
            f"the host {host!r} has no public address; if images may come from there, allow its "
            "network (`networks`)",
        )


_waiting: Final = FairSemaphore(_MAX_WAITING)


def _resolve(host: str, port: int, timeout: float) -> list[str]:
    """The addresses of a host. The system's resolver takes no timeout, so it runs in a thread."""
    addresses: list[str] = []
    errors: list[OSError | UnicodeError] = []

    def run() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.extend(str(info[4][0]) for info in infos)
        except (OSError, UnicodeError) as error:
            errors.append(error)
        finally:
            _waiting.release()

    if not _waiting.acquire(timeout):
        raise TimeoutError(host)
    thread = threading.Thread(target=run, daemon=True, name="mmroute-resolve")
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise TimeoutError(host)
    if errors:
        raise OSError(f"{host} cannot be resolved: {errors[0]}")
    return addresses


def _is_public(address: _IpAddress) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return _is_public(mapped)
    routed = isinstance(address, ipaddress.IPv4Address) or address in _PUBLIC_V6
    relayed = any(address in network for network in _RELAYS)
    return routed and not relayed and address.is_global and not address.is_multicast


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


def _header(response: httpcore.Response, name: bytes) -> bytes | None:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[0] if values else None


def _refused(url: str, why: str) -> InexactError:
    return InexactError(Reason.IMAGE_LINK_REFUSED, f"the link {quoted(url)} is not followed: {why}")


def _failed(url: str, why: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_LINK_FAILED, f"the file at {quoted(url)} was not fetched: {why}"
    )
