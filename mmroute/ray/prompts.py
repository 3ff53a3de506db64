"""The routing of a request's body, as the engine's own routes read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.api import ApiError, ApiOptions, Call, ChatCompletionRequest, read
from mmroute.errors import Reason
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models

_NOT_READ: Final = frozenset({"prompt_embeds", "suffix", "truncate_prompt_tokens"})


class NoRoutingError(Exception):
    """A request has no exact routing.

    Attributes:
        reason: a `Reason`, or for what the engine's schema refuses the kind of its error.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PromptIds(list[int]):
    """Token IDs of a prompt, as Ray hands them on, and what else is known of it.

    Attributes:
        routing: that they are of; None where they are not mmroute's.
        forwardable: whether an engine that gets them reads the same prompt. It drops the media of
            a chat that comes with token IDs.
    """

    def __init__(self, ids: list[int], routing: Routing | None, *, forwardable: bool) -> None:
        super().__init__(ids)
        self.routing = routing
        self.forwardable = forwardable


class PromptReader:
    """Reads the bodies of chats and completions for one model.

    Loading goes on in a thread. Requests have no routing until it is done.

    Args:
        source: of the model.
    """

    def __init__(self, source: ModelSource) -> None:
        self._models = Models([source])
        trusted = source.engine_settings.trust_request_mm_kwargs
        self._options = ApiOptions(trusts_mm_kwargs=trusted)
        (self._entry,) = self._models.load()

    def wait(self) -> None:
        """Until the model is loaded.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._entry.loading.result()

    def routing(self, body: Mapping[str, Any]) -> Routing:
        """The routing of a body with ``messages``, or with a ``prompt`` that is one text.

        Raises:
            NoRoutingError: there is no exact one: what the engine refuses as well, what mmroute
                does not cover, and every request until the model is loaded.
        """
        try:
            loaded = self._models.find(body.get("model"))
            request = read(body, self._entry.source.backend)
            if isinstance(request, ChatCompletionRequest):
                call = Call(loaded, self._options)
                loaded.chats.check_chat(request, call)
                return request.routing(call)
            given = request.model_fields_set & _NOT_READ
            if given or not isinstance(request.prompt, str):
                what = ", ".join(sorted(given)) or "a prompt that is not one text"
                raise NoRoutingError(Reason.UNSUPPORTED_FIELD, f"{what}: not covered")
            routing = loaded.normalizer.answer(request.to_request(request.prompt, loaded.loras))
        except ApiError as error:
            raise NoRoutingError(str(error.reason or error.kind), error.message) from None
        if routing.reason is not None:
            raise NoRoutingError(routing.reason, routing.message)
        return routing


def holds_media(body: Mapping[str, Any]) -> bool:
    """Whether a message has a part that is not known to be text."""
    messages = body.get("messages")
    return any(
        not (isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text"))
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
