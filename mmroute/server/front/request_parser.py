"""HTTP/1.1 requests out of the bytes of a connection. Knows neither sockets nor what is answered.

llhttp (httptools) reads heads. Where a message ends is decided here: llhttp would go on to the next
one in the same call, and a connection takes one request at a time.

Source: RFC 9110 (HTTP semantics) and RFC 9112 (HTTP/1.1); sections are named where a rule is.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import httptools

from mmroute.server.front.http import Head

_END: Final = b"\r\n\r\n"
_MOST_FIELDS: Final = 256
_DIGITS: Final = 20  # of a length of 64 bits; llhttp lets nothing but zeros pass before them
_MOST_TRAILERS: Final = 4096  # bytes
# Section 3.2.2 of RFC 3986, as characters.
_IN_HOST: Final = (string.ascii_letters + string.digits + "-._~!$&'()*+,;=%:[]").encode()
# Section 7.1 of RFC 9112. The line break behind the data of a chunk is read with the next size.
_SIZE: Final = rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]{0,4096})?"
_FIRST_SIZE: Final = re.compile(_SIZE + rb"\r\n")
_NEXT_SIZE: Final = re.compile(rb"\r\n" + _SIZE + rb"\r\n")
_NAME, _VALUE = rb"[!#$%&'*+\-.^`|~\w]+", rb"[\t\x20-\x7e\x80-\xff]*"
_FIELDS: Final = rb"(?:%b:%b\r\n)*" % (_NAME, _VALUE)
_TRAILERS: Final = re.compile(_FIELDS + rb"\r\n")
# What may become one of these when more arrives.
_BEGUN: Final = {
    _FIRST_SIZE: re.compile(rb"(?:%b)?\r?" % _SIZE),
    _NEXT_SIZE: re.compile(rb"\r?|\r\n(?:%b)?\r?" % _SIZE),
    _TRAILERS: re.compile(rb"%b(?:%b(?::%b)?)?\r?" % (_FIELDS, _NAME, _VALUE)),
}


@dataclass(eq=False)
class MalformedError(Exception):
    """The bytes are no request that can be answered; nothing behind them can be read.

    Attributes:
        status: of the response.
    """

    status: HTTPStatus


class RequestParser:
    """Gives one request after the other: `head`, then `body` until it is `complete`.

    Which bytes came together makes no difference to what it gives, but for where a body is parted.

    Args:
        head_bytes: most of one head, from its first byte to its empty line.

    Attributes:
        unread: what was received and not given yet.
        begun: whether there is a part of a head.
        complete: whether the body of the last head was given whole.
        keep_alive: whether the sender of the last head may send another one.
        expects_continue: whether that sender waits for a 100 before it sends the body.
    """

    def __init__(self, head_bytes: int) -> None:
        self.unread = b""
        self.begun = self.complete = self.keep_alive = self.expects_continue = False
        self._head_bytes = head_bytes
        # Of a head.
        self._llhttp: httptools.HttpRequestParser
        self._in_step = False  # whether llhttp knows where the last request ends
        self._read_all = False
        self._size = 0
        self._last = b""  # what may be the beginning of its end
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        # Of a body.
        self._left = 0  # bytes of it, or of the chunk, that were not given
        self._size_of: re.Pattern[bytes] | None = None  # the next chunk; None if there are none
        self._in_trailers = False

    @property
    def is_chunked(self) -> bool:
        """Whether nobody knows how long the body of the last head is."""
        return self._size_of is not None

    def receive(self, data: memoryview) -> None:
        """Take what has arrived."""
        self.unread += data

    def head(self) -> Head | None:
        """The next head; None if not all of it has arrived.

        Raises:
            MalformedError: 400, 414, 431, 501 or 505.
        """
        # RFC 9112, section 2.2: empty lines may stand before a request.
        data = self.unread if self._size else self.unread.lstrip(b"\r\n")
        if not data:
            self.unread = b""
            return None
        if not self._size:
            self._begin()
        last, room = self._last, self._head_bytes - self._size
        found = (last + data).find(_END)
        end = len(data) if found < 0 else found + len(_END) - len(last)
        read = data[: min(end, room)]
        self._read(read)
        if end > room:
            if len(self._target) > self._head_bytes // 2:  # RFC 9112, section 3
                raise MalformedError(HTTPStatus.REQUEST_URI_TOO_LONG)
            raise MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self.unread = data[end:]
        if self._read_all:
            self._size = 0
            self.begun = self._read_all = False
            return self._checked()
        if found >= 0:  # it goes on for llhttp: the preface of HTTP/2
            raise MalformedError(HTTPStatus.BAD_REQUEST)
        self._size += end
        self._last = (last + read[-3:])[-3:]
        return None

    def body(self) -> bytes:
        """What has arrived of the body, without its framing.

        Raises:
            MalformedError: 400, 431.
        """
        if self._size_of is not None:
            return self._chunks(self._size_of)
        part = self.unread[: self._left]
        self.unread = self.unread[self._left :]
        self._left -= len(part)
        self.complete = not self._left
        if self._in_step:
            self._llhttp.feed_data(part)
        return part

    # httptools calls these.

    def on_message_begin(self) -> None:
        self.begun = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._read_all = True
        self.keep_alive = self._llhttp.should_keep_alive()  # until there is no body to come

    def _begin(self) -> None:
        if not self._in_step:
            self._llhttp = httptools.HttpRequestParser(self)
            self._in_step = True
        self._target = self._last = b""
        self._fields = []

    def _read(self, data: bytes) -> None:
        """Let llhttp read some of a head."""
        status = None
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._in_step = False  # no other protocol is spoken (RFC 9110, section 7.8)
        except httptools.HttpParserError:
            status = HTTPStatus.BAD_REQUEST
        if len(self._fields) > _MOST_FIELDS:  # each takes many times its bytes
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if status is not None:
            raise MalformedError(status)

    def _checked(self) -> Head:
        """The head that was read, whose framing is known from now on."""
        llhttp, fields = self._llhttp, self._fields
        method, version = llhttp.get_method(), llhttp.get_http_version()
        if version not in ("1.0", "1.1"):
            raise MalformedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        current = version == "1.1"
        headers = {name: value.rstrip(b" \t") for name, value in reversed(fields)}
        repeated = len(headers) < len(fields)
        host = headers.get(b"host", b"" if not current else None)
        if (
            host is None
            or host.translate(None, _IN_HOST)
            or (repeated and _count(fields, b"host") > 1)
        ):
            raise MalformedError(HTTPStatus.BAD_REQUEST)  # RFC 9112, section 3.2
        length = headers.get(b"content-length")
        self._left = int(length[-_DIGITS:]) if length else 0
        self._size_of, self._in_trailers = None, False
        coding = headers.get(b"transfer-encoding")
        if coding is not None:  # RFC 9112, section 6.1
            if not current:
                raise MalformedError(HTTPStatus.BAD_REQUEST)
            if coding.lower() != b"chunked" or (
                repeated and _count(fields, b"transfer-encoding") > 1
            ):
                raise MalformedError(HTTPStatus.NOT_IMPLEMENTED)
            self._size_of, self._in_step = _FIRST_SIZE, False
        self.complete = not self._left and self._size_of is None
        tunnel = method == b"CONNECT"  # what follows its head is none of HTTP
        self.keep_alive &= current and not tunnel
        expected = headers.get(b"expect") if current else None
        self.expects_continue = expected is not None and expected.lower() == b"100-continue"
        path, query = _path_and_query(self._target)
        return Head(method.decode(), path, query, headers)

    def _chunks(self, size_of: re.Pattern[bytes]) -> bytes:
        """As `body`, of chunks.

        Args:
            size_of: the next chunk.
        """
        data, at, left = self.unread, 0, self._left
        parts = []
        while not self._in_trailers:
            if left:
                part = data[at : at + left]
                parts.append(part)
                at += len(part)
                left -= len(part)
                if left:
                    break
            size = size_of.match(data, at)
            if size is None:
                _may_become(size_of, data, at)
                break
            at, left, size_of = size.end(), int(size[1], 16), _NEXT_SIZE
            self._in_trailers = not left
        if self._in_trailers:  # which are passed over (section 7.1.2)
            trailers = _TRAILERS.match(data, at)
            if (trailers.end() if trailers else len(data)) - at > _MOST_TRAILERS:
                raise MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if trailers is None:
                _may_become(_TRAILERS, data, at)
            else:
                at, self.complete = trailers.end(), True
        self.unread, self._left, self._size_of = data[at:], left, size_of
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _count(fields: Sequence[tuple[bytes, bytes]], name: bytes) -> int:
    return sum(field == name for field, _ in fields)


def _may_become(pattern: re.Pattern[bytes], data: bytes, at: int) -> None:
    """Refuse what does not match, whatever else arrives."""
    if not _BEGUN[pattern].fullmatch(data, at):
        raise MalformedError(HTTPStatus.BAD_REQUEST)


def _path_and_query(target: bytes) -> tuple[str, str]:
    """Of any form that RFC 9112 has in section 3.2, as far as it has them."""
    path, _, query = target.partition(b"?")
    if not target.startswith(b"/") and target != b"*":
        try:
            found = httptools.parse_url(target)
        except httptools.HttpParserError:
            raise MalformedError(HTTPStatus.BAD_REQUEST) from None
        path, query = found.path or b"/", found.query or b""
    text = path.decode("ascii")  # llhttp takes nothing else
    return unquote(text) if "%" in text else text, query.decode("ascii")
