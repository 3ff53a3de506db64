"""The models of one server: which there are, by which names, and whether they can answer yet."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from mmroute.engines import EngineProfile, EngineSettings, find_engine
from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.fast_paths import FastPaths
from mmroute.health.self_check import check_model
from mmroute.model.files import find_model
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.server.errors import ApiError
from mmroute.server.sampling import SamplingDefaults, sampling_defaults
from mmroute.server.tokenizer_info import tokenizer_info
from mmroute.stages import Stopwatch

__all__ = ["Entry", "LoadedModel", "ModelSource", "ModelStatus", "Models", "NameTakenError"]

_LOG: Final = logging.getLogger(__name__)
_NO_LIMIT: Final = (1 << 31) - 1
_LOADING_AT_A_TIME: Final = 8
_NO_SETTINGS: Final = EngineSettings()


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from, and what it is called.

    Attributes:
        model: as for `Normalizer.from_pretrained`.
        names: by which requests ask for it; the first one is its own.
        model_id: the engine's own model string; None if it is `model`.
        revision: hub branch, tag or commit.
        backend: the engine that is matched.
        engine_settings: what it was started with.
    """

    model: str
    names: tuple[str, ...]
    model_id: str | None = None
    revision: str | None = None
    backend: str = "vllm"
    engine_settings: EngineSettings = _NO_SETTINGS


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can answer.

    Attributes:
        name: its first name, by which metrics and logs know it.
        root: the model as the operator named it.
        model: loaded, checked, its encoder chosen.
        normalizer: of it; what its stages take is counted.
        unlimited: the same without a longest prompt: ``/tokenize`` has none.
        defaults: of sampling parameters.
        tokenizer_info: what ``/tokenizer_info`` answers.
    """

    name: str
    root: str
    model: ResolvedModel
    normalizer: Normalizer
    unlimited: Normalizer
    defaults: SamplingDefaults
    tokenizer_info: Mapping[str, Any]

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest context."""
        return self.model.max_model_len


class NameTakenError(ValueError):
    """A name is that of another model."""


class ModelStatus(StrEnum):
    """How far a model is."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _LoadedFiles:
    """What models with the same files share."""

    model: ResolvedModel
    normalizer: Normalizer
    unlimited: Normalizer
    defaults: SamplingDefaults
    tokenizer_info: Mapping[str, Any]


class Entry:
    """A model of a server, and how far it is.

    Attributes:
        source: of it.
        loaded: the model, once it can answer.
        error: why it cannot; empty if it can, or may yet.
    """

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.loaded: LoadedModel | None = None
        self.error = ""
        self.loading: Future[_LoadedFiles] = Future()

    @property
    def status(self) -> ModelStatus:
        """How far it is."""
        if self.loaded is not None:
            return ModelStatus.READY
        return ModelStatus.FAILED if self.error else ModelStatus.LOADING

    def wait_for(self, loading: Future[_LoadedFiles]) -> None:
        """Take what is being loaded, when it is."""
        self.loading = loading
        loading.add_done_callback(self._take)

    def _take(self, loading: Future[_LoadedFiles]) -> None:
        if loading.cancelled():
            return
        error = loading.exception()
        if error is None:
            found, source = loading.result(), self.source
            self.loaded = LoadedModel(
                source.names[0], source.model, found.model, found.normalizer, found.unlimited,
                found.defaults, found.tokenizer_info,
            )  # fmt: skip
        elif isinstance(error, MmrouteError):
            self.error = f"{error.reason}: {error}"
        else:
            self.error = f"{type(error).__name__}: {error}"
        if self.error:
            unexpected = None if isinstance(error, MmrouteError) else error
            fields = {"names": self.source.names, "text": self.error}
            _LOG.error("model not loaded", exc_info=unexpected, extra={"fields": fields})


class Models:
    """All models of a server. Loading goes on beside it, in threads.

    Those with the same files are loaded once, however many ask for them at a time.

    Args:
        sources: at least one.
        links: permission to follow links to images.
        fast_paths: for each of them.

    Attributes:
        created: when, in seconds since 1970.
        watch: counts what the stages of a request take.

    Raises:
        ValueError: there is none, or two of them share a name.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        *,
        links: ImageLinks | None = None,
        fast_paths: FastPaths | None = None,
    ) -> None:
        self._links = links
        self._fast_paths = fast_paths
        self._lock = threading.Lock()
        self._by_name: dict[str, Entry] = {}
        self._loads: dict[tuple[object, ...], Future[_LoadedFiles]] = {}
        self._pool = ThreadPoolExecutor(_LOADING_AT_A_TIME, thread_name_prefix="mmroute-load")
        self._first = [self._enter(source) for source in dict.fromkeys(sources)]
        if not self._first:
            raise ValueError("at least one model must be served")
        self._backend = sources[0].backend
        self._default = sources[0].names[0]
        self.created: Final = int(time.time())
        self.watch: Final = Stopwatch()

    @property
    def ready(self) -> bool:
        """Whether every model that was there from the beginning, and is still, can answer."""
        return bool(self._by_name) and all(entry.loaded is not None for entry in self._first)

    @property
    def backend(self) -> EngineProfile:
        """The engine that is matched.

        Raises:
            ModelError: `unknown_backend`.
        """
        return find_engine(self._backend)

    def load(self) -> Sequence[Entry]:
        """Begin to load those that were there from the beginning."""
        with self._lock:
            first = tuple(self._first)
            for entry in first:
                self._begin(entry)
        return first

    def add(self, source: ModelSource) -> Entry:
        """Begin to load another one; where it is there already, and has not failed, leave it so.

        Raises:
            NameTakenError: one of its names is another model's.
        """
        with self._lock:
            known = {self._by_name[name] for name in source.names if name in self._by_name}
            living = {entry for entry in known if entry.status is not ModelStatus.FAILED}
            for entry in living:
                if entry.source == source:
                    return entry
            if not living:
                for entry in known:
                    self._forget(entry)
            entry = self._enter(source)
            self._begin(entry)
        return entry

    def remove(self, name: str) -> Entry:
        """Serve a model no longer, by none of its names. What is being answered is answered.

        Raises:
            ApiError: 404.
        """
        with self._lock:
            entry = self.entry(name)
            self._forget(entry)
        _LOG.info("model removed", extra={"fields": {"names": entry.source.names}})
        # A model is full of cycles, and may be all that a quiet server has to collect for long.
        with contextlib.suppress(RuntimeError):  # it is about to stop
            self._pool.submit(gc.collect)
        return entry

    def close(self) -> None:
        """Begin no more loading."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def names(self) -> Iterator[tuple[str, Entry]]:
        """Every name and its model, in the order they came."""
        yield from tuple(self._by_name.items())

    def entries(self) -> Sequence[Entry]:
        """Every model once."""
        return tuple(dict.fromkeys(self._by_name.values()))

    def all_loaded(self) -> Sequence[LoadedModel]:
        """Those that can answer."""
        return [entry.loaded for entry in self.entries() if entry.loaded is not None]

    def entry(self, name: str | None) -> Entry:
        """The model that is served by a name; the first of the command line if there is none.

        Raises:
            ApiError: 404.
        """
        entry = self._by_name.get(name or self._default)
        if entry is None:
            valid = [n for n, e in self.names() if e.status is not ModelStatus.FAILED]
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "NotFoundError",
                f"The model `{name or self._default}` does not exist. Valid aliases: "
                f"{', '.join(valid) or 'none'}.",
                param="model",
            )
        return entry

    def find(self, name: str | None) -> LoadedModel:
        """The model a request asks for; the first one if it names none.

        Raises:
            ApiError: 404 for a name that is not served; 503 while it is being loaded, and where
                that has failed.
        """
        entry = self.entry(name)
        if entry.loaded is not None:
            return entry.loaded
        failed = entry.status is ModelStatus.FAILED
        raise ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            f"The model `{entry.source.names[0]}` "
            + ("could not be loaded; the log says why." if failed else "is being loaded."),
            headers={} if failed else {"retry-after": "1"},
        )

    # These three are called under the lock, or before anyone else knows of this.

    def _enter(self, source: ModelSource) -> Entry:
        if not source.names:
            raise ValueError(f"{source.model} must be served by at least one name")
        taken = [name for name in source.names if name in self._by_name]
        if taken:
            raise NameTakenError(f"two models are served by the name {taken[0]!r}")
        entry = Entry(source)
        self._by_name.update(dict.fromkeys(source.names, entry))
        return entry

    def _forget(self, entry: Entry) -> None:
        for name in entry.source.names:
            del self._by_name[name]
        if entry in self._first:
            self._first.remove(entry)
        shares = [other for other in self.entries() if _files(other.source) == _files(entry.source)]
        if not shares:
            self._loads.pop(_files(entry.source), None)

    def _begin(self, entry: Entry) -> None:
        key = _files(entry.source)
        loading = self._loads.get(key)
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loads[key] = self._pool.submit(self._load, entry.source)
        entry.wait_for(loading)

    def _load(self, source: ModelSource) -> _LoadedFiles:
        began = time.perf_counter()
        normalizer = Normalizer.from_pretrained(
            source.model,
            backend=source.backend,
            model_id=source.model_id,
            revision=source.revision,
            links=self._links,
            fast_paths=self._fast_paths,
            engine_settings=source.engine_settings,
        )
        report = check_model(normalizer.model)
        for warning in report.warnings:
            _LOG.warning("self-check", extra={"fields": {"model": source.model, "text": warning}})
        if not report.healthy:
            raise ModelError(Reason.SELF_CHECK_FAILED, f"{source.model}: {report.failures}")
        encoder = normalizer.stats().encoder  # waits until it is chosen
        model = normalizer.model
        commit = model.commit  # the same files, and no second question to the hub
        files = find_model(source.model, revision=commit or source.revision)
        defaults = sampling_defaults(files.object("generation_config.json"))
        normalizer = replace(normalizer, watch=self.watch)
        unlimited = replace(normalizer, model=replace(normalizer.model, max_model_len=_NO_LIMIT))
        fields = {
            "model": source.model,
            "model_id": model.model_id,
            "model_id_guessed": model.hashing.guessed,
            "encoder": None if encoder is None else encoder.engine,
            "seconds": round(time.perf_counter() - began, 3),
        }
        _LOG.info("model loaded", extra={"fields": fields})
        info = tokenizer_info(files.object("tokenizer_config.json"))
        return _LoadedFiles(model, normalizer, unlimited, defaults, info)


def _files(source: ModelSource) -> tuple[object, ...]:
    settings = repr(source.engine_settings)  # mappings in it have no hash
    return source.model, source.model_id, source.revision, source.backend, settings
