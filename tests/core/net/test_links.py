"""Following links to images: where it may lead, how long it may take, how much it may read."""

from __future__ import annotations

import http.server
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from image_vectors import data_url
from link_site import FILES, MEDIA, Site

from mmroute import ImageLinks, ImageSize, InexactError, Normalizer, Reason
from mmroute.net.fetching import LinkFetcher
from mmroute.videos.reading import read_video, video_in

LINKS = ImageLinks(hosts=("127.0.0.1",), networks=("127.0.0.0/8", "::1/128"))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def refused(site: str) -> Callable[..., Reason]:
    def fetch(path: str, **options: Any) -> Reason:
        url = path if "//" in path else f"http://{site}/{path}"
        with pytest.raises(InexactError) as caught:
            LinkFetcher(replace(LINKS, **options)).fetch(url)
        return caught.value.reason

    return fetch


def fetched(url: str) -> bytes:
    return LinkFetcher(LINKS).fetch(url)


@pytest.mark.process
@pytest.mark.parametrize("path", ["file", "range", "to//file", "to//range"])
def test_the_whole_file_comes(site: str, path: str) -> None:
    assert fetched(f"http://{site}/{path}/jpeg-exif-6") == FILES["jpeg-exif-6"]


@pytest.mark.process
def test_the_request_asks_for_what_the_link_names(site: str) -> None:
    Site.seen.clear()
    fetched(f"http://{site}/file/png;x=1?y=2;z#part")
    assert Site.seen == [("/file/png;x=1?y=2;z", f"bytes=0-{(1 << 26) - 1}")]


@pytest.mark.process
def test_five_redirects_are_followed_and_no_more(site: str, refused: Callable[..., Reason]) -> None:
    assert fetched(f"http://{site}/hops/4") == FILES["png"]
    assert refused("hops/5") is Reason.IMAGE_LINK_FAILED
    assert refused("loop/") is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
@pytest.mark.parametrize(
    "path",
    [
        "status/404", "status/204", "half/gif-animated", "wrongrange/jpeg", "gzip/jpeg",
        "http://127.0.0.1:1/x",  # nobody answers
        "a b", "a\r\nHost: b", "\0",  # cannot be sent
    ],
)  # fmt: skip
def test_what_brings_no_file(refused: Callable[..., Reason], path: str) -> None:
    assert refused(path) is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
@pytest.mark.parametrize(
    "url",
    [
        "ftp://SITE/file/jpeg",
        "file://SITE/etc/passwd",
        "http:///nothing",
        "http://user:password@SITE/file/jpeg",
        "http://127.0.0.1:99999/",
        "http://[::1/",
        "http://SITE/ä",
        "http://elsewhere.test/",
    ],
)
def test_links_that_are_not_followed(refused: Callable[..., Reason], site: str, url: str) -> None:
    assert refused(url.replace("SITE", site)) is Reason.IMAGE_LINK_REFUSED


@pytest.mark.process
def test_private_addresses_need_permission(refused: Callable[..., Reason]) -> None:
    assert refused("file/jpeg", networks=()) is Reason.IMAGE_LINK_REFUSED


@pytest.mark.process
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
        "64:ff9b:1::1", "2001:0:7f00:1::", "::127.0.0.1", "::ffff:0:a9fe:a9fe", "fec0::1",
        "192.88.99.1", "5f00::1", "2001:db8::1",
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
        LinkFetcher(ImageLinks(hosts=("*",))).fetch("http://images.example.com/a.png")
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
        LinkFetcher(ImageLinks(hosts=("*",))).fetch("http://images.example.com/a.png")
    assert caught.value.reason is Reason.IMAGE_LINK_REFUSED
    assert tried == ["93.184.215.14"]
    assert ipaddress.ip_address(tried[0]).is_global


@pytest.mark.process
@pytest.mark.parametrize("path", ["drip/", "endless/"])
def test_time_is_bounded(refused: Callable[..., Reason], path: str) -> None:
    """What is sent has no end that could be waited for."""
    assert refused(path, timeout=0.5, max_bytes=1 << 40) is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
def test_a_resolver_that_never_answers_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., Reason]
) -> None:
    answer, answered = threading.Event(), threading.Event()

    def resolve(*_: Any, **__: Any) -> list[Any]:
        answer.wait(60)
        answered.set()
        return []

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert refused("http://127.0.0.1/x", timeout=0.3) is Reason.IMAGE_LINK_FAILED
    assert not answered.is_set()
    answer.set()


@pytest.mark.process
def test_size_is_bounded(refused: Callable[..., Reason]) -> None:
    assert refused("endless/", max_bytes=1 << 20) is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
def test_limits_are_of_the_whole_request(site: str) -> None:
    size = len(FILES["bmp"])
    fetcher = LinkFetcher(replace(LINKS, max_bytes=2 * size))
    assert fetcher.fetch(f"http://{site}/file/bmp") == FILES["bmp"]
    with pytest.raises(InexactError, match="max_bytes"):
        fetcher.fetch(f"http://{site}/file/bmp")
    late = LinkFetcher(replace(LINKS, timeout=0.2))
    time.sleep(0.3)
    with pytest.raises(InexactError, match="timeout"):
        late.fetch(f"http://{site}/file/bmp")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://a.example.com/", True),
        ("http://A.B.EXAMPLE.com./", True),
        ("http://example.com/", False),
        ("http://a.example.com.evil.test/", False),
        ("http://images.test/", True),
    ],
)
def test_hosts_are_allowed_by_name_or_pattern(url: str, allowed: bool) -> None:
    fetcher = LinkFetcher(ImageLinks(hosts=("*.example.com", "Images.test")))
    assert fetcher.may_follow(url) is allowed


@pytest.mark.parametrize(
    "values",
    [
        {"hosts": "*.example.com"},
        {"hosts": (5,)},
        {"hosts": ("https://example.com",)},
        {"hosts": ("example.com:443",)},
        {"hosts": ("example.com.",)},
        {"hosts": ("",)},
        {"hosts": ("a b",)},
        {"hosts": ("*",), "networks": "10.0.0.0/8"},
        {"hosts": ("*",), "networks": ("nonsense",)},
        {"hosts": ("*",), "timeout": 0},
        {"hosts": ("*",), "timeout": float("nan")},
        {"hosts": ("*",), "timeout": "5"},
        {"hosts": ("*",), "max_bytes": -1},
    ],
)
def test_settings_that_would_guard_nothing_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{[*values][-1]}|nonsense"):
        ImageLinks(**values)


@pytest.fixture
def secure_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    directory = Path(__file__).parent / "certificate"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "localhost.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(
        "mmroute.net.fetching._ssl_context",
        lambda: ssl.create_default_context(cafile=str(directory / "localhost.pem")),
    )
    yield f"localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.process
def test_https_is_checked_by_name_and_bounded_in_time(secure_site: str) -> None:
    links = replace(LINKS, hosts=("localhost", "127.0.0.1"))
    assert LinkFetcher(links).fetch(f"https://{secure_site}/file/webp") == FILES["webp"]
    with pytest.raises(InexactError, match="timeout"):
        LinkFetcher(replace(links, timeout=1)).fetch(f"https://{secure_site}/drip/")
    with pytest.raises(InexactError, match="certificate"):
        # The certificate is for a name, and a checked address is connected to, but not trusted.
        LinkFetcher(links).fetch(
            f"https://{secure_site.replace('localhost', '127.0.0.1')}/file/png"
        )


@pytest.mark.process
def test_links_of_a_request(site: str, normalizer: Callable[[str], Normalizer]) -> None:
    """A link to an allowed host is followed; any other takes its size from `images`."""
    model = normalizer("small-qwen2.5-vl").model
    following = Normalizer(model, LINKS)

    def ask(*urls: str, **uuid: str) -> list[dict[str, Any]]:
        parts = [{"type": "image_url", "image_url": {"url": url}, **uuid} for url in urls]
        return [{"role": "user", "content": parts}]

    known = Normalizer(model).normalize(messages=ask(data_url(FILES["jpeg-exif-6"])))
    for uuid in ({}, {"uuid": "u"}):
        routing = following.normalize(messages=ask(f"http://{site}/file/jpeg-exif-6", **uuid))
        assert routing.token_ids.tolist() == known.token_ids.tolist()
    assert (
        following.normalize(messages=ask(f"http://{site}/file/jpeg-exif-6")).block_hashes()
        == known.block_hashes()
    )
    elsewhere = ask("http://elsewhere.test/a.png", f"http://{site}/file/png")
    assert following.normalize(messages=elsewhere, images=[ImageSize(50, 50)]).exact
    assert following.normalize(messages=elsewhere).reason is Reason.IMAGE_LINK_REFUSED
    broken = following.normalize(messages=ask(f"http://{site}/file/cut-gif", uuid="u"))
    assert broken.reason is Reason.IMAGE_UNREADABLE


@pytest.mark.process
def test_nothing_is_fetched_for_a_request_that_is_refused_anyway(
    site: str, normalizer: Callable[[str], Normalizer]
) -> None:
    following = Normalizer(normalizer("small-qwen2.5-vl").model, LINKS)
    Site.seen.clear()
    link = {"type": "image_url", "image_url": {"url": f"http://{site}/file/png"}}
    audio = {"type": "audio_url", "audio_url": {"url": "http://elsewhere.test/a.wav"}}
    routing = following.normalize(messages=[{"role": "user", "content": [link, audio]}])
    assert routing.reason is Reason.UNSUPPORTED_MODALITY
    routing = following.normalize(messages=[{"role": "user", "content": [link] * 1000}])
    assert routing.reason is Reason.TOO_MANY_ITEMS
    assert not Site.seen


def linked(site: str, path: str, uuid: str | None = None, **options: Any) -> Any:
    """The video behind a link, and how many bytes the server sent of it."""
    links, before = replace(LINKS, **options), Site.sent
    file = LinkFetcher(links).open(f"http://{site}/{path}", complete=uuid is None, accept="video/*")
    return video_in(file, uuid), Site.sent - before


@pytest.mark.process
def test_with_a_uuid_only_the_header_of_a_video_is_fetched(site: str) -> None:
    expected = read_video(MEDIA["large"], uuid="clip")
    video, sent = linked(site, "parts/large", "clip")
    assert video == expected.size
    assert sent < 600_000
    assert linked(site, "media/large", "clip")[0] == expected  # no parts from this server


@pytest.mark.process
def test_without_a_uuid_the_whole_video_is_fetched_for_its_identity(site: str) -> None:
    assert linked(site, "parts/large")[0] == read_video(MEDIA["large"])
    assert linked(site, "parts/small", "clip")[0] == read_video(MEDIA["small"], uuid="clip")


@pytest.mark.process
def test_of_a_video_that_is_too_large_the_header_is_fetched(site: str) -> None:
    video, sent = linked(site, "parts/large", max_bytes=1 << 20)
    assert video == read_video(MEDIA["large"]).size
    assert sent < 600_000
    with pytest.raises(InexactError, match="max_bytes") as caught:
        linked(site, "media/large", max_bytes=1 << 20)
    assert caught.value.reason is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
def test_parts_of_different_files_are_not_put_together(site: str) -> None:
    with pytest.raises(InexactError, match="file changed") as caught:
        linked(site, "parts/large;changing", "clip")
    assert caught.value.reason is Reason.IMAGE_LINK_FAILED


@pytest.mark.process
def test_media_behind_links_are_items(site: str, normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer("small-qwen2.5-vl").model
    following = Normalizer(model, LINKS)
    part = {"type": "video_url", "video_url": {"url": f"http://{site}/parts/large"}, "uuid": "clip"}
    text = {"type": "text", "text": "<|video_pad|>"}  # which the small template does not write
    routing = following.normalize(messages=[{"role": "user", "content": [part, text]}])
    assert [str(identity) for identity in routing.identities] == ["clip"]
