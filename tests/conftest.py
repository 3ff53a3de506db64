from __future__ import annotations

import gc
import logging
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import hypothesis
import loaded_once
import pytest
import urllib3.util.connection  # noqa: F401 - it binds a socket once, to look for IPv6
from small_models import ALL_MODELS, Files, write_model

from mmroute import Normalizer

collect_ignore_glob: Final = ["*conftest.py"]  # no doctests, and all of one name

# How long one example takes depends on what else the machine does. CI draws other ones each time,
# and tests/slow draws more.
hypothesis.settings.register_profile(
    "mmroute",
    hypothesis.settings.get_profile("default"),
    deadline=None,
    max_examples=int(os.environ.get("MMROUTE_EXAMPLES", "12")),
)
hypothesis.settings.load_profile("mmroute")


# What a shell says about its terminal, its colours and its language decides no answer.
for variable in (
    "COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE",
):  # fmt: skip
    os.environ.pop(variable, None)

# A test holds both ends of 900 connections, and many systems start with a limit of 1,024 files.
_FILES: Final = 4096


def allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unpatched",
        action="store_true",
        help="load each tokenizer and template as often as the tests ask for it",
    )


def pytest_configure(config: pytest.Config) -> None:
    allow_files()
    if not config.getoption("--unpatched"):
        config.pluginmanager.register(loaded_once)


gc.disable()  # importing the tests makes no garbage worth a dozen searches


def pytest_collection_finish() -> None:
    """Search for garbage less often, and not among the modules and the tests themselves."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a small model, written once."""
    root = tmp_path_factory.mktemp("models")

    def directory(name: str) -> Path:
        path = root / name
        return path if path.is_dir() else write_model(ALL_MODELS[name](), path)

    return directory


@pytest.fixture(scope="session")
def normalizer(small_model: Callable[[str], Path]) -> Callable[[str], Normalizer]:
    """A loaded model by name: small, or the embedded one; with the model string of its vectors."""
    loaded: dict[str, Normalizer] = {}

    def load(name: str) -> Normalizer:
        if name not in loaded:
            model = str(small_model(name)) if name in ALL_MODELS else name
            loaded[name] = Normalizer.from_pretrained(model, model_id=f"org/{name}")
        return loaded[name]

    return load


@pytest.fixture
def changed_model(tmp_path: Path) -> Callable[..., Path]:
    """A small model with some of its files changed by a function, or left out."""

    def write(name: str, change: Callable[[Files], object]) -> Path:
        files = ALL_MODELS[name]()
        change(files)
        return write_model(files, tmp_path / name)

    return write


@pytest.fixture
def hub_commit(
    small_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The commit of a model in the hub's cache, `someone/small`; nothing can be fetched."""
    commit = "0" * 40
    repo = tmp_path / "models--someone--small"
    shutil.copytree(small_model("small-qwen2.5-vl"), repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return commit


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


@pytest.fixture(autouse=True)
def logs_are_those_of_the_test() -> Iterator[None]:
    """A server that a test starts in its own process writes to the standard error of that test."""
    loggers = [logging.getLogger(name) for name in ("mmroute", "asyncio")]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        if logger.level != level:  # to set it makes all loggers forget what they keep
            logger.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def there_is_no_terminal() -> Iterator[None]:
    """With ``-s`` the standard output may be one, whose width tables would take."""

    def size(*_: object) -> os.terminal_size:
        raise OSError("a test asks for no terminal")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.get_terminal_size", size)
        yield


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
