"""A registry of tokenizers: each model is loaded once, from its source or from its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Self, TypeVar

from mmroute.bundle.client import Bundle, fetch_bundle, grpc_address
from mmroute.bundle.files import SOURCE_FILES
from mmroute.bundle.fleet import Fleet, FleetError, fetch_fleet
from mmroute.errors import ModelError, Reason, did_you_mean
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.tokenizers.fingerprint import fingerprint

__all__ = ["Status", "TokenizerRegistry"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one model.

    Attributes:
        origin: where the loaded tokenizer is from, a worker or the model's source; None if none
            is loaded.
        fingerprint: of its files; None likewise.
        workers: the fingerprint of each worker; None where it was not asked, or could not be.
        refused: why no tokenizer is given, if the workers disagree.
    """

    origin: str | None
    fingerprint: str | None
    workers: Mapping[str, str | None]
    refused: FleetError | None


@dataclass(frozen=True, slots=True)
class _Loaded(Generic[T]):
    """A loaded tokenizer, and where its files are from."""

    value: T
    origin: str
    fingerprint: str
    bundle: Bundle | None

    def close(self) -> None:
        if self.bundle is not None:
            self.bundle.close()


@dataclass(slots=True)
class _Model(Generic[T]):
    """A registered model. Its fields change under the registry's lock only."""

    name: str
    source: str | None
    workers: list[str]
    loaded: _Loaded[T] | None = None
    refused: FleetError | None = None
    attempts: int = 0
    failure: Exception | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)
    removed: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)
    """Held while files are fetched and loaded; taken before the registry's lock."""

    def ready(self) -> _Loaded[T] | None:
        if self.refused is not None:
            raise self.refused.with_traceback(None)
        return self.loaded


class TokenizerRegistry(Generic[T]):
    """Tokenizers, or whatever is made of a model's files, by name. Safe to share between threads.

    A model has a source, a directory or a hub name, and workers. The source is tried first, and
    trusted: workers are asked only where it cannot be loaded. Then all of them are asked, and those
    that answer must hold the same files, byte for byte; one of the equal bundles is loaded.

        registry = TokenizerRegistry(
            lambda name, directory: Normalizer.from_pretrained(directory, model_id=name)
        )
        registry.add("Qwen/Qwen2.5-VL-3B-Instruct", workers=["10.0.0.7:50051", "10.0.0.8:50051"])
        normalizer = registry.get("Qwen/Qwen2.5-VL-3B-Instruct")

    Args:
        load: makes a T of a model's name and the directory of its files. The name is that of
            `add`; engines' image identities cover a model string, which the directory's path is
            not. The directory may go when the T is replaced.
        fetch: asks one worker; by default `fetch_bundle` with its own limits.
    """

    def __init__(
        self, load: Callable[[str, Path], T], *, fetch: Callable[[str], Bundle] = fetch_bundle
    ) -> None:
        self._load = load
        self._fetch = fetch
        self._lock = threading.Lock()
        self._models: dict[str, _Model[T]] = {}

    def add(self, name: str, *, source: str | None = None, workers: Sequence[str] = ()) -> None:
        """Register a model. Nothing is loaded yet.

        Raises:
            ValueError: the name is taken, there is neither a source nor a worker, or a worker has
                no address that `fetch_bundle` takes.
        """
        if source is None and not workers:
            raise ValueError(f"{name!r} needs a source or at least one worker")
        for worker in workers:
            grpc_address(worker)
        with self._lock:
            if name in self._models:
                raise ValueError(f"{name!r} is registered already; remove it first")
            self._models[name] = _Model(name, source, list(dict.fromkeys(workers)))

    def get(self, name: str) -> T:
        """The model's tokenizer. The first call loads it, and those that come meanwhile wait.

        What could not be loaded is tried again by the next call. Not so a fleet that disagrees: it
        stays refused until something is said of one of its workers, or `refresh` is called.

        Raises:
            ModelError: `model_not_found` if the name is not registered; `tokenizer_unavailable`
                with what was tried, and how each failed. Of a call that was waited for, the same.
            FleetError: the workers disagree.
        """
        with self._lock:
            model = self._find(name)
            loaded, attempts = model.ready(), model.attempts
        if loaded is not None:
            return loaded.value
        with model.busy:
            loaded = model.ready()  # by a call that was waited for
            if loaded is not None:
                return loaded.value
            if model.attempts > attempts and model.failure is not None:
                raise model.failure.with_traceback(None)
            model.failure = None
            try:
                return self._update(model).value
            except Exception as error:
                model.failure = error
                raise
            finally:
                with self._lock:
                    model.attempts += 1

    def refresh(self, name: str) -> bool:
        """Look at the files again, and load them if they are others.

        Until the new ones are loaded `get` gives the old. It goes on to do so if nothing could be
        had; but not if the workers disagree.

        Returns:
            Whether others were loaded.

        Raises:
            ModelError: as `get`.
            FleetError: as `get`.
        """
        model = self._registered(name)
        with model.busy:
            before = model.loaded
            return self._update(model) is not before

    def worker_started(self, name: str, worker: str) -> bool:
        """Say that a worker was started or restarted: its files are fetched and compared.

        If they are those that are loaded, that is all. Else the whole fleet is asked again: it may
        have changed as one, or disagree.

        Returns:
            Whether other files were loaded.

        Raises:
            ModelError: as `get`.
            BundleError: the worker's files could not be had.
            FleetError: it holds other files than the rest.
            ValueError: the worker's address is not one that `fetch_bundle` takes.
        """
        grpc_address(worker)
        model = self._registered(name)
        with model.busy:
            with self._lock:
                model.fingerprints.pop(worker, None)
                if worker not in model.workers:
                    model.workers.append(worker)
                loaded = model.loaded
            if loaded is None and model.refused is None:
                return False
            if loaded is None or loaded.bundle is None:
                return self._update(model) is not loaded
        with self._fetch(worker) as bundle, model.busy:  # others need not wait for this worker
            with self._lock:
                loaded = model.loaded
                if loaded is None and model.refused is None:
                    return False
                if loaded is not None and loaded.fingerprint == bundle.fingerprint:
                    model.fingerprints[worker] = loaded.fingerprint
                    return False
            return self._update(model) is not loaded

    def worker_stopped(self, name: str, worker: str) -> None:
        """Say that a worker is gone. A fleet that was refused may agree without it: `get` will see.

        Raises:
            ModelError: `model_not_found`.
        """
        with self._lock:
            model = self._find(name)
            model.fingerprints.pop(worker, None)
            if worker in model.workers:
                model.workers.remove(worker)
            model.refused = None

    def status(self, name: str) -> Status:
        """What is known of a model, without asking anyone.

        Raises:
            ModelError: `model_not_found`.
        """
        with self._lock:
            model = self._find(name)
            loaded = model.loaded
            return Status(
                None if loaded is None else loaded.origin,
                None if loaded is None else loaded.fingerprint,
                {worker: model.fingerprints.get(worker) for worker in model.workers},
                model.refused,
            )

    def remove(self, name: str) -> None:
        """Forget a model, and remove what was fetched for it.

        Raises:
            ModelError: `model_not_found`.
        """
        with self._lock:
            model = self._find(name)
            del self._models[name]
            model.removed = True
            loaded, model.loaded = model.loaded, None
        if loaded is not None:
            loaded.close()

    def close(self) -> None:
        """Forget all models."""
        with self._lock:
            names = list(self._models)
        for name in names:
            self.remove(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, name: str) -> _Model[T]:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(self._models) or "none"
            raise ModelError(
                Reason.MODEL_NOT_FOUND,
                f"No model is registered as {name!r}{did_you_mean(name, self._models)} "
                f"(registered: {known}).",
            )
        return model

    def _registered(self, name: str) -> _Model[T]:
        with self._lock:
            return self._find(name)

    def _update(self, model: _Model[T]) -> _Loaded[T]:
        """Find the model's files, and load them if they are not those that are loaded."""
        failures: dict[str, Exception] = {}
        if model.source is not None:
            try:
                return self._from_source(model, model.source)
            except Exception as error:  # noqa: BLE001 - whatever the caller's `load` raises
                failures[f"{model.source}: {error}"] = error
        fleet = self._ask(model)
        failures |= {str(error): error for error in fleet.failures.values()}
        if fleet.bundle is not None:
            try:
                return self._from_workers(model, fleet.bundle, fleet.fingerprints)
            except Exception as error:  # noqa: BLE001 - likewise
                failures[f"the files of {fleet.bundle.worker}: {error}"] = error
        raise ModelError(
            Reason.TOKENIZER_UNAVAILABLE,
            f"No tokenizer for {model.name}: {'; '.join(failures) or 'no worker is left to ask'}",
        ) from (ExceptionGroup("what was tried", [*failures.values()]) if failures else None)

    def _ask(self, model: _Model[T]) -> Fleet:
        """Ask all workers; again, if they disagree and one of them was gone before all answered."""
        while True:
            with self._lock:
                workers = tuple(model.workers)
            try:
                return fetch_fleet(model.name, workers, self._fetch)
            except FleetError as error:
                if self._refuse(model, workers, error):
                    raise

    def _from_source(self, model: _Model[T], source: str) -> _Loaded[T]:
        files = find_model(source, patterns=SOURCE_FILES)
        if files.name == EMBEDDED_MODEL:
            raise ModelError(
                Reason.MODEL_NOT_FOUND,
                f"{source} is part of a package and has no directory of its own to be loaded from.",
            )
        names = filter(files.has, files.names(SOURCE_FILES))
        content = fingerprint({name: files.path(name) for name in names})
        return self._load_if_new(model, files.root, source, content, None)

    def _from_workers(
        self, model: _Model[T], bundle: Bundle, fingerprints: Mapping[str, str]
    ) -> _Loaded[T]:
        try:
            loaded = self._load_if_new(
                model, bundle.root, bundle.worker, bundle.fingerprint, bundle
            )
        except BaseException:
            bundle.close()
            raise
        if loaded.bundle is not bundle:
            bundle.close()
        with self._lock:
            model.fingerprints = dict(fingerprints)
        return loaded

    def _load_if_new(
        self, model: _Model[T], root: Path, origin: str, content: str, bundle: Bundle | None
    ) -> _Loaded[T]:
        before = model.loaded
        if before is not None and before.fingerprint == content:
            return before
        loaded = _Loaded(self._load(model.name, root), origin, content, bundle)
        with self._lock:
            if model.removed:
                raise ModelError(
                    Reason.MODEL_NOT_FOUND, f"{model.name} was removed while it was loaded."
                )
            model.loaded, model.refused = loaded, None
        if before is not None:
            before.close()
        return loaded

    def _refuse(self, model: _Model[T], asked: Sequence[str], error: FleetError) -> bool:
        """Refuse the model from now on; False, and nothing is done, if its workers have changed."""
        with self._lock:
            if tuple(model.workers) != tuple(asked):
                return False
            loaded, model.loaded, model.refused = model.loaded, None, error
        if loaded is not None:
            loaded.close()
        return True
