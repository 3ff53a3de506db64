"""``mmroute bundle serve`` and ``fetch``, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from bundle_helpers import VLLM, Entry, worker, zip_messages, zip_of

from mmroute.cli import main
from mmroute.errors import Reason
from mmroute.server.bundle import BundleError, client, fetch_bundle


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmroute", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def served(
    *arguments: str, temporary: Path
) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """A running ``mmroute bundle serve``, and what it says of itself."""
    command = [sys.executable, "-m", "mmroute", "bundle", "serve", *arguments, "--json"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline()), process
        finally:
            process.kill()


@pytest.mark.process
def test_serve_and_fetch(small_model: Callable[[str], Path], tmp_path: Path, private: Path) -> None:
    directory, out = small_model("small-gemma-3"), tmp_path / "a" / "b"
    with served(str(directory), "--port", "0", temporary=private) as (told, process):
        assert told["files"] == sorted(path.name for path in directory.iterdir())
        fetched = run("bundle", "fetch", told["address"], "--out", str(out), "--json")
        assert fetched.returncode == 0, fetched.stderr
        said = json.loads(fetched.stdout)
        assert said == {
            "worker": told["address"],
            "service": VLLM,
            "directory": str(out),
            "fingerprint": told["fingerprint"],
            "files": {name: (directory / name).stat().st_size for name in told["files"]},
        }
        for name in told["files"]:
            assert (out / name).read_bytes() == (directory / name).read_bytes()
        again = run("bundle", "fetch", told["address"], "--out", str(out))
        assert (again.returncode, "is there already" in again.stderr) == (2, True)
        taken = run("bundle", "serve", str(directory), "--port", told["address"].split(":")[1])
        assert (taken.returncode, "cannot listen on" in taken.stderr) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_serve_on_a_unix_socket(
    small_model: Callable[[str], Path], tmp_path: Path, private: Path
) -> None:
    socket = tmp_path / "s"
    with served(str(small_model("small-gemma-3")), "--uds", str(socket), temporary=private) as (
        told,
        process,
    ):
        assert told["address"] == f"unix:{socket}"
        with fetch_bundle(told["address"]) as bundle:
            assert bundle.fingerprint == told["fingerprint"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(private.iterdir()) == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Who is started where SIGINT is ignored, as in a shell's background, ignores it as well."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.process
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fetch_that_is_told_to_stop_leaves_nothing(
    number: signal.Signals, tmp_path: Path, private: Path
) -> None:
    go_on, streaming = threading.Event(), threading.Event()

    def answer(_context: grpc.ServicerContext) -> Iterator[bytes]:
        yield zip_messages(zip_of(Entry()), size=9)[0]
        streaming.set()
        go_on.wait(60)

    out = tmp_path / "out"
    with worker({VLLM: answer}) as address:
        command = [sys.executable, "-m", "mmroute", "bundle", "fetch", address, "--out", str(out)]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(private)}
        ) as process:
            try:
                assert streaming.wait(60)
                assert list(private.iterdir()) != []
                process.send_signal(number)
                _, said = process.communicate(timeout=60)
                assert process.returncode == 130, said
                assert said.endswith("mmroute: interrupted\n")  # gRPC may log something before
                assert "Traceback" not in said
            finally:
                process.kill()
                go_on.set()
    assert list(private.iterdir()) == []
    assert not out.exists()


@pytest.mark.process
def test_fetch_that_fails_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with worker({}) as address:
        assert main(["bundle", "fetch", address, "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith("mmroute: bundle_unavailable: ")
    assert main(["bundle", "fetch", "nowhere", "--out", str(out)]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "serve", str(tmp_path)]) == 1
    assert "missing_file" in capsys.readouterr().err
    nested = tmp_path / "additional_chat_templates"
    nested.mkdir()
    (nested / "rag.jinja").write_text("x", encoding="utf-8")
    assert main(["bundle", "serve", str(tmp_path)]) == 1
    assert "rag.jinja cannot be in it" in capsys.readouterr().err


def test_a_socket_in_a_directory_that_is_not_there(
    small_model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, absent = str(small_model("small-gemma-3")), tmp_path / "absent"
    for command in (["bundle", "serve", model], ["serve", model]):
        assert main([*command, "--uds", str(absent / "s")]) == 1
        assert str(absent) in capsys.readouterr().err


def test_what_nobody_answered_is_told_in_full(tmp_path: Path) -> None:
    path = tmp_path / "nobody"
    with pytest.raises(BundleError) as caught:
        fetch_bundle(f"unix:{path}", timeout=60)
    assert caught.value.reason is Reason.BUNDLE_UNAVAILABLE
    assert "No such file or directory" in str(caught.value)
    assert "..." not in str(caught.value)


def test_the_embedded_model_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "serve", "pixtral-12b-2409"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("mmroute: model_not_found: pixtral-12b-2409 is part of a package")
    assert "Serve a model directory" in told


@pytest.mark.process
def test_a_worker_that_is_killed_while_it_streams(
    tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process itself, not its stream: nothing says goodbye."""
    large = tmp_path / "model"
    large.mkdir()
    (large / "big.model").write_bytes(random.Random(0).randbytes(64 << 20))
    receive = client.receive_zip
    with served(str(large), "--port", "0", temporary=tmp_path) as (told, process):

        def messages(call: Iterable[bytes]) -> Iterator[bytes]:
            for message in call:
                yield message
                process.kill()

        monkeypatch.setattr(
            client, "receive_zip", lambda call, *others: receive(messages(call), *others)
        )
        with pytest.raises(BundleError) as caught:
            fetch_bundle(told["address"])
    assert caught.value.reason is Reason.BUNDLE_UNAVAILABLE
    assert list(private.iterdir()) == []
