"""Chats as bodies to forward to an engine: ``/v1/chat/completions/forward``, a route of mmroute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from mmroute import forwarding
from mmroute.answering.routing import Routing
from mmroute.engines.forwarding import changed_parts
from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.errors import InexactError
from mmroute.images.data_url import DecodedUrl
from mmroute.server.api import Reply
from mmroute.server.api_errors import bad_request
from mmroute.server.engines.vllm.chat_completion import answer_chat
from mmroute.server.engines.vllm.model import Call

_Target: TypeAlias = Literal[
    "vllm_generate", "vllm_generate_cached", "vllm_generate_metadata",
    "vllm_chat", "vllm_chat_cached", "vllm_chat_metadata",
]  # fmt: skip
_GENERATE: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "vllm_generate": forwarding.vllm_generate,
    "vllm_generate_cached": forwarding.vllm_generate_cached,
    "vllm_generate_metadata": forwarding.vllm_generate_metadata,
}


class ForwardRequest(ChatCompletionRequest):
    """Body of ``/v1/chat/completions/forward``: a chat, and where it is to be forwarded.

    Attributes:
        forward_to: the function of `mmroute.forwarding` that makes the answer.
        held: for ``vllm_chat_cached`` the uuids of the items that the engine holds.
    """

    forward_to: _Target = "vllm_generate"
    held: list[str] = Field(default_factory=list)


def answer_forward(request: ForwardRequest, call: Call) -> Reply:
    """The answer of ``/v1/chat/completions/forward``."""
    reply = answer_chat(request, call._replace(blocks=None, tokens_only=False))
    (routing,) = reply.routings
    try:
        return Reply(_body(request, routing, reply.body), reply.routings)
    except InexactError:  # which may be a ValueError as well
        raise
    except ValueError as error:
        raise bad_request(str(error), "forward_to") from None


def _body(request: ForwardRequest, routing: Routing, rendered: Mapping[str, Any]) -> dict[str, Any]:
    client = request.model_dump(exclude_unset=True, exclude={"forward_to", "held"})
    client = changed_parts(client, _with_written_url)
    if generate := _GENERATE.get(request.forward_to):
        told = ("sampling_params", "output_mode", "parse_context")
        return generate(routing, client, **{name: rendered[name] for name in told})
    if request.forward_to == "vllm_chat":
        return forwarding.vllm_chat(routing, client)
    if request.forward_to == "vllm_chat_metadata":
        return forwarding.vllm_chat_metadata(routing, client)
    return forwarding.vllm_chat_cached(routing, client, frozenset(request.held))


def _with_written_url(part: Mapping[str, Any], _: int) -> Mapping[str, Any]:
    """The part as the client sent it: a server decodes large pictures while it reads the body."""
    link = part[part["type"]]
    url = link.get("url") if isinstance(link, Mapping) else None
    if not isinstance(url, DecodedUrl):
        return part
    return {**part, part["type"]: {**link, "url": url.written()}}
