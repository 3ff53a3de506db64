"""The server of bundles, and the code others have for the same protocol."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import random
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import grpc
import pytest
import smg_grpc_proto.generated as smg_proto
from bundle_helpers import VLLM, hub, serving
from paths import ROOT
from smg_grpc_proto.generated import (
    common_pb2,
    mlx_engine_pb2_grpc,
    sglang_scheduler_pb2_grpc,
    tokenspeed_scheduler_pb2_grpc,
    trtllm_service_pb2_grpc,
    vllm_engine_pb2_grpc,
)
from smg_grpc_servicer.tokenizer_bundle import (
    TOKENIZER_FILES,
    TOKENIZER_GLOBS,
    tokenizer_bundle,
    tokenizer_chunks,
)

import mmroute
from mmroute import Normalizer
from mmroute.cli import main
from mmroute.model_directory import MODEL_FILES, find_model
from mmroute.server.bundle import BundleError, fetch_bundle
from mmroute.server.bundle.client import METHODS, ZipChunk
from mmroute.server.bundle.files import BUNDLE_FILES, BUNDLE_PATTERNS, files_of
from mmroute.server.bundle.server import create_server

STUBS: dict[str, Callable[[grpc.Channel], Any]] = {
    "vllm.grpc.engine.VllmEngine": vllm_engine_pb2_grpc.VllmEngineStub,
    "sglang.grpc.scheduler.SglangScheduler": sglang_scheduler_pb2_grpc.SglangSchedulerStub,
    "trtllm.TrtllmService": trtllm_service_pb2_grpc.TrtllmServiceStub,
    "tokenspeed.grpc.scheduler.TokenSpeedScheduler": (
        tokenspeed_scheduler_pb2_grpc.TokenSpeedSchedulerStub
    ),
    "mlx.grpc.engine.MlxEngine": mlx_engine_pb2_grpc.MlxEngineStub,
}
CONTENTS = {
    "config.json": b"{}",
    "empty.jinja": b"",
    "exact.model": bytes(64 << 10),
    "tokenizer.json": bytes(range(256)) * 999,
}


def test_our_chunk_is_theirs_on_the_wire() -> None:
    ours = ZipChunk.DESCRIPTOR.fields
    theirs = common_pb2.GetTokenizerChunk.DESCRIPTOR.fields
    assert [(f.name, f.number, f.type) for f in ours] == [
        (f.name, f.number, f.type) for f in theirs
    ]
    assert not common_pb2.GetTokenizerRequest.DESCRIPTOR.fields


def test_the_services_are_those_of_the_stubs() -> None:
    assert tuple(STUBS) == tuple(METHODS)
    channel: Any = _Recorder()
    for stub in STUBS.values():
        stub(channel)
    assert {*METHODS.values()} == {path for path in channel.paths if path.endswith("/GetTokenizer")}
    with_it = {
        line.split("'")[1]
        for module in Path(next(iter(smg_proto.__path__))).glob("*_pb2_grpc.py")
        for line in module.read_text(encoding="utf-8").splitlines()
        if "/GetTokenizer'" in line
    }
    assert with_it == {*METHODS.values()}


class _Recorder:
    """A channel that notes which calls a stub has."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def _note(self, path: str, **_: object) -> None:
        self.paths.append(path)

    unary_unary = unary_stream = stream_unary = stream_stream = _note


def test_files_of_the_engines_are_among_ours() -> None:
    assert set(TOKENIZER_FILES) <= set(BUNDLE_FILES)
    assert {*TOKENIZER_GLOBS, "tokenizer.model.v*"} == {*BUNDLE_PATTERNS}
    assert {name for name in MODEL_FILES if not {"/", "*"} & set(name)} <= set(BUNDLE_FILES)
    documented = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    by_pattern = {n for n in BUNDLE_FILES if any(fnmatchcase(n, p) for p in TOKENIZER_GLOBS)}
    left_out = {*BUNDLE_FILES} - {*TOKENIZER_FILES} - by_pattern
    assert {"params.json", "tekken.json"} <= left_out
    assert all(f"`{name}`" in documented for name in left_out), "what engines leave out"


@pytest.mark.process
@pytest.mark.parametrize("service", STUBS)
def test_their_stubs_take_our_zip(service: str, tmp_path: Path) -> None:
    with serving(CONTENTS, tmp_path / "w") as address, grpc.insecure_channel(address) as channel:
        chunks = list(STUBS[service](channel).GetTokenizer(common_pb2.GetTokenizerRequest()))
    assert [chunk.sha256 != "" for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    whole = b"".join(chunk.data for chunk in chunks)
    assert hashlib.sha256(whole).hexdigest() == chunks[-1].sha256
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == CONTENTS


class _Vllm(vllm_engine_pb2_grpc.VllmEngineServicer):  # type: ignore[misc]  # untyped
    """GetTokenizer as the engines' servicers have it, around their own two functions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def GetTokenizer(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        data, sha256 = await tokenizer_bundle(self._directory)
        for chunk in tokenizer_chunks(data, sha256):
            yield chunk


@contextlib.contextmanager
def smg_worker(directory: Path) -> Iterator[str]:
    """The address of an engine's gRPC server, without the engine."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    port = 0
    stop = asyncio.Event()

    async def serve() -> None:
        nonlocal port
        server = grpc.aio.server()
        vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(_Vllm(directory), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready.set()
        await stop.wait()
        await server.stop(None)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_the_zip_of_a_real_servicer_is_taken(small_model: Callable[[str], Path]) -> None:
    directory = small_model("small-qwen2.5-vl")
    with smg_worker(directory) as address, fetch_bundle(address) as bundle:
        assert bundle.service == "vllm.grpc.engine.VllmEngine"
        expected = {path.name: path.read_bytes() for path in directory.iterdir()}
        assert {name: path.read_bytes() for name, path in bundle.files.items()} == expected
        ours = Normalizer.from_pretrained(bundle.root, model_id="m")
        theirs = Normalizer.from_pretrained(directory, model_id="m")
        request: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
        sizes = [mmroute.ImageSize(640, 480)]
        assert (
            ours.normalize(**request, images=sizes).token_ids.tolist()
            == theirs.normalize(**request, images=sizes).token_ids.tolist()
        )


@pytest.mark.process
def test_what_is_served_is_what_was_there_at_the_start(tmp_path: Path) -> None:
    source = tmp_path / "config.json"
    source.write_bytes(b"old")
    server = create_server({"config.json": source}, tmp_path / "zip")
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    source.write_bytes(b"new")
    with fetch_bundle(f"127.0.0.1:{port}") as bundle:
        assert bundle.files["config.json"].read_bytes() == b"old"
    server.stop(None).wait()


@contextlib.contextmanager
def stalled(address: str, count: int) -> Iterator[None]:
    """Calls of clients that have read one message, and read no more."""
    # With a window that grows, gRPC itself may take all of a stream that its client does not read.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            channel = stack.enter_context(grpc.insecure_channel(address, options=options))
            ask: Any = channel.unary_stream(METHODS[VLLM])
            call = ask(b"")
            stack.callback(call.cancel)
            next(call)
        yield


@contextlib.contextmanager
def full_of_stalled_clients(directory: Path, longest_stream: float) -> Iterator[str]:
    """The address of a server all of whose streams have clients that do not read."""
    (directory / "big.model").write_bytes(random.Random(0).randbytes(16 << 20))
    files = {"big.model": directory / "big.model"}
    server = create_server(files, directory / "zip", longest_stream=longest_stream)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with stalled(address, 16):
            yield address
    finally:
        server.stop(None).wait()


@pytest.mark.process
def test_others_are_refused_at_once_while_clients_do_not_read(
    tmp_path: Path, private: Path
) -> None:
    with full_of_stalled_clients(tmp_path, 600) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address, timeout=300)
    assert "RESOURCE_EXHAUSTED" in str(caught.value)
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_clients_that_do_not_read_delay_others_for_a_limited_time(
    tmp_path: Path, private: Path
) -> None:
    with full_of_stalled_clients(tmp_path, 0.5) as address:
        for _ in range(600):
            with contextlib.suppress(BundleError), fetch_bundle(address, timeout=300) as bundle:
                assert bundle.files["big.model"].stat().st_size == 16 << 20
                break
            time.sleep(0.1)
        else:
            pytest.fail("streams that are not read go on for ever")
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_a_proxy_for_the_web_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(CONTENTS, tmp_path / "w") as address, fetch_bundle(address, timeout=60) as bundle:
        assert {n: p.read_bytes() for n, p in bundle.files.items()} == CONTENTS


def test_of_a_hub_name_all_is_fetched_that_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else two workers of one name serve what their caches happen to hold."""
    asked = hub(monkeypatch, tmp_path)
    assert main(["bundle", "serve", "org/m"]) == 1
    assert "missing_file" in capsys.readouterr().err
    assert {*BUNDLE_FILES, *BUNDLE_PATTERNS} <= set(asked)
    assert {name for name in MODEL_FILES if "/" in name} <= set(asked), "or they are not refused"


def test_links_of_a_hub_snapshot_are_followed(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(b"{}")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").symlink_to(blob)
    (snapshot / "model.safetensors").write_bytes(b"weights")
    found = files_of(find_model(str(snapshot)))
    assert list(found) == ["config.json"]
    create_server(found, tmp_path / "zip")
    with zipfile.ZipFile(tmp_path / "zip") as archive:
        assert archive.read("config.json") == b"{}"
