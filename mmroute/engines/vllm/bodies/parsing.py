"""Parses a client's body, for a router in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.errors import unsupported_field
from mmroute.engines.vllm.bodies.schemas import release_of, schema_of
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.engines.vllm.bodies.completion import CompletionRequest

_COMPLETION: Final = frozenset({"prompt", "prompt_embeds"})


def parse_body(body: Mapping[str, Any], backend: str) -> Request:
    """See `mmroute.engine.Chats.read_body`, for the fields that a release knows."""
    found = read(body, backend)
    if isinstance(found, ChatCompletionRequest):
        return _of_chat(found)
    prompts = found.prompts()
    if len(prompts) > 1:
        raise unsupported_field(
            f"prompt: there are {len(prompts)}, and a request has one; parse a body for each",
        )
    request = found.to_request(prompts[0])
    return request._replace(truncate_prompt_tokens=found.truncate_prompt_tokens)


def read(body: Mapping[str, Any], backend: str) -> ChatCompletionRequest | CompletionRequest:
    """Check the fields of a body of ``/v1/chat/completions`` or ``/v1/completions``."""
    given = body if isinstance(body, Mapping) else {}
    is_completion = "messages" not in given and not _COMPLETION.isdisjoint(given)
    path = "/v1/completions/render" if is_completion else "/v1/chat/completions/render"
    request = schema_of(path, release_of(backend)).request(_copied(body))
    return cast("ChatCompletionRequest | CompletionRequest", request)


def _copied(body: object) -> object:
    return {**body} if isinstance(body, Mapping) else body


def _of_chat(chat: ChatCompletionRequest) -> Request:
    if not chat.echo and (chat.kv_transfer_params or {}).get("prompt_token_ids") is not None:
        raise unsupported_field(
            "kv_transfer_params.prompt_token_ids: the engine may take them in place of the "
            "messages; give them as prompt_token_ids",
        )
    return chat.to_request()._replace(truncate_prompt_tokens=chat.truncate_prompt_tokens)
