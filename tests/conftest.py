from __future__ import annotations

import copy
import functools
import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import tokenizers
import urllib3.util.connection  # noqa: F401 - it binds a socket once, to look for IPv6
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer as Loader
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from small_models import SMALL_MODELS, Files, write_model

from mmroute import Normalizer, cli
from mmroute.chat.template import ChatTemplate
from mmroute.model_directory import EMBEDDED_MODEL, JsonValue, ModelFiles, find_model
from mmroute.tokenizers import choice
from mmroute.tokenizers.caching_encoder import may_be_cut
from mmroute.tokenizers.encoders import Encoder, FastEncoder, ReferenceEncoder
from mmroute.tokenizers.formats import mistral
from mmroute.tokenizers.formats.mistral import MistralTokenizer

collect_ignore_glob: Final = ["*conftest.py"]  # no doctests, and all of one name

# How long one example takes depends on what else the machine does. CI draws other ones each time.
hypothesis.settings.register_profile(
    "mmroute", hypothesis.settings.get_profile("default"), deadline=None, max_examples=20
)
hypothesis.settings.load_profile("mmroute")


gc.disable()  # importing the tests makes no garbage worth a dozen searches


def pytest_collection_finish() -> None:
    """Search for garbage less often, and not among the modules and the tests themselves."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def what_nothing_can_change_is_made_once() -> Iterator[None]:
    """Hundreds of tests load the same few chat templates, or call the command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatTemplate, "compile", functools.cache(ChatTemplate.compile))
        patch.setattr(cli, "_parser", functools.cache(cli._parser))
        yield


@pytest.fixture(scope="session", autouse=True)
def the_embedded_model_is_read_once() -> Iterator[None]:
    """Dozens of tests load it as users do; most of that is its vocabulary."""
    parse, read, load = Tekkenizer.from_file, ModelFiles.json, mistral.load_mistral_model
    parsed, loaded = (
        functools.cache(parse),
        functools.cache(lambda: load(find_model(EMBEDDED_MODEL))),
    )
    values: dict[Path, JsonValue] = {}

    def from_file(path: str | Path) -> Tekkenizer:
        found = Path(path).resolve()
        return parsed(found) if found.is_relative_to(Loader._data_path()) else parse(path)

    def json(files: ModelFiles, file: str) -> JsonValue:
        if files.name != EMBEDDED_MODEL:
            return read(files, file)
        path = files.path(file)
        if path not in values:
            values[path] = read(files, file)
        return values[path]

    def load_mistral_model(files: ModelFiles) -> MistralTokenizer:
        return loaded() if files.name == EMBEDDED_MODEL else load(files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tekkenizer, "from_file", from_file)
        patch.setattr(ModelFiles, "json", json)
        patch.setattr(mistral, "load_mistral_model", load_mistral_model)
        yield


@pytest.fixture(scope="session", autouse=True)
def encoders_are_proved_once() -> Iterator[None]:
    """Hundreds of tests load the same few tokenizers; nearly all of that is their encoder's proof.

    A test that puts another library in the place of fastokens gets a proof of its own.
    """
    library = importlib.import_module("fastokens") if find_spec("fastokens") else None
    prove = choice._proved
    proved: dict[str, FastEncoder] = {}
    cut: dict[tuple[str, int], bool] = {}

    def proved_once(backend: tokenizers.Tokenizer, declared: Mapping[str, Any]) -> FastEncoder:
        if sys.modules.get("fastokens") is not library:
            return prove(backend, declared)
        key = backend.to_str()
        if key not in proved:
            proved[key] = prove(backend, declared)
        return proved[key]

    def cut_once(encoder: Encoder, boundaries: Mapping[int, str]) -> bool:
        reference = encoder._reference if isinstance(encoder, FastEncoder) else encoder
        assert isinstance(reference, ReferenceEncoder)
        key = f"{encoder.stats().engine} {reference._backend.to_str()}", len(boundaries)
        if key not in cut:
            cut[key] = may_be_cut(encoder, boundaries)
        return cut[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_proved", proved_once)
        patch.setattr(choice, "may_be_cut", cut_once)
        yield


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a small model, written once."""
    root = tmp_path_factory.mktemp("models")

    def directory(name: str) -> Path:
        path = root / name
        return path if path.is_dir() else write_model(SMALL_MODELS[name](), path)

    return directory


@pytest.fixture(scope="session")
def normalizer(small_model: Callable[[str], Path]) -> Callable[[str], Normalizer]:
    """A loaded model by name: small, or the embedded one; with the model string of its vectors."""
    loaded: dict[str, Normalizer] = {}

    def load(name: str) -> Normalizer:
        if name not in loaded:
            model = str(small_model(name)) if name in SMALL_MODELS else name
            loaded[name] = Normalizer.from_pretrained(model, model_id=f"org/{name}")
        return loaded[name]

    return load


@pytest.fixture
def changed_model(tmp_path: Path) -> Callable[..., Path]:
    """A small model with some of its files changed by a function, or left out."""

    def write(name: str, change: Callable[[Files], object]) -> Path:
        files = copy.deepcopy(SMALL_MODELS[name]())  # models share parts
        change(files)
        return write_model(files, tmp_path / name)

    return write


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made in this test."""
    directory = tmp_path / "private"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "socket.bind", "multiprocessing.start"})
running: list[pytest.Item] = []


def refuse_processes(event: str, _arguments: object) -> None:
    """Keep the tests without the mark what they say they are."""
    if event in STARTS and running and running[-1].get_closest_marker("process") is None:
        pytest.fail(f"{event} in a test that is not marked with pytest.mark.process")


@pytest.fixture(scope="session", autouse=True)
def spawning_is_an_event() -> Iterator[None]:
    """It is none of Python's own."""
    started = BaseProcess.start

    def start(process: BaseProcess) -> None:
        sys.audit("multiprocessing.start")
        started(process)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", start)
        yield


sys.addaudithook(refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    running.append(item)
    yield
    running.pop()
