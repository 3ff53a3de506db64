"""The files of a model from all of its workers, whichever of them dies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from bundle_helpers import (
    VLLM,
    Answer,
    Entry,
    serving,
    worker,
    zip_messages,
    zip_of,
)

from mmroute import ModelError, Reason
from mmroute.server.bundle import Bundle, fetch_bundle, fetch_fleet

OLD = {"config.json": b"{}", "tokenizer.json": b"old"}
NEW = {"config.json": b"{}", "tokenizer.json": b"new"}
ARCHIVE = zip_of(*(Entry(name.encode(), content) for name, content in OLD.items()))


@contextlib.contextmanager
def fleet(tmp_path: Path, *contents: dict[str, bytes]) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(serving(files, tmp_path / f"worker{number}"))
            for number, files in enumerate(contents)
        ]


def content(bundle: Bundle) -> bytes:
    return (bundle.root / "tokenizer.json").read_bytes()


@pytest.mark.process
def test_a_fleet_that_disagrees_is_refused(tmp_path: Path, private: Path) -> None:
    extra = OLD | {"added_tokens.json": b"{}"}
    with fleet(tmp_path, OLD, NEW, OLD, extra) as (one, two, three, four):
        with pytest.raises(ModelError) as caught:
            fetch_fleet("m", [one, two, three, four])
        message = str(caught.value)
        assert caught.value.reason is Reason.FLEET_DISAGREES
        assert "all: added_tokens.json, tokenizer.json;" in message
        assert all(f"{worker} (" in message for worker in (one, two, three, four))
        assert "config.json" not in message
        assert list(private.iterdir()) == []
        with fetch_fleet("m", [one, three]) as bundle:
            assert (bundle.worker, content(bundle)) == (one, b"old")
            assert len(list(private.iterdir())) == 1
        assert list(private.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("position", [0, 1])
def test_one_worker_whose_fetch_fails_in_any_way_is_passed_over(
    position: int, tmp_path: Path
) -> None:
    def fetch(address: str) -> Bundle:
        if address == "broken:1":
            raise ValueError("what a caller's own fetch may raise")
        return fetch_bundle(address)

    with serving(OLD, tmp_path / "w") as address:
        workers = [address]
        workers.insert(position, "broken:1")
        with fetch_fleet("m", workers, fetch=fetch) as bundle:
            assert (bundle.worker, content(bundle)) == (address, b"old")


@pytest.mark.process
def test_an_interrupted_fetch_leaves_nothing(tmp_path: Path, private: Path) -> None:
    def fetch(address: str) -> Bundle:
        if address == two:
            raise KeyboardInterrupt
        return fetch_bundle(address)

    with fleet(tmp_path, OLD, OLD, NEW) as (one, two, three), pytest.raises(KeyboardInterrupt):
        fetch_fleet("m", [one, two, three], fetch=fetch)
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_equal_zips_with_other_times_are_one_fleet(private: Path) -> None:
    """Engines write times into their zips: equal files, another SHA-256."""
    other = zip_of(*(Entry(n.encode(), c, method=0) for n, c in reversed(OLD.items())))
    with (
        worker({VLLM: lambda _: zip_messages(ARCHIVE)}) as one,
        worker({VLLM: lambda _: zip_messages(other)}) as two,
        fetch_fleet("m", [one, two]) as bundle,
    ):
        assert content(bundle) == b"old"
        assert len(list(private.iterdir())) == 1


@pytest.mark.process
def test_all_failures_are_told(private: Path) -> None:
    def refuse(context: grpc.ServicerContext) -> NoReturn:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no tokenizer path")

    with worker({VLLM: refuse}) as one, worker({}) as two, pytest.raises(ModelError) as caught:
        fetch_fleet("org/m", [one, two])
    message = str(caught.value)
    assert caught.value.reason is Reason.TOKENIZER_UNAVAILABLE
    for part in ("org/m", one, "no tokenizer path", two, "none of the services"):
        assert part in message
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 2
    assert list(private.iterdir()) == []


def test_workers_of_no_form() -> None:
    with pytest.raises(ValueError, match="no worker is given"):
        fetch_fleet("m", [])
    for wrong in ("10.0.0.7", "http://10.0.0.7:50051"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            fetch_fleet("m", ["10.0.0.8:50051", wrong])


def dying(messages: Sequence[bytes], at: int, code: grpc.StatusCode) -> Answer:
    """A stream that breaks before message `at`."""

    def answer(context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages[:at]
        context.abort(code, "killed")

    return answer


ZIP_STREAM = zip_messages(ARCHIVE, size=len(ARCHIVE) // 7)


@pytest.mark.process
def test_a_worker_killed_at_any_chunk_hands_over(tmp_path: Path, private: Path) -> None:
    assert len(ZIP_STREAM) > 4
    with serving(OLD, tmp_path / "w") as healthy:
        for at in range(len(ZIP_STREAM) + 1):
            answer = dying(ZIP_STREAM, at, grpc.StatusCode.UNAVAILABLE)
            with worker({VLLM: answer}) as dead, fetch_fleet("m", [dead, healthy]) as bundle:
                assert (bundle.worker, content(bundle)) == (healthy, b"old")
            assert list(private.iterdir()) == []
