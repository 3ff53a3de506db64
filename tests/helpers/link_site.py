"""A server of images, videos and sound that does what the path of a link says."""

from __future__ import annotations

import http.server
import itertools
import time
from typing import Any, ClassVar

from image_vectors import image_files
from media_files import media_files

FILES = image_files()
WAV = media_files("audios")["wav-PCM_16"].data
VIDEO = media_files("videos")["plain"].data


def with_room(video: bytes, room: int) -> bytes:
    """An MP4 file of one chunk with as many bytes more between its head and its frames."""
    at = video.index(b"mdat") - 4
    moved = bytearray(video[:at] + room.to_bytes(4) + b"free" + bytes(room - 8) + video[at:])
    chunk = moved.index(b"stco") + 12
    moved[chunk : chunk + 4] = (int.from_bytes(moved[chunk : chunk + 4]) + room).to_bytes(4)
    return bytes(moved)


MEDIA = {"small": VIDEO, "large": with_room(VIDEO, 5_000_000), "sound": WAV}


class Site(http.server.BaseHTTPRequestHandler):
    """A request, which is answered as its path says.

    Attributes:
        seen: path and range of each request.
        sent: the bytes of media that were sent in parts.
        tag: the number of the file in its ETag.
    """

    seen: ClassVar[list[tuple[str, str | None]]] = []
    sent: ClassVar[int] = 0
    tag: ClassVar[int] = 0

    def do_GET(self) -> None:
        type(self).seen.append((self.path, self.headers["Range"]))
        kind, _, name = self.path.strip("/").partition(";")[0].partition("/")
        getattr(self, f"send_{kind}")(name)

    def send_file(self, name: str) -> None:
        self._answer(200, FILES[name])

    def send_range(self, name: str) -> None:
        size = len(FILES[name])
        self._answer(206, FILES[name], ("Content-Range", f"bytes 0-{size - 1}/{size}"))

    def send_half(self, name: str) -> None:
        size = len(FILES[name])
        half = FILES[name][: size // 2]
        self._answer(206, half, ("Content-Range", f"bytes 0-{len(half) - 1}/{size}"))

    def send_parts(self, name: str) -> None:
        data = MEDIA[name]
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        where = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        self._answer(206, part, ("Content-Range", where), ("ETag", f'"{self.tag}"'))
        type(self).sent += len(part)
        type(self).tag += self.path.endswith("changing")

    def send_media(self, name: str) -> None:
        self._answer(200, MEDIA[name])

    def send_wrongrange(self, name: str) -> None:
        self._answer(206, FILES[name], ("Content-Range", "bytes 5-9/10"))

    def send_to(self, target: str) -> None:
        self._answer(302, b"", ("Location", target))

    def send_hops(self, left: str) -> None:
        self._answer(
            302, b"", ("Location", f"/hops/{int(left) - 1}" if left != "0" else "/file/png")
        )

    def send_loop(self, _name: str) -> None:
        self._answer(302, b"", ("Location", self.path))

    def send_gzip(self, name: str) -> None:
        self._answer(200, FILES[name], ("Content-Encoding", "gzip"))

    def send_status(self, name: str) -> None:
        self._answer(int(name), FILES["jpeg"])

    def send_endless(self, _name: str) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"\xff" * 65536)
        except OSError:
            pass

    def send_drip(self, _name: str) -> None:
        try:
            for byte in itertools.chain(b"HTTP/1.1 200 OK\r\nX: ", itertools.repeat(ord("x"))):
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for header in headers:
            self.send_header(*header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass
