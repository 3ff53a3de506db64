"""The models of one server, by their served names, and the state of their loading."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from mmroute.answering.stages import Stopwatch
from mmroute.engine import DEFAULT, Engine, engine_under, find_engine
from mmroute.images.data_url import KnownFiles
from mmroute.net.links import ImageLinks
from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.api import ApiOptions, Call, Schema, ServedModel, default_api, read
from mmroute.server.api_errors import ApiError
from mmroute.server.entry import Entry, ModelStatus
from mmroute.server.loading import ModelSource, load

_LOG: Final = logging.getLogger(__name__)
_LOADING_AT_A_TIME: Final = 8


class NameTakenError(ApiError, ValueError):
    """409: another model has the name already."""

    def __init__(self, name: str) -> None:
        message = f"{name!r} is the name of another model already"
        super().__init__(HTTPStatus.CONFLICT, "ConflictError", message, param="names")


class Models:
    """All models of a server. They are loaded in threads.

    Args:
        sources: the sources of the models, at least one.
        links: permission to follow links to images; None if no link is followed.
        fast_paths: the encoder and the caches of each model; None for the defaults.

    Attributes:
        created: the time at which this object was made, in seconds since 1970.
        backend_name: the name of the engine that is matched, as the operator wrote it.
        files: the cache of images in data URLs, which all models share.
        watch: the stopwatch for the stages of requests.

    Raises:
        ValueError: there is no source, or two of them share a name.
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
        self._pool = ThreadPoolExecutor(_LOADING_AT_A_TIME, thread_name_prefix="mmroute-load")
        self._first = [self._enter(source) for source in dict.fromkeys(sources)]
        if not self._first:
            raise ValueError("at least one model must be served")
        self.backend_name: Final = sources[0].backend
        self._settings: Final = sources[0].engine_settings
        self._default = sources[0].names[0]
        self.created: Final = int(time.time())
        self.files: Final = KnownFiles((fast_paths or FastPaths()).image_cache_bytes)
        self.watch: Final = Stopwatch()

    @property
    def ready(self) -> bool:
        """Whether every model from the start of the server, unless removed since, can answer."""
        return bool(self._by_name) and all(entry.loaded is not None for entry in self._first)

    @property
    def backend(self) -> Engine:
        """The engine that is matched.

        Raises:
            ModelError: `unknown_backend`.
        """
        return engine_under(self.backend_name, self._settings)

    def load(self) -> Sequence[Entry]:
        """Begin to load the models that the server was started with."""
        with self._lock:
            first = tuple(self._first)
            for entry in first:
                if entry.loaded is None:  # as it is where another application has loaded it
                    self._begin(entry)
        return first

    def add(self, source: ModelSource) -> Entry:
        """Begin to load a model, unless the same model is there and has not failed.

        Raises:
            NameTakenError: another model has one of its names.
        """
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

    def replace(self, name: str, source: ModelSource) -> Entry:
        """Begin to load a model that replaces another one, which answers until then.

        The files are read again, even if the source is the same.

        Returns:
            The model that is about to be replaced.

        Raises:
            ApiError: 404: there is no model of this name.
            NameTakenError: another model has one of the new model's names.
        """
        with self._lock:
            current = self.entry(name)
            self._check_free(source, current)
            current.replacement = Entry(source)
            current.replacement.trust = current.trust
            self._begin(current.replacement)
        return current

    def remove(self, name: str) -> Entry:
        """Remove a model with all its names. Requests that are being answered are completed.

        Raises:
            ApiError: 404: there is no model of this name.
        """
        with self._lock:
            entry = self.entry(name)
            self._forget(entry)
        _LOG.info("model removed", extra={"fields": {"names": entry.source.names}})
        with contextlib.suppress(RuntimeError):  # the server is about to stop
            self._pool.submit(reclaim)
        return entry

    def close(self, *, wait: bool = False) -> None:
        """Cancel loading that has not begun, and begin none."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def names(self) -> Iterator[tuple[str, Entry]]:
        """Every served name and its model, in the order in which they were added."""
        yield from tuple(self._by_name.items())

    def entries(self) -> Sequence[Entry]:
        """Every model once."""
        return tuple(dict.fromkeys(self._by_name.values()))

    def entry(self, name: str) -> Entry:
        """The model with a served name.

        Raises:
            ApiError: 404: there is none.
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

    def asked(self, body: object) -> Entry | None:
        """The model whose engine's fields a body may have; None if there is none."""
        name = body.get("model") if isinstance(body, dict) else None
        known = self._by_name.get(name) if isinstance(name, str) else None
        return known or self._by_name.get(self._default)

    def schema(self, path: str, body: object) -> Schema:
        """The schema for a body of a route."""
        asked = self.asked(body)
        if asked is not None:
            return asked.schema(path)
        return default_api().schema(path, self.backend_name, find_engine(DEFAULT).settings)

    def find(self, name: str | None) -> ServedModel:
        """The model that a request asks for; the first one if it names none.

        Raises:
            ApiError: 404: the name is not served; 503: the model is being loaded, or could not be.
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

    def warm(self) -> None:
        """Answer requests by each model: fastokens takes 10 ms for the first text of a thread."""
        for entry in self.entries():
            if entry.loaded is None:
                continue
            call = Call(entry.loaded, ApiOptions())
            for path, body in entry.api.first_requests.items():
                with contextlib.suppress(ApiError):  # such as that of a model without a template
                    request = read(entry.schema(path), body)
                    entry.api.routes[path].answer_to(request, call)

    # The methods below are called under the lock, or before another thread has this object.

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
                raise NameTakenError(name)

    def _forget(self, entry: Entry) -> None:
        self._by_name = {name: e for name, e in self._by_name.items() if e is not entry}
        if entry in self._first:
            self._first.remove(entry)

    def _begin(self, entry: Entry) -> None:
        entry.loading = self._pool.submit(self._load, entry)

    # These are called in a thread that loads a model.

    def _load(self, entry: Entry) -> ServedModel:
        try:
            loaded = load(
                entry.source, self._links, self._fast_paths, files=self.files, watch=self.watch
            )
        except BaseException as error:
            entry.fail(error)
            raise
        entry.take(loaded)
        if self._puts(entry):
            reclaim()
        return loaded

    def _puts(self, new: Entry) -> bool:
        """Put a loaded model in the place of the one that it replaces, if that is still there."""
        with self._lock:
            current = next((e for e in self.entries() if e.replacement is new), None)
            if current is None:
                return False
            self._first = [new if entry is current else entry for entry in self._first]
            kept = {name: e for name, e in self._by_name.items() if e is not current}
            self._by_name = {**dict.fromkeys(new.source.served, new), **kept}
        return True


def reclaim() -> None:
    """Give the memory of removed models back to the system.

    A model is full of cycles, and a quiet server may collect no garbage for a long time. Without
    ``malloc_trim``, glibc keeps the memory in the arena of each thread that loaded a model.
    """
    gc.unfreeze()  # what `load` froze
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
