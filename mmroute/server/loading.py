"""Loads and checks a model for the server."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mmroute.answering.stages import Stopwatch
from mmroute.engine import DEFAULT, EngineSettings, engine_under, find_engine
from mmroute.errors import ModelError, Reason, needs_extra
from mmroute.health.self_check import check_model
from mmroute.images.data_url import KnownFiles
from mmroute.model.garbage import not_searched
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.api import APIS, ServedModel, find_api

_LOG: Final = logging.getLogger(__name__)
_WORKERS: Final = "grpc://"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The files of a model, its served names, and the engine that it matches.

    Attributes:
        model: the model, as for `Normalizer.from_pretrained`; or ``grpc://WORKER:PORT``, with
            commas between several, for the files that all of these workers have
            (`mmroute.server.bundle`).
        names: the served names, by which requests ask for the model. Answers use the first one.
        model_id: the engine's model string; None to take the one in `engine_settings`. If that has
            none either, it is `model`, or the first served name for files from workers.
        revision: the branch, tag or commit on the hub.
        backend: the engine that is matched.
        engine_settings: the settings with which the engine was started.
        events: the address of the KV events of an engine of this model, which tell the number of
            tokens under one hash; None if nobody listens to them.
        accept_version: as for `Normalizer.from_pretrained`.
        distrusts: whether requests are inexact once the events differ from the predictions.
    """

    model: str
    names: tuple[str, ...]
    model_id: str | None = None
    revision: str | None = None
    backend: str = DEFAULT
    engine_settings: EngineSettings = field(default_factory=lambda: find_engine(DEFAULT).settings)
    events: str | None = None
    accept_version: str | None = None
    distrusts: bool = False

    @property
    def workers(self) -> Sequence[str]:
        """The addresses of workers; empty for a model with files of its own."""
        addresses = self.model.removeprefix(_WORKERS)
        return addresses.split(",") if addresses != self.model else ()

    @property
    def model_string(self) -> str:
        """The engine's model string."""
        explicit = self.model_id or self.engine_settings.model_string
        return explicit or (self.names[0] if self.workers else self.model)

    @property
    def served(self) -> tuple[str, ...]:
        """The served names of the model and of its LoRA adapters."""
        return *self.names, *self.engine_settings.loras


@not_searched()
def load(
    source: ModelSource,
    links: ImageLinks | None,
    fast_paths: FastPaths | None,
    *,
    files: KnownFiles,
    watch: Stopwatch,
) -> ServedModel:
    """Load a model, check it, and choose its encoder."""
    if source.workers:
        with _fetched(source) as own:
            return load(own, links, fast_paths, files=files, watch=watch)
    engine = engine_under(source.backend, source.engine_settings).release.name
    if engine not in APIS.entries:
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"mmroute serve has the routes of {', '.join(APIS.entries)}, and none of {engine}; "
            f"`mmroute tokens MODEL --backend {source.backend}` answers requests line by line",
        )
    began = time.perf_counter()
    normalizer = Normalizer.from_pretrained(
        source.model,
        backend=source.backend,
        model_id=source.model_id,
        revision=source.revision,
        links=links,
        fast_paths=replace(fast_paths or FastPaths(), at_once=True),
        engine_settings=source.engine_settings,
        accept_version=source.accept_version,
    )
    model = normalizer.model
    # Otherwise the first request would wait: for a route's schema, for Pillow, for proofs.
    api = find_api(engine)
    for path in api.routes:
        api.schema(path, source.backend, source.engine_settings)
    if Modality.IMAGE in model.media:
        import mmroute.images.header  # noqa: F401
    if normalizer.caches.chats is not None:
        for template in (model.chat.templates or {}).values():
            normalizer.caches.chats.prepare(template)
    _check_health(model, source)
    encoder = normalizer.stats().encoder  # waits until it is chosen
    normalizer = replace(normalizer, caches=normalizer.caches._replace(images=files), watch=watch)
    loaded = api.load(normalizer, source.names[0])
    fields = {
        "model": source.model,
        "model_id": model.model_id,
        "model_id_guessed": model.hashing.settings.model_id_guessed,
        "block_size_guessed": model.hashing.settings.block_size_guessed and not source.events,
        "encoder": None if encoder is None else encoder.engine,
        "seconds": round(time.perf_counter() - began, 3),
    }
    _LOG.info("model loaded", extra={"fields": fields})
    return loaded


def _check_health(model: ResolvedModel, source: ModelSource) -> None:
    report = check_model(model)
    for warning in report.warnings:
        _LOG.warning("self-check", extra={"fields": {"model": source.model, "text": warning}})
    if not report.healthy:
        raise ModelError(Reason.SELF_CHECK_FAILED, f"{source.model}: {report.failures}")


@contextlib.contextmanager
def _fetched(source: ModelSource) -> Iterator[ModelSource]:
    """A source with the files of its workers, which are there for the time of loading."""
    with needs_extra("bundle", "grpc", source.model):
        from mmroute.server.bundle import fetch_fleet

    with fetch_fleet(source.names[0], source.workers) as bundle:
        yield replace(source, model=str(bundle.root), model_id=source.model_string)
