"""HTTP/1.1 requests out of the bytes of a connection. Knows neither sockets nor what is answered.

llhttp (httptools) reads heads, except one that is as the last of its connection but for the length:
clients send the same head with each request. Where a message ends is decided here: llhttp would go
on to the next one in the same call, and a connection takes one request at a time.

Source: RFC 9110 (HTTP semantics) and RFC 9112 (HTTP/1.1); sections are named where a rule is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import httptools

from mmroute.server.front.http import Head

_END: Final = b"\r\n\r\n"
_MOST_FIELDS: Final = 256
_DIGITS: Final = 20  # of a length of 64 bits; llhttp lets nothing but zeros pass before them
_MOST_KEPT: Final = 1 << 12  # bytes of a head that a connection keeps
_MOST_TRAILERS: Final = 4096  # bytes
_MOST_FRAMED: Final = 1 << 16  # bytes at a time that have to be taken apart, which holds the loop
_LINE_BREAK: Final = b"\r\n"
_REQUEST_LINE: Final = re.compile(rb"([^ ]+) +([^ ]+) +HTTP/1\.([01])\r")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *([0-9]{1,18}) *\r\n")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^`|~\w]{1,32}")
_METHOD_AND_SPACE: Final = re.compile(_METHOD.pattern + b" ")
_HOST: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]*")  # RFC 3986, 3.2.2, as characters
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
        status: the HTTP status of the response.
    """

    status: HTTPStatus


class RequestParser:
    """Gives one request after the other: `head`, then `body` until it is `complete`.

    Which bytes came together makes no difference to what it gives, but for where a body is parted.

    Attributes:
        complete: whether the body of the last head was given whole.
        keep_alive: whether the sender of the last head may send another one.
    """

    def __init__(self, head_bytes: int) -> None:
        self.complete = self.keep_alive = False
        self._head_bytes = head_bytes
        # What was received and not given yet.
        self._data: bytes | bytearray = b""
        self._at = self._end = 0
        # Of a head.
        self._llhttp: httptools.HttpRequestParser
        self._in_step = False  # whether llhttp knows where the last request ends
        self._read = 0  # bytes that llhttp has read
        self._read_all = False
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[bytes] = []
        self._last: tuple[bytes, bytes, Head] | None = None  # before and behind its length
        # Of a body.
        self._left = 0  # bytes of it, or of the chunk, that were not given
        self._size_of: re.Pattern[bytes] | None = None  # the next chunk; None if there are none
        self._in_trailers = False

    @property
    def unread(self) -> bool:
        """Whether something was received that was not given yet: between bodies, of a head."""
        return self._at < self._end

    @property
    def expects_continue(self) -> bool:
        """Whether the sender of the last head waits for a 100 before it sends the body."""
        return self._headers.get(b"expect", b"").lower() == b"100-continue"

    def receive(self, buffer: bytearray, size: int) -> None:
        """Take what has arrived: the first bytes of a buffer, read in place until `keep`."""
        if self._at == self._end:
            self._data, self._at, self._end = buffer, 0, size
        else:
            kept = memoryview(self._data)[self._at : self._end]
            self._data = b"".join((kept, memoryview(buffer)[:size]))
            self._at, self._end = 0, len(self._data)

    def keep(self) -> None:
        """Copy what is unread, and nothing else: others use the buffer from now on."""
        if self._at == self._end:
            self._data = b""
        else:
            self._data = bytes(memoryview(self._data)[self._at : self._end])
            self._at, self._end = 0, len(self._data)

    def head(self) -> Head | None:
        """The next head; None if not all of it has arrived."""
        data, at, end = self._data, self._at, self._end
        if not self._read:
            if at < end and data[at] in _LINE_BREAK:  # RFC 9112, section 2.2
                at = self._at = end - len(bytes(data[at:end]).lstrip(_LINE_BREAK))
            if at == end:
                return None
            self._headers, self._repeated = {}, []
            if not self._in_step:
                self._llhttp = httptools.HttpRequestParser(self)
                self._in_step = True
        found = data.find(_END, at, end)
        if found >= 0:
            end = found + len(_END)
        raw = bytes(data[at:end])
        if len(raw) > self._head_bytes:
            self._feed(raw[: self._head_bytes])
            raise _too_large(raw[: self._head_bytes // 2])
        if not self._read and (again := self._as_last(raw)) is not None:
            self._at = end
            return again
        self._feed(raw)
        if not self._read_all:
            if found >= 0:  # it goes on for llhttp: the preface of HTTP/2
                raise MalformedError(HTTPStatus.BAD_REQUEST)
            return None
        self._at, self._read, self._read_all = end, 0, False
        head = self._checked(raw)
        length = _LENGTH.search(raw) if len(raw) <= _MOST_KEPT else None
        self._last = length and (raw[: length.start(1)], raw[length.end(1) :], head)
        return head

    def body(self) -> bytes | memoryview:
        """The part of the body that has arrived, without its framing. Copy it before `keep`."""
        if self._size_of is not None:
            return self._chunks(self._size_of)
        at = self._at
        end = min(at + self._left, self._end)
        part = memoryview(self._data)[at:end]
        self._at = end
        self._left -= end - at
        self.complete = not self._left
        if self._in_step:
            self._llhttp.feed_data(part)
        return part

    # httptools calls these.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._headers:
            self._repeated.append(name)
        else:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        self._read_all = True
        self.keep_alive = self._llhttp.should_keep_alive()  # until there is no body to come

    def _as_last(self, raw: bytes) -> Head | None:
        """The head, if it is the last one with another length; None if llhttp has to read it."""
        if self._last is None:
            return None
        before, behind, last = self._last
        if not (raw.startswith(before) and raw.endswith(behind)):
            return None
        length = raw[len(before) : -len(behind)]
        if not length.isdigit() or len(length) >= _DIGITS:
            return None
        self._in_step = False
        self._left = int(length)
        self.complete = not self._left
        self._headers = {**last.headers, b"content-length": length}
        return Head(last.method, last.path, last.query, self._headers)

    def _feed(self, raw: bytes) -> None:
        """Give llhttp the bytes of a head that it has not read yet."""
        try:
            self._llhttp.feed_data(raw[self._read :])
            self._read = len(raw)
        except httptools.HttpParserUpgrade:
            self._in_step = False  # no other protocol is spoken (RFC 9110, section 7.8)
            # What follows the head of a CONNECT is none of HTTP.
            self.keep_alive &= self._llhttp.get_method() != b"CONNECT"
            self._read = len(raw)
        except httptools.HttpParserInvalidMethodError:
            self._in_step = False
            if not _METHOD.fullmatch(raw):  # or there may be more of it, and llhttp reads it again
                status = "NOT_IMPLEMENTED" if _METHOD_AND_SPACE.match(raw) else "BAD_REQUEST"
                raise MalformedError(HTTPStatus[status]) from None
        except httptools.HttpParserError:
            raise MalformedError(HTTPStatus.BAD_REQUEST) from None

    def _checked(self, raw: bytes) -> Head:
        """The head that was read, whose framing is known from now on."""
        line = _REQUEST_LINE.match(raw)
        if line is None:
            raise MalformedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        method, target, minor = line.groups()
        headers, repeated = self._headers, self._repeated
        if b" \r" in raw or b"\t\r" in raw:  # llhttp leaves spaces behind a value (section 5.1)
            headers.update({name: value.rstrip() for name, value in headers.items()})
        if len(headers) + len(repeated) > _MOST_FIELDS:  # each takes many times its bytes
            raise MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if minor == b"0":
            self.keep_alive = False
            headers.setdefault(b"host", b"")
            headers.pop(b"expect", None)  # RFC 9110, section 10.1.1
            if b"transfer-encoding" in headers:  # RFC 9112, section 6.1
                raise MalformedError(HTTPStatus.BAD_REQUEST)
        host = headers.get(b"host")
        if host is None or not _HOST.fullmatch(host) or b"host" in repeated:
            raise MalformedError(HTTPStatus.BAD_REQUEST)  # RFC 9112, section 3.2
        coding = headers.get(b"transfer-encoding")
        if coding is None:
            length = headers.get(b"content-length")
            self._left = int(length[-_DIGITS:]) if length else 0
            self.complete = not self._left
        elif coding.lower() == b"chunked" and b"transfer-encoding" not in repeated:
            self._size_of, self._in_step, self.complete = _FIRST_SIZE, False, False
        else:
            raise MalformedError(HTTPStatus.NOT_IMPLEMENTED)
        path, query = _path_and_query(target)
        return Head(method.decode(), path, query, headers)

    def _chunks(self, size_of: re.Pattern[bytes]) -> bytes:
        """As `body`, of chunks."""
        end = min(self._end, self._at + _MOST_FRAMED)
        data, at, left = bytes(memoryview(self._data)[self._at : end]), 0, self._left
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
                at, self.complete, self._in_trailers = trailers.end(), True, False
        self._at, self._left = self._at + at, left
        self._size_of = None if self.complete else size_of
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(half: bytes) -> MalformedError:
    """Say what is too large of a head that begins with these bytes (RFC 9112, section 3)."""
    if b"\r" in half:
        return MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return MalformedError(HTTPStatus.REQUEST_URI_TOO_LONG)


def _may_become(pattern: re.Pattern[bytes], data: bytes, at: int) -> None:
    """Refuse what does not match, whatever else arrives."""
    if not _BEGUN[pattern].fullmatch(data, at):
        raise MalformedError(HTTPStatus.BAD_REQUEST)


def _path_and_query(target: bytes) -> tuple[str, str]:
    """Of any form that RFC 9112 has in section 3.2, as far as it has them."""
    if not target.startswith(b"/") and target != b"*":
        try:
            found = httptools.parse_url(target)
        except httptools.HttpParserError:
            raise MalformedError(HTTPStatus.BAD_REQUEST) from None
        target = b"%b?%b" % (found.path or b"/", found.query or b"")
    path, _, query = target.decode("ascii").partition("?")  # llhttp takes nothing else
    return unquote(path) if "%" in path else path, query
