"""A registry and its workers: they must agree, restart, come and go."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bundle_helpers import VLLM, Entry, serving, worker, zip_messages, zip_of
from registry_helpers import ARCHIVE, NEW, OLD, Loader, fleet

from mmroute import ModelError, Reason
from mmroute.bundle import Bundle, BundleError, Fault, FleetError, TokenizerRegistry, fetch_bundle


@pytest.mark.process
def test_a_fleet_that_disagrees_is_refused(load: Loader, tmp_path: Path, private: Path) -> None:
    extra = OLD | {"added_tokens.json": b"{}"}
    with fleet(tmp_path, OLD, NEW, OLD, extra) as (one, two, three, four):
        registry = TokenizerRegistry(load)
        registry.add("m", workers=[one, two, three, four])
        with pytest.raises(FleetError) as caught:
            registry.get("m")
        message = str(caught.value)
        assert caught.value.reason is Reason.FLEET_DISAGREES
        assert caught.value.files == ("added_tokens.json", "tokenizer.json")
        assert f"at {one} and {three}" in message
        assert f"at {two}" in message
        assert f"none at {one}" in message
        assert "config.json" not in message
        assert load.loaded == []
        assert list(private.iterdir()) == []
        with pytest.raises(FleetError) as again:
            registry.get("m")
        assert again.value is caught.value, "no second look before something is said"
        registry.worker_stopped("m", two)
        registry.worker_stopped("m", four)
        assert registry.get("m") == b"old"
        registry.close()


@pytest.mark.process
def test_a_worker_that_is_gone_before_all_answered_refuses_nothing(
    load: Loader, tmp_path: Path, private: Path
) -> None:
    began, go = threading.Event(), threading.Event()

    def fetch(address: str) -> Bundle:
        if address == two:
            began.set()
            assert go.wait(10)
        return fetch_bundle(address)

    with (
        fleet(tmp_path, OLD, NEW) as (one, two),
        TokenizerRegistry(load, fetch=fetch) as registry,
        ThreadPoolExecutor(1) as pool,
    ):
        registry.add("m", workers=[one, two])
        first = pool.submit(registry.get, "m")
        assert began.wait(10)
        registry.worker_stopped("m", one)
        go.set()
        assert first.result(10) == b"new"
        assert registry.get("m") == b"new"
        assert registry.status("m").workers == {two: registry.status("m").fingerprint}
        assert len(list(private.iterdir())) == 1
    assert list(private.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("position", [0, 1])
def test_one_worker_whose_fetch_fails_in_any_way_is_passed_over(
    position: int, load: Loader, tmp_path: Path
) -> None:
    def fetch(address: str) -> Bundle:
        if address == "broken:1":
            raise ValueError("what a caller's own fetch may raise")
        return fetch_bundle(address)

    with serving(OLD, tmp_path / "w") as address, TokenizerRegistry(load, fetch=fetch) as registry:
        workers = [address]
        workers.insert(position, "broken:1")
        registry.add("m", workers=workers)
        assert registry.get("m") == b"old"
        assert registry.status("m").workers["broken:1"] is None


@pytest.mark.process
def test_an_interrupted_fetch_of_a_fleet_leaves_nothing(
    load: Loader, tmp_path: Path, private: Path
) -> None:
    def fetch(address: str) -> Bundle:
        if address == two:
            raise KeyboardInterrupt
        return fetch_bundle(address)

    with fleet(tmp_path, OLD, OLD, NEW) as (one, two, three):
        registry = TokenizerRegistry(load, fetch=fetch)
        registry.add("m", workers=[one, two, three])
        with pytest.raises(KeyboardInterrupt):
            registry.get("m")
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_equal_zips_with_other_times_are_one_fleet(load: Loader, private: Path) -> None:
    """Engines write times into their zips: equal files, another SHA-256."""
    other = zip_of(*(Entry(n.encode(), c, method=0) for n, c in reversed(OLD.items())))
    with (
        worker({VLLM: lambda _: zip_messages(ARCHIVE)}) as one,
        worker({VLLM: lambda _: zip_messages(other)}) as two,
        TokenizerRegistry(load) as registry,
    ):
        registry.add("m", workers=[one, two])
        assert registry.get("m") == b"old"
        assert len(set(registry.status("m").workers.values())) == 1
        assert len(list(private.iterdir())) == 1


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.process
def test_a_worker_restarts_with_the_same_files(load: Loader, tmp_path: Path, private: Path) -> None:
    with TokenizerRegistry(load) as registry:
        with serving(OLD, tmp_path / "before") as address:
            registry.add("m", workers=[address])
            before = registry.get("m")
        with pytest.raises(BundleError) as caught:
            registry.worker_started("m", address)
        assert caught.value.fault is Fault.UNREACHABLE
        assert registry.status("m").workers == {address: None}
        assert registry.get("m") is before
        with serving(OLD, tmp_path / "after", port_of(address)):
            assert not registry.worker_started("m", address)
        assert registry.get("m") is before
        assert len(load.loaded) == 1
        assert registry.status("m").workers == {address: registry.status("m").fingerprint}
        assert len(list(private.iterdir())) == 1
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_a_worker_restarts_with_other_files(load: Loader, tmp_path: Path, private: Path) -> None:
    with TokenizerRegistry(load) as registry:
        with serving(OLD, tmp_path / "before") as address:
            registry.add("m", workers=[address])
            assert registry.get("m") == b"old"
            (directory,) = private.iterdir()
        with serving(NEW, tmp_path / "after", port_of(address)):
            assert registry.worker_started("m", address)
        assert registry.get("m") == b"new"
        assert not directory.exists()
        assert len(list(private.iterdir())) == 1


@pytest.mark.process
def test_a_rolling_update_is_refused_until_all_agree(
    load: Loader, tmp_path: Path, private: Path
) -> None:
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        one = first.enter_context(serving(OLD, tmp_path / "one"))
        two = second.enter_context(serving(OLD, tmp_path / "two"))
        registry = TokenizerRegistry(load)
        registry.add("m", workers=[one, two])
        assert registry.get("m") == b"old"
        first.close()
        with serving(NEW, tmp_path / "one again", port_of(one)):
            with pytest.raises(FleetError):
                registry.worker_started("m", one)
            with pytest.raises(FleetError):
                registry.get("m")
            assert registry.status("m").refused is not None
            assert registry.status("m").origin is None
            assert list(private.iterdir()) == []
            second.close()
            with serving(NEW, tmp_path / "two again", port_of(two)):
                assert registry.worker_started("m", two)
                assert registry.get("m") == b"new"
                assert registry.status("m").refused is None
        registry.close()


@pytest.mark.process
def test_a_worker_joins(load: Loader, tmp_path: Path) -> None:
    with fleet(tmp_path, OLD, OLD, NEW) as (one, two, three), TokenizerRegistry(load) as registry:
        registry.add("m", workers=[one])
        assert not registry.worker_started("m", two), "nothing is loaded yet"
        assert registry.get("m") == b"old"
        assert registry.status("m").workers[two] == registry.status("m").fingerprint
        with pytest.raises(FleetError):
            registry.worker_started("m", three)
        registry.worker_stopped("m", three)
        assert registry.get("m") == b"old"


@pytest.mark.process
def test_a_worker_that_does_not_answer_delays_no_other(load: Loader, tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()

    def fetch(address: str) -> Bundle:
        if address == "silent:1":
            began.set()
            assert go.wait(10)
            raise BundleError(Fault.DEADLINE_EXCEEDED, "silent")
        return fetch_bundle(address)

    with (
        fleet(tmp_path, OLD, OLD) as (one, two),
        TokenizerRegistry(load, fetch=fetch) as registry,
        ThreadPoolExecutor(2) as pool,
    ):
        registry.add("m", workers=[one])
        assert registry.get("m") == b"old"
        silent = pool.submit(registry.worker_started, "m", "silent:1")
        assert began.wait(10)
        try:
            assert not pool.submit(registry.worker_started, "m", two).result(5)
            assert not go.is_set()
        finally:
            go.set()
        assert isinstance(silent.exception(10), BundleError)
        equal = registry.status("m").fingerprint
        assert registry.status("m").workers == {one: equal, "silent:1": None, two: equal}


@pytest.mark.process
def test_a_worker_that_starts_while_the_fleet_is_asked_is_compared(
    load: Loader, tmp_path: Path
) -> None:
    began, go = threading.Event(), threading.Event()

    def fetch(address: str) -> Bundle:
        if address == one and not began.is_set():
            began.set()
            assert go.wait(10)
        return fetch_bundle(address)

    with (
        fleet(tmp_path, OLD, NEW) as (one, two),
        TokenizerRegistry(load, fetch=fetch) as registry,
        ThreadPoolExecutor(2) as pool,
    ):
        registry.add("m", workers=[one])
        first = pool.submit(registry.get, "m")
        assert began.wait(10)
        started = pool.submit(registry.worker_started, "m", two)
        go.set()
        assert isinstance(first.exception(10), FleetError | None)
        assert isinstance(started.exception(10), FleetError | None)
        with pytest.raises(FleetError):
            registry.get("m")


@pytest.mark.process
def test_a_refresh_without_anyone_keeps_what_is_loaded(load: Loader, tmp_path: Path) -> None:
    with serving(OLD, tmp_path / "w") as address:
        registry = TokenizerRegistry(load)
        registry.add("m", workers=[address])
        assert registry.get("m") == b"old"
    with pytest.raises(ModelError, match="Nobody answers"):
        registry.refresh("m")
    assert registry.get("m") == b"old"
    registry.close()
