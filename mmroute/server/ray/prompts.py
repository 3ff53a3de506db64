"""The routing of a request's body, which is read as the engine's own routes read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies import read
from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.errors import InexactError, Reason
from mmroute.server.api import ApiOptions, Call
from mmroute.server.api_errors import ApiError
from mmroute.server.engines.vllm.chat_completion import chat_routing, check_chat
from mmroute.server.engines.vllm.model import LoadedModel
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models

_NOT_READ: Final = frozenset({"prompt_embeds", "suffix", "truncate_prompt_tokens"})


class NoRoutingError(Exception):
    """A request has no exact routing.

    Attributes:
        reason: a `Reason`, or the kind of the server's error, such as for an unknown model.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PromptReader:
    """Reads the bodies of chats and completions for one model.

    The model is loaded in a thread. Until it is loaded, requests have no routing.
    """

    def __init__(self, source: ModelSource) -> None:
        self._models = Models([source])
        (self._entry,) = self._models.load()

    def wait(self) -> None:
        """Wait until the model is loaded."""
        self._entry.loading.result()

    def routing(self, body: Mapping[str, Any]) -> Routing:
        """The routing of a body with ``messages``, or with a ``prompt`` that is one text."""
        try:
            loaded = cast("LoadedModel", self._models.find(body.get("model")))
            request = read(body, self._entry.source.backend)
            if isinstance(request, ChatCompletionRequest):
                call = Call(loaded, ApiOptions())
                check_chat(request, call)
                return chat_routing(request, call)
            unread = request.model_fields_set & _NOT_READ
            if unread or not isinstance(request.prompt, str):
                what = ", ".join(sorted(unread)) or "a prompt that is not one text"
                raise NoRoutingError(Reason.UNSUPPORTED_FIELD, f"{what}: not covered")
            routing = loaded.normalizer.answer(request.to_request(request.prompt))
        except ApiError as error:
            raise NoRoutingError(str(error.reason or error.kind), error.message) from None
        except InexactError as error:
            raise NoRoutingError(error.reason, str(error)) from None
        if routing.reason is not None:
            raise NoRoutingError(routing.reason, routing.message)
        return routing
