"""Stopwatches inside the request path: what each stage of a real request takes.

The parts of a resolved model are put behind watches, and the normalizer that is timed is the one
that answers, with these parts. So there is no second request path that could drift from the first.
`mmroute bench` times requests with it, and a server all of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, ParamSpec, TypeVar, cast

from mmroute.geometry import Geometry, Replacement, TokenIds
from mmroute.model.resolved import ImageRules
from mmroute.normalizer import Normalizer
from mmroute.placement import Expansion, Placement
from mmroute.request import ImageSize, RequestOptions

__all__ = ["Stage", "Stopwatch", "encoding_watched", "watched"]

P = ParamSpec("P")
R = TypeVar("R")


class Stage(StrEnum):
    """The stages of a request, in their order."""

    RENDER = "render"
    """The chat template; in Mistral's format mistral-common, which encodes as well."""
    ENCODE = "encode"
    """The text, to token IDs."""
    COUNT = "count"
    """Image sizes, to replacements."""
    PLACE = "place"
    """Placeholders are found; families that encode anew for it do so here."""
    EXPAND = "expand"
    """Replacements are put in."""
    OTHER = "other"
    """What lies between: checks, messages taken apart, image headers and identities."""
    HASH = "hash"
    """Block hashes, with their extra keys; not part of the whole."""


class Stopwatch(threading.local):
    """Adds up what each stage of one request takes, in nanoseconds; each thread has its own."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(Stage, 0)

    def start(self) -> None:
        """Begin with a new request."""
        self._spent = dict.fromkeys(Stage, 0)

    def spent(self) -> dict[Stage, int]:
        """The stages that the request had since `start`."""
        return {stage: spent for stage, spent in self._spent.items() if spent}

    def add(self, stage: Stage, nanoseconds: int) -> None:
        """Add to a stage's time."""
        self._spent[stage] += nanoseconds

    def timed(self, stage: Stage, function: Callable[P, R]) -> Callable[P, R]:
        """The same function; its time is counted if it returns."""
        add = self.add
        clock = time.perf_counter_ns

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            started = clock()
            result = function(*args, **kwargs)
            add(stage, clock() - started)
            return result

        return call


class _Watched:
    """An object of which one method is timed; everything else is its own."""

    def __init__(self, inner: Any, method: str, stage: Stage, watch: Stopwatch) -> None:  # noqa: ANN401
        self._inner = inner
        setattr(self, method, watch.timed(stage, getattr(inner, method)))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - see the class
        return getattr(self._inner, name)


class _WatchedGeometry:
    """A geometry whose counting is timed, also under a request's overrides."""

    def __init__(self, inner: Geometry, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch
        # Replacements are made when they are taken; here all at once, so that they can be timed.
        self._count = watch.timed(Stage.COUNT, lambda images: list(inner.replacements(images)))

    @property
    def max_embeds(self) -> int:
        return self._inner.max_embeds

    def with_overrides(self, options: RequestOptions) -> Geometry:
        return _WatchedGeometry(self._inner.with_overrides(options), self._watch)

    def replacements(self, images: Sequence[ImageSize]) -> Iterator[Replacement]:
        return iter(self._count(images))


class _Replacements(list[Replacement]):
    """Notices when the first of them is taken by its number: by then, placeholders are found."""

    first_taken: int | None = None

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as a list
        if self.first_taken is None:
            self.first_taken = time.perf_counter_ns()
        return super().__getitem__(index)


class _WatchedPlacement:
    """A placement whose two halves are timed."""

    def __init__(self, inner: Placement, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        noticing = _Replacements(replacements)
        started = time.perf_counter_ns()
        expansion = self._inner.expand(ids, noticing)
        stopped = time.perf_counter_ns()
        # A rule for prompts that hold their images already has nothing to put in.
        found = stopped if noticing.first_taken is None else noticing.first_taken
        self._watch.add(Stage.PLACE, found - started)
        self._watch.add(Stage.EXPAND, stopped - found)
        return expansion


def encoding_watched(normalizer: Normalizer, watch: Stopwatch) -> Normalizer:
    """The same normalizer with the same caches; what its encode stage takes is counted."""
    tokenizer = _Watched(normalizer.model.tokenizer, "encode", Stage.ENCODE, watch)
    return replace(normalizer, model=replace(normalizer.model, tokenizer=cast("Any", tokenizer)))


def watched(normalizer: Normalizer, watch: Stopwatch) -> Normalizer:
    """The same, of all stages: some microseconds slower in all."""
    normalizer = encoding_watched(normalizer, watch)
    rules = normalizer.model.images
    if rules is not None:
        rules = ImageRules(
            _WatchedGeometry(rules.geometry, watch),
            _WatchedPlacement(rules.placement, watch),
            rules.max_embeds,
        )
    chat = _Watched(normalizer.model.chat, "render", Stage.RENDER, watch)
    model = replace(normalizer.model, chat=cast("Any", chat), images=rules)
    return replace(normalizer, model=model)
