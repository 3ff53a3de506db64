"""Answers of ``/tokenize`` and ``/detokenize``, and the token IDs of chats as SGLang counts them.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_tokenize.py``, ``protocol.py``
(`TokenizeRequest`, `DetokenizeRequest`), ``srt/entrypoints/anthropic/serving.py``
(`handle_count_tokens`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field

from mmroute.answering.pipeline import check_compared
from mmroute.answering.routing import Routing
from mmroute.engines.sglang.bodies import parse_body
from mmroute.engines.sglang.chat import SglangChat
from mmroute.engines.sglang.message_schema import HANDED_ON, NOT
from mmroute.errors import InexactError, Reason, invalid
from mmroute.requests.checks import check_request
from mmroute.requests.request import Request
from mmroute.server.api import Call, Reply
from mmroute.server.engines.sglang.model import SglangModel
from mmroute.token_ids import MAX_TOKEN_ID, TokenIds, as_token_ids

_OF_TEXTS: Final = {"prompt", "add_special_tokens"}


class Tokenize(BaseModel):
    """A body of ``/tokenize``: of a text or a chat."""

    model_config = ConfigDict(extra="allow")

    model: str = ""
    prompt: str | list[str] | None = None
    messages: Any = None
    tools: Any = None
    add_special_tokens: bool = True
    add_generation_prompt: bool | None = None


_Id = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


class Detokenize(BaseModel):
    """A body of ``/detokenize``."""

    model: str = ""
    tokens: list[_Id] | list[list[_Id]]
    skip_special_tokens: bool = True


def rendered_ids(model: SglangModel, request: Request) -> TokenIds:
    """The token IDs of a chat as it is rendered, with one placeholder for each image."""
    asked = request._replace(api_fields={**request.api_fields, HANDED_ON: NOT})
    check_compared(model.model.engine.release)
    check_request(asked)
    chat = model.model.chat
    model.model.engine.accept(asked, chat)
    return cast("TokenIds", chat.render(chat.read(asked), {}, asked))


def tokenize(body: Tokenize, call: Call[SglangModel]) -> Reply:
    """The answer of ``/tokenize``."""
    if (body.prompt is None) == (body.messages is None):
        raise invalid("give either a prompt or messages")
    model = call.model
    if body.messages is not None:
        model.check_version()
        ids = _chat_ids(body, model)
        return _tokenized(ids, len(ids), model)
    encode = model.model.tokenizer.encode
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt or []
    try:
        made = [encode(text, add_special_tokens=body.add_special_tokens) for text in texts]
    except ValueError as error:
        raise invalid(f"the prompt cannot be encoded: {error}") from error
    if isinstance(body.prompt, str):
        return _tokenized(made[0], len(made[0]), model)
    return _tokenized(made, [len(ids) for ids in made], model)


def _tokenized(tokens: Any, count: Any, model: SglangModel) -> Reply:
    routings = [Routing(_token_ids=tokens)] if isinstance(count, int) else []
    answer = {"tokens": tokens, "count": count, "max_model_len": model.tokenizer_limit}
    return Reply(answer, routings)


def _chat_ids(body: Tokenize, model: SglangModel) -> TokenIds:
    if body.add_generation_prompt is not None:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD, "add_generation_prompt: it is not covered for chats"
        )
    sent = body.model_dump(exclude_none=True, exclude=_OF_TEXTS)
    request = parse_body({**sent, "messages": body.messages, "tools": _without_nulls(body.tools)})
    if request.prompt_token_ids is not None:
        return as_token_ids(list(request.prompt_token_ids))
    chat = cast("SglangChat", model.model.chat)
    if not chat.encoder.multimodal and chat.read(request).media:
        raise invalid("the engine serves this model without images")
    return rendered_ids(model, request)


def _without_nulls(tools: Any) -> Any:
    """The tools of a body, which the engine writes once more without the nulls of functions."""
    if not isinstance(tools, list):
        return tools
    return [
        {
            **tool,
            "function": {
                name: value for name, value in tool["function"].items() if value is not None
            },
        }
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
        else tool
        for tool in tools
    ]


def detokenize(body: Detokenize, call: Call[SglangModel]) -> Reply:
    """The answer of ``/detokenize``."""
    tokenizer = call.model.model.tokenizer
    if tokenizer.chat_encoder is not None:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD, "what mistral-common writes for control tokens is not covered"
        )
    tokens: Any = body.tokens
    several = bool(tokens) and isinstance(tokens[0], list)
    texts = [
        tokenizer.decode(ids, skip_special_tokens=body.skip_special_tokens)
        for ids in (tokens if several else [tokens])
    ]
    return Reply({"text": texts if several else texts[0]})
