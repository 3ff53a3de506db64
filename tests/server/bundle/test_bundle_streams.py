"""Streams that workers send, by both protocols, over gRPC."""

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
    files_worker,
    metadata,
    piece,
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
from mmroute.server.bundle.services import ENGINE_SERVICES, FILES_SERVICE, SERVICES
from mmroute.server.bundle.streams import receive_zip
from mmroute.tokenizers.fingerprint import fingerprint

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
    "nothing": (Fault.EMPTY_STREAM, []),
    "one message without data": (Fault.EMPTY_STREAM, [chunk(b"", SHA)]),
    "a piece without data": (
        Fault.EMPTY_CHUNK, [chunk(GOOD[:9]), chunk(b""), chunk(GOOD[9:], SHA)]),
    "pieces without data for ever": (Fault.EMPTY_CHUNK, [chunk(b"")] * 1000),
    "no SHA-256": (Fault.SHA256_MISSING, [chunk(GOOD)]),
    "cut short": (Fault.SHA256_MISSING, [chunk(GOOD[:99])]),
    "a SHA-256 that comes too early": (
        Fault.SHA256_NOT_LAST, [chunk(GOOD[:9], SHA), chunk(GOOD[9:])]),
    "a SHA-256 that comes twice": (
        Fault.SHA256_NOT_LAST, [chunk(GOOD[:9], SHA), chunk(GOOD[9:], SHA)]),
    "another SHA-256": (Fault.SHA256_MISMATCH, [chunk(GOOD, "0" * 64)]),
    "one bit of the zip": (Fault.SHA256_MISMATCH, [chunk(GOOD[:-1] + b"\1", SHA)]),
    "half a SHA-256": (Fault.SHA256_MALFORMED, [chunk(GOOD, SHA[:32])]),
    "no hexadecimal": (Fault.SHA256_MALFORMED, [chunk(GOOD, "sha" + SHA[3:])]),
    "no protobuf": (Fault.MALFORMED_MESSAGE, [b"\xff\xff\xff"]),
    "text that is not UTF-8": (Fault.MALFORMED_MESSAGE, [b"\x12\x02\xff\xfe"]),
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


FILES = {"config.json": b"12345", "empty.jinja": b"", "vocab.json": b"{}"}


def print_of(files: dict[str, bytes], directory: Path) -> str:
    paths = {}
    for name, content in files.items():
        paths[name] = directory / name
        paths[name].write_bytes(content)
    return fingerprint(paths)


def good_files(directory: Path) -> list[bytes]:
    sizes = {name: len(content) for name, content in FILES.items()}
    return [
        metadata(sizes, print_of(FILES, directory)),
        piece("config.json", b"123", 0, last=False),
        piece("config.json", b"45", 1),
        piece("empty.jinja", b""),
        piece("vocab.json", b"{}"),
    ]


ONE = metadata({"config.json": 2})
HOSTILE_FILE_STREAMS: dict[str, tuple[Fault, list[bytes]]] = {
    "nothing": (Fault.EMPTY_STREAM, []),
    "no metadata": (Fault.METADATA_MISSING, [piece("config.json", b"{}")]),
    "an empty message": (Fault.METADATA_MISSING, [b""]),
    "metadata twice": (Fault.METADATA_REPEATED, [ONE, ONE]),
    "metadata at the end": (Fault.METADATA_REPEATED, [ONE, piece("config.json", b"{}"), ONE]),
    "an empty message later": (Fault.MALFORMED_MESSAGE, [ONE, b""]),
    "no protobuf": (Fault.MALFORMED_MESSAGE, [ONE, b"\xff"]),
    "another format": (Fault.UNKNOWN_FORMAT, [metadata({"config.json": 2}, kind="zip")]),
    "no files": (Fault.NO_FILES, [metadata({})]),
    "51 files": (Fault.TOO_MANY_FILES, [metadata({f"{n}.jinja": 1 for n in range(51)})]),
    "two dots": (Fault.TRAVERSAL, [metadata({"../evil.jinja": 1})]),
    "an absolute path": (Fault.ABSOLUTE_PATH, [metadata({"/evil.jinja": 1})]),
    "weights": (Fault.NOT_A_TOKENIZER_FILE, [metadata({"model.safetensors": 1})]),
    "names that differ in case": (
        Fault.CASE_COLLISION, [metadata({"a.jinja": 1, "A.jinja": 1})]),
    "more is claimed than may be": (
        Fault.STREAM_TOO_LARGE, [metadata({"a.model": 150 << 20, "b.model": 150 << 20})]),
    "the largest size there is": (Fault.STREAM_TOO_LARGE, [metadata({"a.model": (1 << 64) - 1})]),
    "only metadata": (Fault.LAST_CHUNK_MISSING, [ONE]),
    "no last piece": (
        Fault.LAST_CHUNK_MISSING, [ONE, piece("config.json", b"{}", last=False)]),
    "a file that was not announced": (Fault.FILE_OUT_OF_ORDER, [ONE, piece("vocab.json", b"{}")]),
    "a path that was not announced": (Fault.FILE_OUT_OF_ORDER, [ONE, piece("../evil", b"{}")]),
    "files in another order": (
        Fault.FILE_OUT_OF_ORDER,
        [metadata({"config.json": 2, "vocab.json": 2}), piece("vocab.json", b"{}")]),
    "files mixed": (
        Fault.FILE_OUT_OF_ORDER,
        [metadata({"config.json": 2, "vocab.json": 2}), piece("config.json", b"{", last=False),
         piece("vocab.json", b"{}")]),
    "a first index of 1": (Fault.INDEX_GAP, [ONE, piece("config.json", b"{}", 1)]),
    "an index left out": (
        Fault.INDEX_GAP,
        [ONE, piece("config.json", b"{", 0, last=False), piece("config.json", b"}", 2)]),
    "an index twice": (
        Fault.INDEX_GAP,
        [ONE, piece("config.json", b"{", 0, last=False), piece("config.json", b"}", 0)]),
    "an index that counts the bundle": (
        Fault.INDEX_GAP,
        [metadata({"config.json": 2, "vocab.json": 2}), piece("config.json", b"{}", 0),
         piece("vocab.json", b"{}", 1)]),
    "a piece without data": (Fault.EMPTY_CHUNK, [ONE, piece("config.json", b"", last=False)]),
    "a last piece without data": (
        Fault.EMPTY_CHUNK,
        [ONE, piece("config.json", b"{}", 0, last=False), piece("config.json", b"", 1)]),
    "an empty file that goes on": (
        Fault.EMPTY_CHUNK,
        [metadata({"config.json": 0}), piece("config.json", b"", last=False)]),
    "an empty file with data": (
        Fault.SIZE_MISMATCH, [metadata({"config.json": 0}), piece("config.json", b"{}")]),
    "more than claimed": (Fault.SIZE_MISMATCH, [ONE, piece("config.json", b"{} ")]),
    "more than claimed, to come": (
        Fault.SIZE_MISMATCH, [ONE, piece("config.json", b"{} ", last=False)]),
    "less than claimed": (Fault.SIZE_MISMATCH, [ONE, piece("config.json", b"{")]),
    "a piece after the last": (
        Fault.CHUNK_AFTER_END, [ONE, piece("config.json", b"{}"), piece("config.json", b"x", 1)]),
    "another fingerprint": (Fault.FINGERPRINT_MISMATCH, [ONE, piece("config.json", b"{}")]),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("case", HOSTILE_FILE_STREAMS)
def test_hostile_streams_of_files(case: str, private: Path) -> None:
    fault, messages = HOSTILE_FILE_STREAMS[case]
    with files_worker(messages) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert (caught.value.fault, caught.value.reason) == (fault, Reason.BUNDLE_REFUSED)
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_files_arrive_as_they_were_sent(tmp_path: Path, private: Path) -> None:
    told, messages = list[int](), good_files(tmp_path)
    with (
        files_worker(messages) as address,
        fetch_bundle(address, progress=told.append) as bundle,
    ):
        assert {name: path.read_bytes() for name, path in bundle.files.items()} == FILES
        assert bundle.fingerprint == print_of(FILES, tmp_path)
        assert bundle.service == FILES_SERVICE
    assert told == list(itertools.accumulate(map(len, messages)))
    assert list(private.iterdir()) == []


def test_every_fault_is_tested() -> None:
    of_streams = (HOSTILE, HOSTILE_ZIP_STREAMS, HOSTILE_FILE_STREAMS)
    tested = {fault for cases in of_streams for fault, _ in cases.values()}
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
        assert caught.value.fault is (Fault.SHA256_MISSING if kept else Fault.EMPTY_STREAM)


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
    assert caught.value.fault is Fault.STREAM_TOO_LARGE
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
@pytest.mark.parametrize("service", ENGINE_SERVICES)
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
