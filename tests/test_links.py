"""Following links to images: where it may lead, how long it may take, how much it may read."""

from __future__ import annotations

import http.server
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from image_cases import image_files

from mmroute import ImageLinks, InexactError, Reason, read_image
from mmroute.images import fetching
from mmroute.images.identity import image_identity

FILES = image_files()
LOOPBACK = ("127.0.0.0/8", "::1/128")


class _Site(http.server.BaseHTTPRequestHandler):
    """A server that does what the path says."""

    ranges: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        type(self).ranges.append(self.headers["Range"])
        kind, _, name = self.path.strip("/").partition("/")
        getattr(self, f"send_{kind}")(name)

    def send_file(self, name: str) -> None:
        self._answer(200, FILES[name])

    def send_range(self, name: str) -> None:
        data = FILES[name]
        if self.headers["Range"] is None:
            self._answer(200, data)
        else:
            first = 200
            self._answer(206, data[:first], ("Content-Range", f"bytes 0-{first - 1}/{len(data)}"))

    def send_wrongrange(self, name: str) -> None:
        self._answer(206, FILES[name], ("Content-Range", "bytes 5-9/10"))

    def send_to(self, target: str) -> None:
        self._answer(302, b"", ("Location", target))

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
            for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000:
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


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def refused(site: str) -> Callable[..., Reason]:
    def fetch(path: str, **options: Any) -> Reason:
        allowed = {"hosts": ("127.0.0.1",), "networks": LOOPBACK, **options}
        url = path if "//" in path else f"http://{site}/{path}"
        with pytest.raises(InexactError) as caught:
            ImageLinks(**allowed).fetch_image(url)
        return caught.value.reason

    return fetch


def test_an_image_behind_a_link_is_the_image_in_a_data_url(site: str) -> None:
    links = ImageLinks(hosts=("127.0.0.1",), networks=LOOPBACK)
    for path in ("file/jpeg-exif-6", "to/%2Ffile/jpeg-exif-6", "to/file/jpeg-exif-6"):
        target = path if "%2F" not in path else f"to/http://{site}/file/jpeg-exif-6"
        if path.startswith("to/file"):
            target = "to//file/jpeg-exif-6"
        image = links.fetch_image(f"http://{site}/{target}")
        known = read_image(FILES["jpeg-exif-6"])
        assert image == known
        assert image.content == known.content
        identities = [
            image_identity(i, mm_processor_kwargs={}, model_id="m") for i in (image, known)
        ]
        assert identities[0] == identities[1]


@pytest.mark.parametrize("kind", ["file", "range"])
@pytest.mark.parametrize("name", ["jpeg-exif-6", "png-exif-6-behind", "tiff-gray-lzw", "webp"])
def test_with_a_uuid_the_beginning_is_asked_for(site: str, kind: str, name: str) -> None:
    _Site.ranges.clear()
    links = ImageLinks(hosts=("127.0.0.1",), networks=LOOPBACK)
    image = links.fetch_image(f"http://{site}/{kind}/{name}", uuid="u")
    known = read_image(FILES[name])
    assert (image.width, image.height, image.uuid) == (known.width, known.height, "u")
    assert _Site.ranges[0] == "bytes=0-65535"


def test_servers_that_do_not_answer_with_a_file(refused: Callable[..., Reason]) -> None:
    for path in ("status/404", "status/204", "wrongrange/jpeg", "gzip/jpeg", "loop/"):
        assert refused(path) is Reason.IMAGE_LINK_FAILED, path
    assert refused("file/html") is Reason.IMAGE_UNREADABLE
    assert refused("http://127.0.0.1:1/x") is Reason.IMAGE_LINK_FAILED


def test_links_that_lead_elsewhere(refused: Callable[..., Reason], site: str) -> None:
    assert refused("file/jpeg", networks=()) is Reason.IMAGE_LINK_REFUSED
    assert refused("file/jpeg", hosts=("example.com",)) is Reason.IMAGE_LINK_REFUSED
    for url in (
        f"ftp://{site}/file/jpeg",
        f"file://{site}/etc/passwd",
        "http:///nothing",
        f"http://user:password@{site}/file/jpeg",
        "http://127.0.0.1:99999/",
        "http://[::1/",
        f"http://{site}/ä",
        f"http://{site}/a b",
        f"http://{site}/a\r\nHost: b",
        "http://\0/",
    ):
        assert refused(url, hosts=("*",)) in (
            Reason.IMAGE_LINK_REFUSED,
            Reason.IMAGE_LINK_FAILED,
        ), url


@pytest.mark.parametrize(
    "target",
    ["http://localhost:1/x", "http://elsewhere.test/x", "file:///etc/passwd", "http://0x7f000001/"],
)
def test_a_redirect_is_checked_like_the_link(refused: Callable[..., Reason], target: str) -> None:
    assert refused(f"to/{target}") is Reason.IMAGE_LINK_REFUSED


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.8", "172.16.3.4", "192.168.1.1", "169.254.169.254", "0.0.0.0",  # noqa: S104 - refused, not bound

        "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.8", "2002:7f00:1::", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "2001:0:7f00:1::",
    ],
)  # fmt: skip
def test_a_name_that_stands_for_a_private_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Whatever the name looks like, what counts is the address that is connected to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = [(family, socket.SOCK_STREAM, 6, "", (address, 80))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_a, **_k: found)
    connected: list[object] = []
    monkeypatch.setattr("socket.create_connection", connected.append)
    with pytest.raises(InexactError) as caught:
        ImageLinks(hosts=("*",)).fetch_image("http://images.example.com/a.png")
    assert caught.value.reason is Reason.IMAGE_LINK_REFUSED
    assert not connected


def test_one_private_address_among_public_ones_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def resolve(*_arguments: object, **_options: object) -> list[Any]:
        return [(socket.AF_INET, 1, 6, "", (a, 80)) for a in ("93.184.215.14", "10.0.0.8")]

    def connect(address: tuple[str, int], *_arguments: object, **_options: object) -> None:
        tried.append(address[0])
        raise OSError("nobody there")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("socket.create_connection", connect)
    with pytest.raises(InexactError) as caught:
        ImageLinks(hosts=("*",)).fetch_image("http://images.example.com/a.png")
    assert caught.value.reason is Reason.IMAGE_LINK_REFUSED
    assert tried == ["93.184.215.14"]
    assert ipaddress.ip_address(tried[0]).is_global


@pytest.mark.parametrize("path", ["drip/", "endless/"])
def test_time_is_bounded(refused: Callable[..., Reason], path: str) -> None:
    start = time.perf_counter()
    assert refused(path, timeout=0.5, max_bytes=1 << 40) is Reason.IMAGE_LINK_FAILED
    assert time.perf_counter() - start < 2


def test_a_resolver_that_never_answers_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., Reason]
) -> None:
    answer = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_a, **_k: answer.wait(5) and [])
    start = time.perf_counter()
    assert refused("http://127.0.0.1/x", timeout=0.3) is Reason.IMAGE_LINK_FAILED
    assert time.perf_counter() - start < 2
    answer.set()


def test_size_is_bounded(refused: Callable[..., Reason]) -> None:
    assert refused("endless/", max_bytes=1 << 20) is Reason.IMAGE_LINK_FAILED


def test_host_patterns() -> None:
    links = ImageLinks(hosts=("*.example.com", "Images.test"))
    for url, allowed in {
        "http://a.example.com/": True,
        "http://A.B.EXAMPLE.com./": True,
        "http://example.com/": False,
        "http://a.example.com.evil.test/": False,
        "http://images.test/": True,
        "http://images.test@evil.test/": False,
    }.items():
        try:
            fetching.check_url(url, links)
        except InexactError:
            assert not allowed, url
        else:
            assert allowed, url


def test_a_network_that_is_none_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        ImageLinks(hosts=("*",), networks=("nonsense",))
