"""What a server's settings put into requests that do not say otherwise.

Source: vLLM 0.33.0 ``renderers/params.py``, ``config/multimodal.py``,
``multimodal/media/video.py`` and ``entrypoints/openai/chat_completion/protocol.py``
(`build_chat_params`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.items import Modality
from mmroute.request import Request

__all__ = ["RequestDefaults", "own_template_kwargs"]

_SCOPES: Final = ("text_kwargs", "images_kwargs", "videos_kwargs", "audio_kwargs")
_UNSET: Final = (None, "auto")
# Each replaces the other's default, too.
_ALTERNATIVES: Final = {"fps": "num_frames", "num_frames": "fps"}


@dataclass(frozen=True, slots=True)
class RequestDefaults:
    """What requests to one engine have that do not say otherwise.

    Attributes:
        chat_template_kwargs: of chats.
        media_io_kwargs: of chats, by modality.
        mm_processor_kwargs: of all requests. Identities do not cover them, as they cover those of
            the request.
    """

    chat_template_kwargs: Mapping[str, Any]
    media_io_kwargs: Mapping[str, Mapping[str, Any]]
    mm_processor_kwargs: Mapping[str, Any]

    def put_into(self, request: Request) -> Request:
        """The request as the engine answers it, but for `mm_processor_kwargs`."""
        if request.messages is None or not (self.chat_template_kwargs or self.media_io_kwargs):
            return request
        own = own_template_kwargs(request)
        return replace(
            request,
            chat_template_kwargs={
                **own,
                **self.chat_template_kwargs,
                **{name: value for name, value in own.items() if value not in _UNSET},
            },
            media_io_kwargs=self._media_io(request.media_io_kwargs),
        )

    def processor_kwargs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What reaches the processor of a request's ``mm_processor_kwargs``.

        Nested objects are merged. In a scope such as ``images_kwargs``, flat arguments of a request
        win over scoped ones of the engine.
        """
        defaults = self.mm_processor_kwargs
        if not defaults or not given:
            return given or defaults
        flat, given_flat = _flat(defaults), _flat(given)
        merged = _merged(flat, given_flat)
        for scope in _SCOPES:
            ours, theirs = defaults.get(scope) or None, given.get(scope) or None
            if ours is None and theirs is None:
                continue
            if not isinstance(theirs, Mapping | None) or not isinstance(ours, Mapping | None):
                merged[scope] = ours if theirs is None else theirs
                continue
            names = {*(ours or ()), *(theirs or ())}
            found: dict[str, Any] = {}
            for part in (
                {name: value for name, value in flat.items() if name in names},
                ours or {},
                {name: value for name, value in given_flat.items() if name in names},
                theirs or {},
            ):
                found = _merged(found, part)
            merged[scope] = found
        return merged

    def _media_io(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        merged = {}
        for modality in {*self.media_io_kwargs, *given}:
            own = given.get(modality) or {}
            defaults = dict(self.media_io_kwargs.get(modality) or {})
            if modality == Modality.VIDEO:
                for name, other in _ALTERNATIVES.items():
                    if name in own and other not in own:
                        defaults.pop(other, None)
            merged[modality] = {**defaults, **own}
        return merged


def _flat(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _SCOPES}


def own_template_kwargs(request: Request) -> dict[str, Any]:
    """The ``chat_template_kwargs`` of a request, with those that it has fields of their own for.

    Of what it has twice, the field counts. An effort also asks for thinking, or against it, where
    the kwargs do not name that.
    """
    kwargs = dict(request.chat_template_kwargs)
    effort = request.reasoning_effort
    if effort is not None:
        kwargs["reasoning_effort"] = effort
        kwargs.setdefault("enable_thinking", effort != "none")
    if request.documents is not None:
        kwargs["documents"] = list(request.documents)
    return kwargs


def _merged(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for name, value in overrides.items():
        ours = merged.get(name)
        nested = isinstance(ours, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(ours, value) if nested else value  # type: ignore[arg-type]  # a mapping
    return merged
