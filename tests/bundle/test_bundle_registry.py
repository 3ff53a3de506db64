"""One tokenizer for each model, whoever asks, and whichever worker dies."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, cast

import grpc
import pytest
from bundle_helpers import VLLM, Answer, hub, metadata, piece, serving, worker, zip_messages
from registry_helpers import ARCHIVE, NEW, OLD, Loader

from mmroute import ImageSize, ModelError, Normalizer, Reason
from mmroute.bundle import Bundle, TokenizerRegistry, fetch_bundle
from mmroute.bundle.files import BUNDLE_FILES, BUNDLE_PATTERNS
from mmroute.bundle.services import FILES_SERVICE
from mmroute.model_directory import MODEL_FILES, TOKENIZER_FILES
from mmroute.tokenizers.fingerprint import fingerprint


@pytest.mark.process
def test_the_source_comes_first(load: Loader, tmp_path: Path, private: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in OLD.items():
        (source / name).write_bytes(content)
    asked: list[str] = []

    def fetch(address: str) -> Bundle:
        asked.append(address)
        return fetch_bundle(address)

    with (
        serving(NEW, tmp_path / "w") as address,
        TokenizerRegistry(load, fetch=fetch) as registry,
    ):
        registry.add("m", source=str(source), workers=[address])
        assert registry.get("m") == b"old"
        assert registry.status("m").origin == str(source)
        assert asked == []
        shutil.rmtree(source)
        assert registry.refresh("m")
        assert registry.get("m") == b"new"
        assert asked == [address]
        assert registry.status("m").origin == address
        assert len(list(private.iterdir())) == 1
    assert list(private.iterdir()) == []


def test_a_changed_source_is_loaded_again(load: Loader, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"old")
    registry = TokenizerRegistry(load)
    registry.add("m", source=str(tmp_path))
    assert registry.get("m") == b"old"
    assert not registry.refresh("m")
    (tmp_path / "tokenizer.json").write_bytes(b"new")
    assert registry.get("m") == b"old"
    assert registry.refresh("m")
    assert registry.get("m") == b"new"
    assert load.loaded == [("m", b"old"), ("m", b"new")]


@pytest.mark.parametrize(
    "name",
    [
        "additional_chat_templates/rag.jinja",
        "tokenizer.model.v3",
        "o200k_base.tiktoken",
        "chat.jinja",
        "video_preprocessor_config.json",
        "params.json",
    ],
)
def test_any_file_that_a_loader_reads_makes_a_source_another(name: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"the same")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"old")
    with TokenizerRegistry(lambda _, directory: (directory / name).read_bytes()) as registry:
        registry.add("m", source=str(tmp_path))
        assert registry.get("m") == b"old"
        file.write_bytes(b"new")
        assert registry.refresh("m")
        assert registry.get("m") == b"new"


@pytest.mark.process
def test_equal_files_have_one_fingerprint_wherever_they_are(load: Loader, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in OLD.items():
        (source / name).write_bytes(content)
    with serving(OLD, tmp_path / "w") as address, TokenizerRegistry(load) as registry:
        registry.add("m", source=str(source))
        registry.add("of a worker", workers=[address])
        assert registry.get("m") == registry.get("of a worker")
        assert registry.status("m").fingerprint == registry.status("of a worker").fingerprint


def test_of_a_hub_name_all_is_fetched_that_a_loader_reads(
    load: Loader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = hub(monkeypatch, tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"old")
    registry = TokenizerRegistry(load)
    registry.add("m", source="org/m")
    assert registry.get("m") == b"old"
    assert {*MODEL_FILES, *TOKENIZER_FILES, *BUNDLE_FILES, *BUNDLE_PATTERNS} <= set(asked)


@pytest.mark.process
def test_all_failures_are_told(load: Loader, tmp_path: Path, private: Path) -> None:
    def refuse(context: grpc.ServicerContext) -> NoReturn:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no tokenizer path")

    with worker({VLLM: refuse}) as one, worker({}) as two:
        registry = TokenizerRegistry(load)
        registry.add("m", source=str(tmp_path / "absent"), workers=[one, two])
        with pytest.raises(ModelError) as caught:
            registry.get("m")
    message = str(caught.value)
    assert caught.value.reason is Reason.TOKENIZER_UNAVAILABLE
    for part in (str(tmp_path / "absent"), one, "no tokenizer path", two, "none of the services"):
        assert part in message
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 3
    assert registry.status("m").workers == {one: None, two: None}
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_what_cannot_be_loaded_leaves_nothing(load: Loader, tmp_path: Path, private: Path) -> None:
    load.fail = ValueError("not a tokenizer")
    with serving(OLD, tmp_path / "w") as address, TokenizerRegistry(load) as registry:
        registry.add("m", workers=[address])
        with pytest.raises(ModelError, match="not a tokenizer"):
            registry.get("m")
        assert list(private.iterdir()) == []
        load.fail = None
        assert registry.get("m") == b"old", "a failure is not kept"


def dying(messages: Sequence[bytes], at: int, code: grpc.StatusCode) -> Answer:
    """A stream that breaks before message `at`."""

    def answer(context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages[:at]
        context.abort(code, "killed")

    return answer


ZIP_STREAM = zip_messages(ARCHIVE, size=len(ARCHIVE) // 7)


def files_stream(directory: Path) -> list[bytes]:
    paths = {}
    for name, content in OLD.items():
        paths[name] = directory / name
        paths[name].write_bytes(content)
    return [
        metadata({name: len(content) for name, content in OLD.items()}, fingerprint(paths)),
        piece("config.json", b"{", 0, last=False),
        piece("config.json", b"}", 1),
        piece("tokenizer.json", b"ol", 0, last=False),
        piece("tokenizer.json", b"d", 1),
    ]


@pytest.mark.process
@pytest.mark.parametrize("protocol", ["zip", "files"])
def test_a_worker_killed_at_any_chunk_hands_over(
    protocol: str, load: Loader, tmp_path: Path, private: Path
) -> None:
    service, stream = (
        (VLLM, ZIP_STREAM) if protocol == "zip" else (FILES_SERVICE, files_stream(tmp_path))
    )
    assert len(stream) > 4
    with serving(OLD, tmp_path / "w") as healthy:
        for at in range(len(stream) + 1):
            answer = dying(stream, at, grpc.StatusCode.UNAVAILABLE)
            with worker({service: answer}) as dead, TokenizerRegistry(load) as registry:
                registry.add("m", workers=[dead, healthy])
                assert registry.get("m") == b"old"
                status = registry.status("m")
                assert status.origin == healthy
                assert status.workers[dead] is None
                assert status.workers[healthy] == status.fingerprint
            assert list(private.iterdir()) == []


class Busy:
    """The lock of a model; `waiting` is released by each thread that waits for it."""

    def __init__(self, registry: TokenizerRegistry[Any]) -> None:
        self.lock, self.waiting = threading.Lock(), threading.Semaphore(0)
        registry._models["m"].busy = cast("threading.Lock", self)

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.waiting.release()
            self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def wait_for(others: int, busy: Busy) -> None:
    for _ in range(others):
        assert busy.waiting.acquire(timeout=10), "a thread does not wait for the one that loads"


@pytest.mark.process
def test_many_ask_and_one_loads(tmp_path: Path) -> None:
    loads: list[str] = []

    def load(name: str, _directory: Path) -> object:
        wait_for(8, busy)
        loads.append(name)
        return object()

    with serving(OLD, tmp_path / "w") as address, TokenizerRegistry(load) as registry:
        registry.add("m", workers=[address])
        busy = Busy(registry)
        with ThreadPoolExecutor(9) as pool:
            found = [each.result(20) for each in [pool.submit(registry.get, "m") for _ in range(9)]]
        assert loads == ["m"]
        assert all(each is found[0] for each in found)
        assert registry.get("m") is found[0]


def test_many_ask_and_all_get_the_one_error(tmp_path: Path) -> None:
    tries: list[str] = []

    def fails(name: str, _directory: Path) -> object:
        if not tries:
            wait_for(4, busy)
        tries.append(name)
        raise ValueError("broken")

    registry = TokenizerRegistry(fails)
    registry.add("m", source=str(tmp_path))
    busy = Busy(registry)
    (tmp_path / "config.json").write_bytes(b"{}")
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(registry.get, "m") for _ in range(5)]
        errors = [each.exception(20) for each in asked]
    assert tries == ["m"]
    assert "broken" in str(errors[0])
    assert all(error is errors[0] for error in errors)
    with pytest.raises(ModelError, match="broken"):
        registry.get("m")
    assert tries == ["m", "m"], "the next call tries again"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_load_is_done_by_one_that_waits(
    interruption: type[BaseException], tmp_path: Path
) -> None:
    tries: list[str] = []

    def load(name: str, _directory: Path) -> str:
        tries.append(name)
        if len(tries) == 1:
            wait_for(3, busy)
            raise interruption
        return name

    registry = TokenizerRegistry(load)
    registry.add("m", source=str(tmp_path))
    busy = Busy(registry)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(registry.get, "m") for _ in range(4)]
        errors = [each.exception(20) for each in asked]
    assert [type(error) for error in errors if error is not None] == [interruption]
    assert tries == ["m", "m"]


def test_other_names_need_not_wait(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    began, go = threading.Event(), threading.Event()

    def load(name: str, _directory: Path) -> str:
        if name == "slow":
            began.set()
            assert go.wait(10)
        return name

    registry = TokenizerRegistry(load)
    registry.add("slow", source=str(tmp_path))
    registry.add("fast", source=str(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(registry.get, "slow")
        assert began.wait(10)
        assert registry.get("fast") == "fast"
        go.set()
        assert slow.result(10) == "slow"


def test_get_goes_on_while_a_refresh_loads(tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()
    (tmp_path / "tokenizer.json").write_bytes(b"old")

    def load(_name: str, directory: Path) -> bytes:
        content = (directory / "tokenizer.json").read_bytes()
        if content == b"new":
            began.set()
            assert go.wait(10)
        return content

    registry = TokenizerRegistry(load)
    registry.add("m", source=str(tmp_path))
    assert registry.get("m") == b"old"
    (tmp_path / "tokenizer.json").write_bytes(b"new")
    with ThreadPoolExecutor(1) as pool:
        refreshed = pool.submit(registry.refresh, "m")
        assert began.wait(10)
        assert registry.get("m") == b"old"
        go.set()
        assert refreshed.result(10)
    assert registry.get("m") == b"new"


@pytest.mark.process
def test_removed_while_it_is_loaded(tmp_path: Path, private: Path) -> None:
    began, go = threading.Event(), threading.Event()

    def load(name: str, _directory: Path) -> str:
        began.set()
        assert go.wait(10)
        return name

    with serving(OLD, tmp_path / "w") as address, ThreadPoolExecutor(1) as pool:
        registry = TokenizerRegistry(load)
        registry.add("m", workers=[address])
        loading = pool.submit(registry.get, "m")
        assert began.wait(10)
        registry.remove("m")
        go.set()
        assert "was removed" in str(loading.exception(10))
    assert list(private.iterdir()) == []


def test_wrong_uses(load: Loader, tmp_path: Path) -> None:
    registry = TokenizerRegistry(load)
    with pytest.raises(ValueError, match="needs a source"):
        registry.add("m")
    registry.add("qwen", source=str(tmp_path))
    with pytest.raises(ValueError, match="registered already"):
        registry.add("qwen", source=str(tmp_path))
    with pytest.raises(ModelError, match="did you mean 'qwen'") as caught:
        registry.get("qwem")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    for worker_of_no_form in ("10.0.0.7", "http://10.0.0.7:50051"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            registry.add("other", workers=["10.0.0.8:50051", worker_of_no_form])
        with pytest.raises(ValueError, match="HOST:PORT"):
            registry.worker_started("qwen", worker_of_no_form)
    assert registry.status("qwen").workers == {}
    registry.remove("qwen")
    with pytest.raises(ModelError, match="registered: none"):
        registry.get("qwen")
    registry.add("embedded", source="pixtral-12b-2409")
    with pytest.raises(ModelError, match="no directory of its own"):
        registry.get("embedded")


@pytest.mark.process
def test_normalizers_from_a_worker(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    directory = small_model("small-qwen2.5-vl")
    contents = {path.name: path.read_bytes() for path in directory.iterdir()}
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": [{"type": "image"}]}],
        "images": [ImageSize(640, 480)],
    }
    expected = Normalizer.from_pretrained(directory, model_id="org/m").normalize(**request)
    registry = TokenizerRegistry(lambda name, path: Normalizer.from_pretrained(path, model_id=name))
    with serving(contents, tmp_path / "w") as address, registry:
        registry.add("org/m", workers=[address])
        normalizer = registry.get("org/m")
        assert normalizer.model.model_id == "org/m"
        assert normalizer.normalize(**request).token_ids.tolist() == expected.token_ids.tolist()
