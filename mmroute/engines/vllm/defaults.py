"""Puts a server's defaults into requests, and refuses requests that the server refuses.

Source: vLLM ``renderers/params.py``, ``renderers/online_renderer.py`` (`render_chat`),
``entrypoints/generate/base/protocol.py`` (`validate_request_mm_kwargs`), ``tokenizers/mistral.py``
(`validate_request_params`), ``config/multimodal.py``,
``multimodal/media/video.py`` and ``entrypoints/openai/chat_completion/protocol.py``
(`build_chat_params`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mmroute.chat import Chat
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, Reason, invalid
from mmroute.families.overlays import overlaid
from mmroute.requests.items import Modality
from mmroute.requests.request import NO_KWARGS, ClientRequest, Request

_SCOPES: Final = ("text_kwargs", "images_kwargs", "videos_kwargs", "audio_kwargs")
_UNSET: Final = (None, "auto")
# Each replaces the other's default, too.
_ALTERNATIVES: Final = {"fps": "num_frames", "num_frames": "fps"}


def with_defaults(request: Request, settings: VllmSettings, chat: Chat) -> Request:
    """A request with the server's defaults for template variables and for reading media."""
    check_client(request, settings, chat)
    if settings.complete:
        _check_accepted(request, settings, chat)
    if settings.excludes_tools and request.api_fields.get("tool_choice") == "none":
        request = request._replace(tools=None)
    if settings.reasoning_efforts and isinstance(request.reasoning_effort, str):
        effort = settings.reasoning_efforts.get(request.reasoning_effort, request.reasoning_effort)
        request = request._replace(reasoning_effort=effort)
    if not (settings.chat_template_kwargs or settings.media_io_kwargs) or request.messages is None:
        return request
    own = own_template_kwargs(
        request.chat_template_kwargs, request.reasoning_effort, request.documents
    )
    return request._replace(
        chat_template_kwargs={
            **own,
            **settings.chat_template_kwargs,
            **{name: value for name, value in own.items() if value not in _UNSET},
        },
        media_io_kwargs=_media_io(settings.media_io_kwargs, request.media_io_kwargs),
    )


def check_client(request: Request, settings: VllmSettings, chat: Chat) -> None:
    """Refuse what a client may not set. Chats that ignore items read none of it."""
    if settings.fits_memory and request.truncate_prompt_tokens == -1:
        raise InexactError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            "truncate_prompt_tokens=-1 keeps as many tokens as fit the context, which the engine "
            "chooses by its memory (--max-model-len auto); give the number that it logs",
        )
    if not isinstance(request, ClientRequest) or chat.ignores_items:
        return
    if not settings.trust_request_mm_kwargs:
        for name in ("mm_processor_kwargs", "media_io_kwargs"):
            if getattr(request, name):
                raise invalid(
                    f"the engine takes {name} of clients only with --trust-request-mm-kwargs"
                )
    kwargs = request.chat_template_kwargs
    if "chat_template" in request.api_fields or kwargs.get("chat_template") is not None:
        if settings.trust_request_chat_template:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD, "chat_template: templates of requests are not covered"
            )
        raise invalid(
            "the engine takes a chat_template of clients only with --trust-request-chat-template"
        )


def _check_accepted(request: Request, settings: VllmSettings, chat: Chat) -> None:
    if not settings.trust_request_mm_kwargs:
        for name in ("mm_processor_kwargs", "media_io_kwargs"):
            if getattr(request, name):
                raise InexactError(
                    Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                    f"the engine refuses {name} of requests: it was started without "
                    "--trust-request-mm-kwargs",
                )
    given = request.chat_template_kwargs is not NO_KWARGS  # the engine refuses an empty object, too
    if given and request.messages is not None and chat.templates is None:
        raise invalid(
            "the engine refuses chat_template_kwargs in chats of models in Mistral's format"
        )


def processor_kwargs(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``mm_processor_kwargs`` of a server and of a request, as they reach the processor.

    Nested objects are merged. In a scope such as ``images_kwargs``, flat arguments of a request
    win over scoped ones of the server.
    """
    if not defaults or not given:
        return given or defaults
    flat, given_flat = _flat(defaults), _flat(given)
    merged = overlaid(flat, given_flat)
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
            found = overlaid(found, part)
        merged[scope] = found
    return merged


def _media_io(
    defaults: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]
) -> Mapping[str, Any]:
    merged = {}
    for modality in {*defaults, *given}:
        own = given.get(modality) or {}
        kept = dict(defaults.get(modality) or {})
        if modality == Modality.VIDEO:
            for name, other in _ALTERNATIVES.items():
                if name in own and other not in own:
                    kept.pop(other, None)
        merged[modality] = {**kept, **own}
    return merged


def _flat(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _SCOPES}


def own_template_kwargs(
    own: Mapping[str, Any], effort: object, documents: Iterable[object] | None
) -> Mapping[str, Any]:
    """The ``chat_template_kwargs`` of a request, with the values of its other fields.

    A field wins over a kwarg of the same name. An effort also switches thinking on or off, unless
    the kwargs do.
    """
    if effort is None and documents is None:
        return own
    kwargs = dict(own)
    if documents is not None:
        kwargs["documents"] = list(documents)
    if effort is not None:
        kwargs["reasoning_effort"] = effort
        kwargs.setdefault("enable_thinking", effort != "none")
    return kwargs
