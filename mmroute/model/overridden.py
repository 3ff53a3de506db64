"""A model's geometry under the arguments of its engine and of requests."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from mmroute.engine import Engine
from mmroute.errors import InexactError, ModelError, Reason
from mmroute.geometry import Overrides
from mmroute.geometry.geometry import Geometry, RefusedItems
from mmroute.requests.items import Modality

_MOST_OVERRIDES: Final = 16
_LONGEST_OVERRIDES: Final = 1024  # bytes
_WITHOUT_REFERENCES: Final = 2  # a version of marshal's format: equal values are equal bytes


def overriding(own: Geometry, engine: Engine) -> Callable[[Overrides], Geometry]:
    """A model's geometry under the overrides of requests to an engine."""

    def changed(overrides: Overrides) -> Geometry:
        processor = engine.processor_kwargs(overrides.processor)
        if not processor and not overrides.media_io:
            return own
        return own.with_overrides(Overrides(processor, overrides.media_io))

    @lru_cache(maxsize=_MOST_OVERRIDES)
    def known(written: bytes) -> Geometry:
        return changed(Overrides(*marshal.loads(written)))  # noqa: S302  # written below

    def overridden(overrides: Overrides) -> Geometry:
        """Most requests repeat the overrides of others. Written down, true differs from 1."""
        pair: Any = overrides.processor, overrides.media_io
        try:
            written = marshal.dumps(pair, _WITHOUT_REFERENCES)
        except ValueError:  # nested too deeply, or of types that JSON has not
            return changed(overrides)
        return known(written) if len(written) <= _LONGEST_OVERRIDES else changed(overrides)

    return overridden


def configured_geometry(
    own: Geometry, overridden: Callable[[Overrides], Geometry], engine: Engine
) -> Geometry:
    """The geometry of requests without overrides of their own."""
    modality = own.accepts.modality
    media_io = engine.media_io(modality)
    try:
        overridden(Overrides({}, media_io))  # chats have these, and prompts have not
        return overridden(Overrides({}, {}))
    except InexactError as inexact:
        options = "--mm-processor-kwargs or --media-io-kwargs"
        if modality is Modality.IMAGE:
            message = f"{options}: {inexact}"
            raise ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message) from inexact
        return replace(own, grid=RefusedItems(f"{options}: {inexact}"))
