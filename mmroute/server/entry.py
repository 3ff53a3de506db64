"""A served model, and the state of its loading."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace
from enum import StrEnum
from typing import Final

from mmroute.engine import engine_under
from mmroute.errors import MmrouteError, ModelError
from mmroute.server.api import APIS, Api, Schema, ServedModel, default_api, find_api
from mmroute.server.loading import ModelSource
from mmroute.server.trust import Trust

_LOG: Final = logging.getLogger(__name__)


class ModelStatus(StrEnum):
    """The state of a model's loading."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Entry:
    """A served model, and the state of its loading.

    Attributes:
        source: the model's source.
        loaded: the loaded model; None until it can answer.
        error: the error of loading; empty if there was none so far.
        loading: a future that ends when `loaded` or `error` is set.
        replacement: the entry that replaces this one once it is loaded, or whose loading failed.
        api: the routes of the engine, and how their bodies are read and answered.
        told_block_size: the number of tokens under one hash, as the engine's KV events tell it;
            None before the first event.
        publishers: the number of publishers of KV events that are connected; None for a model
            without events.
        trust: the watch on what the engine announces; None for a model without events.
    """

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.loaded: ServedModel | None = None
        self.error = ""
        self.loading: Future[ServedModel] = Future()
        self.replacement: Entry | None = None
        self.told_block_size: int | None = None
        self.publishers: int | None = None
        self.trust: Trust | None = None
        if source.events is not None:
            self.trust = Trust(source.events, source.names[0], acts=source.distrusts)
        self.api: Api = _api_of(source)

    @property
    def status(self) -> ModelStatus:
        """The state of loading."""
        if self.loaded is not None:
            return ModelStatus.READY
        return ModelStatus.FAILED if self.error else ModelStatus.LOADING

    def schema(self, path: str) -> Schema:
        """The schema for the bodies of a route."""
        settings = self.source.engine_settings
        try:
            return self.api.schema(path, self.source.backend, settings)
        except ModelError:  # loading fails with this error
            return self.api.schema(path, next(iter(APIS.entries)), settings)

    @property
    def given_block_size(self) -> int | None:
        """The number of tokens under one hash by the settings; None if there is none."""
        return None if self.loaded is None else _given(self.loaded)

    @property
    def block_size_matches(self) -> bool | None:
        """Whether the KV events tell the given block size; None if there are not both of them."""
        given, told = self.given_block_size, self.told_block_size
        if self.loaded is None or given is None or told is None:
            return None
        of_units = self.loaded.model.hashing.settings.of_units  # events have the sizes of blocks
        return told % given == 0 if of_units else told == given

    def tell_block_size(self, size: int) -> None:
        """Take the number of tokens under one hash by the engine's KV events."""
        if self.source.events is not None:
            self.told_block_size = size
            if self.loaded is not None:
                self.loaded = self._by_events(self.loaded)

    def _by_events(self, loaded: ServedModel) -> ServedModel:
        """The model with the block size by the KV events, if one is needed and they are heard."""
        if self.source.events is None or _given(loaded) is not None:
            return loaded
        told = replace(
            loaded.model.hashing.settings,
            block_size=self.told_block_size,
            block_size_guessed=False,
            block_size_from=self.source.events,
        )
        return loaded.with_hash_settings(told)

    def take(self, loaded: ServedModel) -> None:
        """Answer by a model that was loaded."""
        self.loaded = self._by_events(loaded)

    def fail(self, error: BaseException) -> None:
        """Take the error of loading, and log it."""
        unexpected = None if isinstance(error, MmrouteError) else error
        kind = error.reason if isinstance(error, MmrouteError) else type(error).__name__
        self.error = f"{kind}: {error}"
        fields = {"names": self.source.names, "text": self.error}
        _LOG.error("model not loaded", exc_info=unexpected, extra={"fields": fields})


def _given(loaded: ServedModel) -> int | None:
    known = loaded.model.hashing.settings
    return None if known.block_size_guessed or known.block_size_from else known.block_size


def _api_of(source: ModelSource) -> Api:
    """The API of the engine that a model is loaded for."""
    try:
        name = engine_under(source.backend, source.engine_settings).release.name
    except ModelError:  # loading fails with this error
        return default_api()
    return find_api(name) if name in APIS.entries else default_api()
