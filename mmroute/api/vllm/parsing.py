"""Parses or answers a client's body without HTTP, for a router in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.chat_completion import ChatCompletionRequest
from mmroute.api.vllm.chat_rules import TemplateRules
from mmroute.api.vllm.errors import unsupported_field
from mmroute.api.vllm.model import LoadedModel
from mmroute.api.vllm.options import ApiOptions
from mmroute.api.vllm.releases import release_of
from mmroute.api.vllm.routes import schema_of
from mmroute.engines.settings import EngineSettings
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.api.vllm.completion import CompletionRequest

_DEFAULTS: Final = ApiOptions()
_NO_LORAS: Final[Mapping[str, str]] = {}
_COMPLETION: Final = frozenset({"prompt", "prompt_embeds"})


def from_openai(
    body: Mapping[str, Any],
    *,
    backend: str = "vllm",
    loras: Mapping[str, str] = _NO_LORAS,
    trusts_mm_kwargs: bool = False,
) -> Request:
    """Parse a client's body of ``/v1/chat/completions`` or ``/v1/completions``.

    All of its fields that change a prompt are in the request: messages, tools, documents, options
    of the chat template. For bodies of the Messages and Responses APIs, which become a chat by
    rules of the model, see `answer_body`.

    Args:
        body: the JSON that a client sent. An object with `prompt` or `prompt_embeds` and without
            `messages` is a completion, all others are chats.
        backend: the engine that will answer it: ``vllm``, or a release such as ``vllm==0.28``,
            whose fields it may have.
        loras: the path of each LoRA adapter, by the name that a client gives as `model`.
        trusts_mm_kwargs: whether the engine takes `mm_processor_kwargs` and `media_io_kwargs` of
            clients (its ``--trust-request-mm-kwargs``).

    Raises:
        ApiError: 400: the engine refuses the body; the message is the engine's. 422
            `unsupported_field`: the body has several prompts, or token IDs of another engine. See
            `ApiError.body`.
        ModelError: `unknown_backend`.

    >>> from mmroute import Normalizer, from_openai
    >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
    >>> body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    >>> normalizer.answer(from_openai(body)).token_ids.tolist()
    [1, 3, 37133, 4]
    """
    found = read(body, backend)
    if isinstance(found, ChatCompletionRequest):
        return _of_chat(found, loras, trusts_mm_kwargs=trusts_mm_kwargs)
    prompts = found.prompts()
    if len(prompts) > 1:
        raise unsupported_field(
            f"prompt: there are {len(prompts)}, and a request has one; parse a body for each",
        )
    request = found.to_request(prompts[0], loras)
    return request._replace(truncate_prompt_tokens=found.truncate_prompt_tokens)


def answer_body(
    model: LoadedModel, path: str, body: Mapping[str, Any], options: ApiOptions = _DEFAULTS
) -> Reply:
    """The answer of a route to a client's body, as ``mmroute serve`` gives it.

    Args:
        model: the model to ask.
        path: the route: one of `mmroute.api.vllm.ROUTES`, such as ``/v1/messages/render``.
        body: the JSON that a client sent. It is not changed.
        options: the options that the operator set.

    Raises:
        ApiError: the engine refuses the request, or it has no exact answer.
        KeyError: there is no such route.
        ModelError: `unknown_backend`: the model's engine is not vLLM.

    >>> from mmroute import EngineSettings, Normalizer
    >>> from mmroute.api.vllm import LoadedModel, answer_body
    >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
    >>> model = LoadedModel.of(normalizer, "pixtral", EngineSettings())
    >>> body = {"model": "pixtral", "input": "Hi"}
    >>> answer_body(model, "/v1/responses/render", body).routings[0].token_ids.tolist()
    [1, 3, 37133, 4]
    """
    engine = model.model.engine
    schema = schema_of(path, release_of(f"{engine.name}=={engine.version}"), engine.frontend)
    return schema.request(_copied(body), long=False).answer(Call(model, options))


def read(body: Mapping[str, Any], backend: str) -> ChatCompletionRequest | CompletionRequest:
    """Check the fields of a body of ``/v1/chat/completions`` or ``/v1/completions``.

    Args:
        body: the JSON of the body. It is not changed.
        backend: the engine whose fields it may have, such as ``vllm==0.28``.

    Raises:
        ApiError: 400: the engine refuses the body. 422: `unsupported_field`.
        ModelError: `unknown_backend`.
    """
    given = body if isinstance(body, Mapping) else {}
    is_completion = "messages" not in given and not _COMPLETION.isdisjoint(given)
    path = "/v1/completions/render" if is_completion else "/v1/chat/completions/render"
    request = schema_of(path, release_of(backend)).request(_copied(body), long=False)
    return cast("ChatCompletionRequest | CompletionRequest", request)


def _copied(body: object) -> object:
    return {**body} if isinstance(body, Mapping) else body


def _of_chat(
    chat: ChatCompletionRequest, loras: Mapping[str, str], *, trusts_mm_kwargs: bool
) -> Request:
    settings = EngineSettings(trust_request_mm_kwargs=trusts_mm_kwargs)
    TemplateRules().check_trust(chat, _DEFAULTS, settings)
    if not chat.echo and (chat.kv_transfer_params or {}).get("prompt_token_ids") is not None:
        raise unsupported_field(
            "kv_transfer_params.prompt_token_ids: the engine may take them in place of the "
            "messages; give them as prompt_token_ids",
        )
    return chat.to_request(loras)._replace(truncate_prompt_tokens=chat.truncate_prompt_tokens)
