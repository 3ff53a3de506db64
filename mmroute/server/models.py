"""The models of one server: which there are, by which names, and whether they can answer yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from mmroute.backends import BackendProfile, find_backend
from mmroute.errors import ModelError, Reason
from mmroute.fast_paths import FastPaths
from mmroute.images.links import ImageLinks
from mmroute.model_files import find_model
from mmroute.normalizer import Normalizer
from mmroute.parity.self_check import check_model
from mmroute.server.errors import ApiError
from mmroute.server.sampling import SamplingDefaults, sampling_defaults

__all__ = ["ModelSource", "Models", "ServedModel"]

_LOG: Final = logging.getLogger(__name__)
_NO_LIMIT: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from, and what it is called.

    Attributes:
        model: as for `Normalizer.from_pretrained`.
        names: by which requests ask for it; the first one is its own.
        model_id: the engine's own model string; None if it is `model`.
        revision: hub branch, tag or commit.
        backend: the engine that is matched.
    """

    model: str
    names: tuple[str, ...]
    model_id: str | None = None
    revision: str | None = None
    backend: str = "vllm"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that can answer.

    Attributes:
        name: its first name, by which metrics and logs know it.
        root: the model as the operator named it.
        normalizer: loaded, checked, its encoder chosen.
        unlimited: the same without a longest prompt: ``/tokenize`` has none.
        defaults: of sampling parameters.
    """

    name: str
    root: str
    normalizer: Normalizer
    unlimited: Normalizer
    defaults: SamplingDefaults

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest context."""
        return self.normalizer.model.max_model_len


class Models:
    """All models of a server. Loading goes on beside it, in threads.

    Args:
        sources: at least one; those with the same files share one normalizer.
        links: permission to follow links to images.
        fast_paths: for each of them.

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
        self._sources = tuple(sources)
        self._links = links
        self._fast_paths = fast_paths
        self._by_name: dict[str, ModelSource] = {}
        for source in self._sources:
            for name in source.names:
                if self._by_name.setdefault(name, source) is not source:
                    raise ValueError(f"two models are served by the name {name!r}")
        if not self._by_name or not all(source.names for source in self._sources):
            raise ValueError("at least one model must be served, each by at least one name")
        self._loaded: dict[ModelSource, ServedModel] = {}
        self._futures: list[Future[None]] = []
        self.created: Final = int(time.time())

    @property
    def ready(self) -> bool:
        """Whether every model can answer."""
        return len(self._loaded) == len(self._sources)

    def load(self) -> Sequence[Future[None]]:
        """Begin to load them, each in a thread of its own; a failure is in its future."""
        pool = ThreadPoolExecutor(len(self._sources), thread_name_prefix="mmroute-load")
        shared: dict[tuple[object, ...], list[ModelSource]] = {}
        for source in self._sources:
            key = (source.model, source.model_id, source.revision, source.backend)
            shared.setdefault(key, []).append(source)
        self._futures = [pool.submit(self._load, group) for group in shared.values()]
        pool.shutdown(wait=False)
        return self._futures

    def names(self) -> Iterator[tuple[str, ModelSource]]:
        """Every name and its model, in the operator's order."""
        yield from self._by_name.items()

    def served(self, source: ModelSource) -> ServedModel | None:
        """The loaded model; None while it is being loaded."""
        return self._loaded.get(source)

    def all_loaded(self) -> Sequence[ServedModel]:
        """Those that can answer."""
        return tuple(self._loaded.values())

    @property
    def backend(self) -> BackendProfile:
        """The engine that is matched.

        Raises:
            ModelError: `unknown_backend`.
        """
        return find_backend(self._sources[0].backend)

    def source(self, name: str | None) -> ModelSource:
        """The model that is served by a name; the first one if there is none.

        Raises:
            ApiError: 404.
        """
        source = self._by_name.get(name) if name else self._sources[0]
        if source is None:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "NotFoundError",
                f"The model `{name}` does not exist. Valid aliases: {', '.join(self._by_name)}.",
                param="model",
            )
        return source

    def find(self, name: str | None) -> ServedModel:
        """The model a request asks for; the first one if it names none.

        Raises:
            ApiError: 404 for a name that is not served; 503 while it is being loaded.
        """
        source = self.source(name)
        loaded = self._loaded.get(source)
        if loaded is None:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "ServiceUnavailableError",
                f"The model `{source.names[0]}` is being loaded; ask /health.",
                headers={"retry-after": "1"},
            )
        return loaded

    def _load(self, group: Sequence[ModelSource]) -> None:
        source, began = group[0], time.perf_counter()
        normalizer = Normalizer.from_pretrained(
            source.model,
            backend=source.backend,
            model_id=source.model_id,
            revision=source.revision,
            links=self._links,
            fast_paths=self._fast_paths,
        )
        report = check_model(normalizer)
        for warning in report.warnings:
            _LOG.warning("self-check", extra={"fields": {"model": source.model, "text": warning}})
        if not report.healthy:
            raise ModelError(Reason.SELF_CHECK_FAILED, f"{source.model}: {report.failures}")
        encoder = normalizer.stats().encoder  # waits until it is chosen
        commit = normalizer.model.commit  # the same files, and no second question to the hub
        files = find_model(source.model, revision=commit or source.revision)
        defaults = sampling_defaults(files.object("generation_config.json"))
        unlimited = replace(normalizer, model=replace(normalizer.model, max_model_len=_NO_LIMIT))
        for member in group:
            self._loaded[member] = ServedModel(
                member.names[0], member.model, normalizer, unlimited, defaults
            )
        fields = {
            "model": source.model,
            "names": [name for member in group for name in member.names],
            "encoder": None if encoder is None else encoder.engine,
            "seconds": round(time.perf_counter() - began, 3),
        }
        _LOG.info("model loaded", extra={"fields": fields})
