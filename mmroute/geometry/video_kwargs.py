"""Reading the `mm_processor_kwargs` of a request for its videos and audio.

The engine hands them to the model's processors. What was not observed with vLLM 0.33.0 is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmroute.geometry.processor_kwargs import refused

__all__ = ["read_scoped_kwargs"]


def read_scoped_kwargs(kwargs: Mapping[str, Any], scope: str, *names: str) -> dict[str, Any]:
    """The kwargs of these names, those inside the scope winning over flat ones.

    Args:
        kwargs: of the request.
        scope: ``videos_kwargs`` or ``audio_kwargs``.
        names: what the geometry reads.

    Raises:
        InexactError: `unsupported_processor_kwargs` for any other, but for the scopes of other
            modalities.
    """
    scoped = kwargs.get(scope) or {}
    if not isinstance(scoped, Mapping):
        raise refused(scope, scoped, "an object")
    others = {"images_kwargs", "videos_kwargs", "audio_kwargs"}
    for name, value in {**scoped, **{k: v for k, v in kwargs.items() if k not in others}}.items():
        if name not in names:
            raise refused(name, value, "absent, where the request has videos or audio")
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}
