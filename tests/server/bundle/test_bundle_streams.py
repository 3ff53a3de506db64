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
from paths import ROOT
from test_bundle_zip import HOSTILE

from mmroute.errors import Reason
from mmroute.server.bundle import BundleError, Fault, Limits, fetch_bundle
from mmroute.server.bundle.bundle_pb2 import ZipChunk
from mmroute.server.bundle.client import SERVICES, receive_zip

GOOD = zip_of(Entry(b"config.json", b"abc" * 999), Entry(b"vocab.json", b"{}"))
SHA = hashlib.sha256(GOOD).hexdigest()


def chunk(data: bytes, sha256: str = "") -> bytes:
    return ZipChunk(data=data, sha256=sha256).SerializeToString()


def refused(messages: Sequence[bytes], **options: Any) -> BundleError:
    """How a worker with this stream of a zip is refused."""
    with zip_worker(messages) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, **options)
    return caught.value


HOSTILE_ZIP_STREAMS: dict[str, tuple[Fault, list[bytes]]] = {
    "nothing": (Fault.MALFORMED_STREAM, []),
    "one message without data": (Fault.MALFORMED_STREAM, [chunk(b"", SHA)]),
    "a piece without data": (
        Fault.MALFORMED_STREAM, [chunk(GOOD[:9]), chunk(b""), chunk(GOOD[9:], SHA)]),
    "pieces without data for ever": (Fault.MALFORMED_STREAM, [chunk(b"")] * 1000),
    "no SHA-256": (Fault.MALFORMED_STREAM, [chunk(GOOD)]),
    "cut short": (Fault.MALFORMED_STREAM, [chunk(GOOD[:99])]),
    "a SHA-256 that comes too early": (
        Fault.MALFORMED_STREAM, [chunk(GOOD[:9], SHA), chunk(GOOD[9:])]),
    "a SHA-256 that comes twice": (
        Fault.MALFORMED_STREAM, [chunk(GOOD[:9], SHA), chunk(GOOD[9:], SHA)]),
    "another SHA-256": (Fault.SHA256_MISMATCH, [chunk(GOOD, "0" * 64)]),
    "one bit of the zip": (Fault.SHA256_MISMATCH, [chunk(GOOD[:-1] + b"\1", SHA)]),
    "half a SHA-256": (Fault.SHA256_MISMATCH, [chunk(GOOD, SHA[:32])]),
    "no hexadecimal": (Fault.SHA256_MISMATCH, [chunk(GOOD, "sha" + SHA[3:])]),
    "no protobuf": (Fault.MALFORMED_STREAM, [b"\xff\xff\xff"]),
    "text that is not UTF-8": (Fault.MALFORMED_STREAM, [b"\x12\x02\xff\xfe"]),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("case", HOSTILE_ZIP_STREAMS)
def test_hostile_streams_of_a_zip(case: str, private: Path) -> None:
    fault, messages = HOSTILE_ZIP_STREAMS[case]
    error = refused(messages)
    assert (error.fault, error.reason) == (fault, Reason.BUNDLE_REFUSED)
    assert list(private.iterdir()) == []


def test_a_sha_256_may_be_in_capitals_and_come_behind_the_last_piece() -> None:
    """As smg's client takes it: crates/grpc_client ``tokenizer_bundle.rs``, its tests."""
    sha = hashlib.sha256(b"abcdef").hexdigest()
    for pieces in ([(b"abc", ""), (b"def", sha.upper())], [(b"abcdef", ""), (b"", sha)]):
        out = io.BytesIO()
        assert receive_zip((chunk(*each) for each in pieces), out, Limits()) == 6
        assert out.getvalue() == b"abcdef"


def test_every_fault_is_tested() -> None:
    tested = {fault for cases in (HOSTILE, HOSTILE_ZIP_STREAMS) for fault, _ in cases.values()}
    calls = {
        Fault.UNREACHABLE, Fault.DEADLINE_EXCEEDED, Fault.NOT_OFFERED, Fault.WORKER_REFUSED,
        Fault.STREAM_BROKEN,
    }  # fmt: skip
    assert tested == set(Fault) - calls


def test_every_fault_is_documented() -> None:
    documented = (ROOT / "docs" / "bundles.md").read_text(encoding="utf-8")
    assert all(f"`{fault}`" in documented for fault in Fault)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.data())
def test_any_cutting_of_a_zip_is_joined_again(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    sha = hashlib.sha256(whole).hexdigest()
    messages = [chunk(each, sha if n == len(pieces) - 1 else "") for n, each in enumerate(pieces)]
    kept = data.draw(st.integers(0, len(messages)))
    out = io.BytesIO()
    if 0 < kept == len(messages):
        assert receive_zip(messages, out, Limits()) == len(whole)
        assert out.getvalue() == whole
    else:
        with pytest.raises(BundleError) as caught:
            receive_zip(messages[:kept], out, Limits())
        assert caught.value.fault is Fault.MALFORMED_STREAM


@pytest.mark.process
def test_too_much_is_refused_while_it_comes(private: Path) -> None:
    sent = 0

    def endless(_context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal sent
        for _ in itertools.count():
            sent += 1 << 16
            yield chunk(bytes(1 << 16))

    limit = 4 << 20
    with worker({VLLM: endless}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, limits=Limits(stream_bytes=limit))
    assert caught.value.fault is Fault.TOO_LARGE
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
    assert caught.value.fault is Fault.DEADLINE_EXCEEDED
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_a_trickle_does_not_renew_the_deadline() -> None:
    def trickle(context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active():
            yield chunk(b"x")
            time.sleep(0.02)

    with worker({VLLM: trickle}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, timeout=0.5)
    assert caught.value.fault is Fault.DEADLINE_EXCEEDED


@pytest.mark.process
def test_who_is_not_there(private: Path) -> None:
    with worker({}) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.fault is Fault.NOT_OFFERED
    assert all(service in str(caught.value) for service in SERVICES)
    with pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert (caught.value.fault, caught.value.reason) == (
        Fault.UNREACHABLE, Reason.BUNDLE_UNAVAILABLE,
    )  # fmt: skip
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
    assert e.value.fault is Fault.WORKER_REFUSED


@pytest.mark.process
@pytest.mark.parametrize("service", SERVICES)
def test_each_engine_is_found(service: str) -> None:
    with zip_worker(zip_messages(GOOD), service) as address:
        for written in (address, f"grpc://{address}"):
            with fetch_bundle(written) as bundle:
                assert bundle.service == service
                assert bundle.files["vocab.json"].read_bytes() == b"{}"


@pytest.mark.process
def test_an_interrupt_leaves_nothing(private: Path) -> None:
    def interrupt(_received: int) -> None:
        raise KeyboardInterrupt

    with zip_worker(zip_messages(GOOD)) as address, pytest.raises(KeyboardInterrupt):
        fetch_bundle(address, progress=interrupt)
    assert list(private.iterdir()) == []
