"""Streams that workers send, over gRPC."""

from __future__ import annotations

import hashlib
import io
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from bundle_helpers import (
    VLLM,
    Entry,
    worker,
    zip_messages,
    zip_of,
    zip_worker,
)
from hypothesis import given
from hypothesis import strategies as st

from mmroute.errors import Reason
from mmroute.server.bundle import BundleError, fetch_bundle
from mmroute.server.bundle.client import METHODS, ZipChunk, receive_zip

GOOD = zip_of(Entry(b"config.json", b"abc" * 999), Entry(b"vocab.json", b"{}"))
SHA = hashlib.sha256(GOOD).hexdigest()


def chunk(data: bytes, sha256: str = "") -> bytes:
    message: bytes = ZipChunk(data=data, sha256=sha256).SerializeToString()
    return message


def refused(messages: Sequence[bytes], **options: Any) -> BundleError:
    """How a worker with this stream of a zip is refused."""
    with zip_worker(messages) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, **options)
    return caught.value


HOSTILE_ZIP_STREAMS: dict[str, list[bytes]] = {
    "nothing": [],
    "one message without data": [chunk(b"", SHA)],
    "a piece without data": [chunk(GOOD[:9]), chunk(b""), chunk(GOOD[9:], SHA)],
    "pieces without data for ever": [chunk(b"")] * 1000,
    "no SHA-256": [chunk(GOOD)],
    "cut short": [chunk(GOOD[:99])],
    "a SHA-256 that comes too early": [chunk(GOOD[:9], SHA), chunk(GOOD[9:])],
    "a SHA-256 that comes twice": [chunk(GOOD[:9], SHA), chunk(GOOD[9:], SHA)],
    "another SHA-256": [chunk(GOOD, "0" * 64)],
    "one bit of the zip": [chunk(GOOD[:-1] + b"\1", SHA)],
    "half a SHA-256": [chunk(GOOD, SHA[:32])],
    "no hexadecimal": [chunk(GOOD, "sha" + SHA[3:])],
    "no protobuf": [b"\xff\xff\xff"],
    "text that is not UTF-8": [b"\x12\x02\xff\xfe"],
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("case", HOSTILE_ZIP_STREAMS)
def test_hostile_streams_of_a_zip(case: str, private: Path) -> None:
    assert refused(HOSTILE_ZIP_STREAMS[case]).reason is Reason.BUNDLE_REFUSED
    assert list(private.iterdir()) == []


def test_a_sha_256_may_be_in_capitals_and_come_behind_the_last_piece() -> None:
    """As smg's client takes it: crates/grpc_client ``tokenizer_bundle.rs``, its tests."""
    sha = hashlib.sha256(b"abcdef").hexdigest()
    for pieces in ([(b"abc", ""), (b"def", sha.upper())], [(b"abcdef", ""), (b"", sha)]):
        out = io.BytesIO()
        assert receive_zip((chunk(*each) for each in pieces), out) == 6
        assert out.getvalue() == b"abcdef"


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.data())
def test_any_cutting_of_a_zip_is_joined_again(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    sha = hashlib.sha256(whole).hexdigest()
    messages = [chunk(each, sha if n == len(pieces) - 1 else "") for n, each in enumerate(pieces)]
    kept = data.draw(st.integers(0, len(messages)))
    out = io.BytesIO()
    if 0 < kept == len(messages):
        assert receive_zip(messages, out) == len(whole)
        assert out.getvalue() == whole
    else:
        with pytest.raises(BundleError) as caught:
            receive_zip(messages[:kept], out)
        assert caught.value.reason is Reason.BUNDLE_REFUSED


@pytest.mark.process
def test_too_much_is_refused_while_it_comes(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    def endless(_context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal sent
        for _ in itertools.count():
            sent += 1 << 16
            yield chunk(bytes(1 << 16))

    limit = 4 << 20
    monkeypatch.setattr("mmroute.server.bundle.client.MOST_STREAMED", limit)
    with worker({VLLM: endless}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.reason is Reason.BUNDLE_REFUSED
    assert sent < 16 * limit  # with what was on its way, the more the busier the machine is
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_a_message_that_inflates_is_refused(private: Path) -> None:
    """gRPC's own compression would be inflated before anything here could count."""

    def bomb(context: grpc.ServicerContext) -> Iterable[bytes]:
        context.set_compression(grpc.Compression.Gzip)
        return [chunk(bytes(100 << 20))]

    with worker({VLLM: bomb}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.reason is Reason.BUNDLE_UNAVAILABLE
    assert list(private.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("begun", [False, True])
def test_the_deadline_covers_the_whole_call(begun: bool, private: Path) -> None:
    ended = threading.Event()

    def slow(_context: grpc.ServicerContext) -> Iterator[bytes]:
        if begun:
            yield chunk(GOOD[:9])
        ended.wait(60)

    with worker({VLLM: slow}) as address:
        with pytest.raises(BundleError) as caught:
            fetch_bundle(address, timeout=0.5)
        ended.set()
    assert "DEADLINE_EXCEEDED" in str(caught.value)
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_a_trickle_does_not_renew_the_deadline() -> None:
    def trickle(context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active():
            yield chunk(b"x")
            time.sleep(0.02)

    with worker({VLLM: trickle}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, timeout=0.5)
    assert "DEADLINE_EXCEEDED" in str(caught.value)


@pytest.mark.process
def test_who_is_not_there(private: Path) -> None:
    with worker({}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.reason is Reason.BUNDLE_UNAVAILABLE
    assert all(service in str(caught.value) for service in METHODS)
    with pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.reason is Reason.BUNDLE_UNAVAILABLE
    assert list(private.iterdir()) == []


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "http://host:1", "host:1/path", "host:x", "unix:"]
)
def test_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        fetch_bundle(address)


@pytest.mark.process
@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INTERNAL])
def test_a_worker_that_refuses_is_quoted(code: grpc.StatusCode) -> None:
    def refuse(context: grpc.ServicerContext) -> NoReturn:
        context.abort(code, "Tokenizer path is not configured on this server.")

    with worker({VLLM: refuse}) as address, pytest.raises(BundleError, match="not configured") as e:
        fetch_bundle(address)
    assert e.value.reason is Reason.BUNDLE_UNAVAILABLE


@pytest.mark.process
@pytest.mark.parametrize("service", METHODS)
def test_each_engine_is_found(service: str) -> None:
    with zip_worker(zip_messages(GOOD), service) as address:
        for written in (address, f"grpc://{address}"):
            with fetch_bundle(written) as bundle:
                assert bundle.service == service
                assert bundle.files["vocab.json"].read_bytes() == b"{}"
