"""From a model's name to a model that can answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mmroute.answering.stages import Stopwatch
from mmroute.engines.known import find_engine
from mmroute.engines.settings import EngineSettings
from mmroute.engines.vllm.api import ROUTES, LoadedModel, release_of, schema_of
from mmroute.errors import ModelError, Reason
from mmroute.health.self_check import check_model
from mmroute.images.known_files import KnownFiles
from mmroute.model.resolved import ResolvedModel
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.reuse.fast_paths import FastPaths

_LOG: Final = logging.getLogger(__name__)
_WORKERS: Final = "grpc://"
_NO_SETTINGS: Final = EngineSettings()


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from, and what it is called.

    Attributes:
        model: the model, as for `Normalizer.from_pretrained`; or ``grpc://WORKER:PORT``, several
            with commas, for the files that all of these workers have (`mmroute.bundle`).
        names: the names by which requests ask for it; the first one is its own.
        model_id: the engine's own model string; None if it is that of `engine_settings`, or else
            `model`, or of workers' files the first name.
        revision: hub branch, tag or commit.
        backend: the engine that is matched.
        engine_settings: the settings that the engine was started with.
    """

    model: str
    names: tuple[str, ...]
    model_id: str | None = None
    revision: str | None = None
    backend: str = "vllm"
    engine_settings: EngineSettings = _NO_SETTINGS

    @property
    def workers(self) -> Sequence[str]:
        """The addresses of workers; empty for a model with files of its own."""
        given = self.model.removeprefix(_WORKERS)
        return given.split(",") if given != self.model else ()

    @property
    def model_string(self) -> str:
        """The engine's own."""
        given = self.model_id or self.engine_settings.model_string
        return given or (self.names[0] if self.workers else self.model)

    @property
    def served(self) -> tuple[str, ...]:
        """The names, and those of its LoRA adapters."""
        return *self.names, *self.engine_settings.loras


def load(
    source: ModelSource,
    links: ImageLinks | None,
    fast_paths: FastPaths | None,
    *,
    files: KnownFiles,
    watch: Stopwatch,
) -> LoadedModel:
    """Load a model, check it, and choose its encoder.

    Args:
        source: the model's source.
        links: permission to follow links to images.
        fast_paths: the ways it may be made fast.
        files: the files of data URLs that came before, for all models.
        watch: counts what the stages of a request take.

    Raises:
        ModelError: it cannot be loaded, or is not healthy.
    """
    if source.workers:
        return _load_from_workers(
            source, lambda own: load(own, links, fast_paths, files=files, watch=watch)
        )
    if not find_engine(source.backend).renders:
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"the routes of mmroute serve are vLLM's, and {source.backend} has none of them; "
            f"`mmroute tokens MODEL --backend {source.backend}` answers requests line by line",
        )
    began = time.perf_counter()
    normalizer = Normalizer.from_pretrained(
        source.model,
        backend=source.backend,
        model_id=source.model_id,
        revision=source.revision,
        links=links,
        fast_paths=fast_paths,
        engine_settings=source.engine_settings,
    )
    _check_health(normalizer.model, source)
    encoder = normalizer.stats().encoder  # waits until it is chosen
    model = normalizer.model
    normalizer = replace(normalizer, caches=normalizer.caches._replace(images=files), watch=watch)
    loaded = LoadedModel.of(normalizer, source.names[0], source.engine_settings)
    for path in ROUTES:  # or the first request of each would wait for it
        schema_of(path, release_of(source.backend))
    fields = {
        "model": source.model,
        "model_id": model.model_id,
        "model_id_guessed": model.hashing.settings.model_id_guessed,
        "block_size_guessed": model.hashing.settings.block_size_guessed,
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


def _load_from_workers(
    source: ModelSource, load_files: Callable[[ModelSource], LoadedModel]
) -> LoadedModel:
    try:
        from mmroute.bundle import fetch_fleet  # an extra
    except ModuleNotFoundError as error:
        raise ModelError(
            Reason.TOKENIZER_UNAVAILABLE,
            f"{source.model}: {error.name} is not installed; pip install 'mmroute[bundle]'",
        ) from error

    with fetch_fleet(source.names[0], source.workers) as bundle:
        return load_files(replace(source, model=str(bundle.root), model_id=source.model_string))
