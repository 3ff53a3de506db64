"""The models of one server: which there are, by which names, and whether they can answer yet."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Final

from mmroute.answering.stages import Stopwatch
from mmroute.engines.known import behind_frontend, find_engine
from mmroute.engines.profile import EngineProfile
from mmroute.engines.vllm.api import ApiError, LoadedModel, Release, release_of
from mmroute.errors import MmrouteError, ModelError
from mmroute.images.known_files import KnownFiles
from mmroute.net.links import ImageLinks
from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.changes import Change
from mmroute.server.loading import ModelSource, load

_LOG: Final = logging.getLogger(__name__)
_LOADING_AT_A_TIME: Final = 8


class NameTakenError(ValueError):
    """A name is that of another model."""


class ModelStatus(StrEnum):
    """The state of a model's loading."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class _FailedElsewhereError(Exception):
    """Another process could not load a model; says why."""


class Entry:
    """A served model, and the state of its loading.

    Attributes:
        source: the model's source.
        loaded: the model, once it can answer.
        error: the reason why it cannot answer; empty if it can, or may yet.
        files: the reading of its files, which other models may share.
        loading: ends once `loaded` or `error` is set.
        replacement: the entry that takes its place when it is loaded, or could not be.
        release: the release of vLLM whose requests it takes.
    """

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.loaded: LoadedModel | None = None
        self.error = ""
        self.files: Future[LoadedModel] = Future()
        self.loading: Future[LoadedModel] = Future()
        self.replacement: Entry | None = None
        try:
            self.release = release_of(source.backend)
        except ModelError:  # it is not loaded, and says why
            self.release = release_of("vllm")

    @property
    def status(self) -> ModelStatus:
        """The state of its loading."""
        if self.loaded is not None:
            return ModelStatus.READY
        return ModelStatus.FAILED if self.error else ModelStatus.LOADING

    def wait_for(self, files: Future[LoadedModel]) -> None:
        """Take the model when its files are read."""
        self.files, self.loading = files, Future()
        self.loading.set_running_or_notify_cancel()  # who waits for it cannot cancel it
        files.add_done_callback(partial(self._take, self.loading))

    def _take(self, loading: Future[LoadedModel], files: Future[LoadedModel]) -> None:
        # A future wakes those who wait for it before it runs its callbacks, of which this is one.
        error = CancelledError() if files.cancelled() else files.exception()
        if error is None:
            # Another model may have the same files.
            self.loaded = replace(files.result(), name=self.source.names[0])
            loading.set_result(self.loaded)
            return
        if not isinstance(error, CancelledError):
            self._fail(error)
        loading.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, _FailedElsewhereError):  # whose log has it
            self.error = str(error)
            return
        unexpected = None if isinstance(error, MmrouteError) else error
        kind = error.reason if isinstance(error, MmrouteError) else type(error).__name__
        self.error = f"{kind}: {error}"
        fields = {"names": self.source.names, "text": self.error}
        _LOG.error("model not loaded", exc_info=unexpected, extra={"fields": fields})


class Models:
    """All models of a server. Loading goes on beside it, in threads.

    Those with the same files are loaded once, however many ask for them at a time.

    Args:
        sources: the sources of the models, at least one.
        links: permission to follow links to images.
        fast_paths: the ways each of them may be made fast.

    Attributes:
        created: the time of its making, in seconds since 1970.
        backend_name: the name of the engine that is matched, as the operator gave it.
        tell: is called with each change that is made here; None to tell nobody.
        loads: whether models are loaded here; else in another process, which takes this one's place
            with one that has them.
        files: the images of data URLs that came before, for all models.
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
        self._loads: dict[tuple[object, ...], Future[LoadedModel]] = {}
        self._pool = _pool()
        self._first = [self._enter(source) for source in dict.fromkeys(sources)]
        if not self._first:
            raise ValueError("at least one model must be served")
        self.backend_name: Final = sources[0].backend
        self._frontend: Final = sources[0].engine_settings.frontend
        self._default = sources[0].names[0]
        self.created: Final = int(time.time())
        self.tell: Callable[[Change], object] | None = None
        self.loads = True
        self.files: Final = KnownFiles((fast_paths or FastPaths()).image_cache_bytes)
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
        return behind_frontend(find_engine(self.backend_name), self._frontend)

    def load(self) -> Sequence[Entry]:
        """Begin to load the models that the server was started with."""
        with self._lock:
            first = tuple(self._first)
            for entry in first:
                self._begin(entry)
        return first

    def change(self, change: Change) -> Entry:
        """Make a change, and tell the other processes.

        Raises:
            ApiError: as `apply`.
            NameTakenError: likewise.
        """
        entry = self.apply(change)
        if self.tell is not None:
            self.tell(change)
        return entry

    def apply(self, change: Change) -> Entry:
        """Make a change, which another process may have told.

        Returns:
            The model that was added or removed, or is about to be replaced.

        Raises:
            ApiError: 404.
            NameTakenError: one of its names is another model's.
        """
        if change.source is None:
            return self._remove(change.name)
        if change.kind == "replace":
            return self._replace(change.name, change.source)
        if change.kind == "failed":
            return self._fail(change.source, change.name)
        return self._add(change.source)

    def renew(self) -> None:
        """Replace threads and locks, which do not survive a fork."""
        self._lock = threading.Lock()
        self._pool = _pool()

    def _add(self, source: ModelSource) -> Entry:
        """Begin to load another one; where it is there already, and has not failed, leave it so."""
        with self._lock:
            known = {self._by_name[name] for name in source.served if name in self._by_name}
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

    def _replace(self, name: str, source: ModelSource) -> Entry:
        """Begin to load what takes the place of a model, which answers until then.

        The files are read anew, also where they have the same name.
        """
        with self._lock:
            current = self.entry(name)
            self._check_free(source, current)
            new = current.replacement = Entry(source)
            loading = self._load(source)
            new.wait_for(loading)
        # What is called keeps all that it knows, for as long as the new model is there.
        loading.add_done_callback(lambda _: self._put(new))
        loading.add_done_callback(self._reclaim)
        return current

    def _put(self, new: Entry) -> None:
        """Let a loaded model take its place in one step, unless that was decided otherwise."""
        with self._lock:
            current = next((e for e in self.entries() if e.replacement is new), None)
            if new.loaded is None or current is None:
                return
            self._first = [new if entry is current else entry for entry in self._first]
            kept = {name: e for name, e in self._by_name.items() if e is not current}
            self._by_name = {**dict.fromkeys(new.source.served, new), **kept}
            self._drop_files(current.source)
            self._loads[_files(new.source)] = new.files

    def _fail(self, source: ModelSource, why: str) -> Entry:
        """Another process could not load a model."""
        everyone = [e for entry in self.entries() for e in (entry, entry.replacement) if e]
        waiting = [e for e in everyone if e.source == source and not e.loading.done()]
        for entry in waiting:
            entry.files.set_exception(_FailedElsewhereError(why))
        return waiting[0] if waiting else Entry(source)

    def _remove(self, name: str) -> Entry:
        """Serve a model no longer, by none of its names. What is being answered is answered."""
        with self._lock:
            entry = self.entry(name)
            self._forget(entry)
        _LOG.info("model removed", extra={"fields": {"names": entry.source.names}})
        self._reclaim()
        return entry

    def _reclaim(self, _: object = None) -> None:
        with contextlib.suppress(RuntimeError):  # it is about to stop
            self._pool.submit(reclaim)

    def close(self, *, wait: bool = False) -> None:
        """Begin no more loading."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def names(self) -> Iterator[tuple[str, Entry]]:
        """Every name and its model, in the order they came."""
        yield from tuple(self._by_name.items())

    def entries(self) -> Sequence[Entry]:
        """Every model once."""
        return tuple(dict.fromkeys(self._by_name.values()))

    def all_loaded(self) -> Sequence[LoadedModel]:
        """Those that can answer."""
        return [entry.loaded for entry in self.entries() if entry.loaded is not None]

    def entry(self, name: str) -> Entry:
        """The model that is served by a name.

        Raises:
            ApiError: 404.
        """
        entry = self._by_name.get(name)
        if entry is None:
            valid = [n for n, e in self.names() if e.status is not ModelStatus.FAILED]
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "NotFoundError",
                f"The model `{name}` does not exist. Valid aliases: {', '.join(valid) or 'none'}.",
                param="model",
            )
        return entry

    def release(self, body: object) -> Release:
        """The release of vLLM whose fields a body may have, by the model that it names."""
        name = body.get("model") if isinstance(body, dict) else None
        known = self._by_name.get(name) if isinstance(name, str) else None
        known = known or self._by_name.get(self._default)
        return release_of("vllm") if known is None else known.release

    def find(self, name: str | None) -> LoadedModel:
        """The model a request asks for; the first one if it names none.

        Raises:
            ApiError: 404 for a name that is not served; 503 while it is being loaded, and where
                that has failed.
        """
        entry = self.entry(name or self._default)
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

    # All below are called under the lock, or before another thread knows of this object.

    def _enter(self, source: ModelSource) -> Entry:
        if not source.names:
            raise ValueError(f"{source.model} must be served by at least one name")
        self._check_free(source, None)
        entry = Entry(source)
        self._by_name = {**self._by_name, **dict.fromkeys(source.served, entry)}
        return entry

    def _check_free(self, source: ModelSource, owner: Entry | None) -> None:
        for name in source.served:
            if self._by_name.get(name, owner) is not owner:
                raise NameTakenError(f"{name!r} is the name of another model already")

    def _forget(self, entry: Entry) -> None:
        self._by_name = {name: e for name, e in self._by_name.items() if e is not entry}
        if entry in self._first:
            self._first.remove(entry)
        self._drop_files(entry.source)

    def _drop_files(self, source: ModelSource) -> None:
        """Keep no files that no model has any more."""
        if _files(source) not in {_files(entry.source) for entry in self.entries()}:
            self._loads.pop(_files(source), None)

    def _begin(self, entry: Entry) -> None:
        key = _files(entry.source)
        loading = self._loads.get(key)
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loads[key] = self._load(entry.source)
        entry.wait_for(loading)

    def _load(self, source: ModelSource) -> Future[LoadedModel]:
        if not self.loads:
            return Future()
        return self._pool.submit(
            load, source, self._links, self._fast_paths, files=self.files, watch=self.watch
        )


def reclaim() -> None:
    """Give the memory of models that are gone back to the system.

    A model is full of cycles, and may be all that a quiet server has to collect for long. Without
    its ``malloc_trim`` glibc keeps what they had in the arena of each thread that loaded one.
    """
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_LOADING_AT_A_TIME, thread_name_prefix="mmroute-load")


def _files(source: ModelSource) -> tuple[object, ...]:
    settings = repr(source.engine_settings)  # mappings in it have no hash
    return source.model, source.model_string, source.revision, source.backend, settings
