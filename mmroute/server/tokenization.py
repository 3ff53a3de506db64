"""``/tokenize``, ``/detokenize`` and ``/tokenizer_info``.

Source: vLLM 0.33.0 ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.model.files import find_model
from mmroute.routing import Routing
from mmroute.server.chats import ChatFields, read_chat, route_chat
from mmroute.server.errors import ApiError, bad_request, wrong_field
from mmroute.server.fields import (
    Body,
    boolean,
    bounded,
    integer,
    list_of,
    read,
    read_nullable,
    text,
)
from mmroute.server.models import ModelSource, ServedModel
from mmroute.server.work import Answer, Work, answered

__all__ = ["detokenize", "tokenize", "tokenizer_info"]

_MAX_INT64: Final = 2**63 - 1
_MAX_ID: Final = 2**32 - 1
_BY_SCHEMA: Final = "Bad Request"
_FILES: Final = ("vocab_file", "merges_file")


def tokenize(body: Body, work: Work) -> Answer:
    """Token IDs of a text or a chat; however long: only the render routes have a limit.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    chat = _chat(body, strict=work.settings.strict)
    if chat is not None:
        served, with_texts = _common(body, work)
        routing = route_chat(served, served.unlimited, chat, work.settings)
        ids: list[int] = routing.token_ids.tolist()
        return answered(served, _token_answer(served, ids, with_texts=with_texts), [routing])
    prompt = text(body["prompt"], "body.prompt") if "prompt" in body else _required("body.prompt")
    with_special = read(body, "add_special_tokens", boolean, True)
    served, with_texts = _common(body, work)
    try:
        found = served.normalizer.model.tokenizer.encode(prompt, add_special_tokens=with_special)
    except ValueError as error:
        raise bad_request(str(error)) from None
    answer = _token_answer(served, found.tolist(), with_texts=with_texts)
    return answered(served, answer, [Routing(_token_ids=found)])


def detokenize(body: Body, work: Work) -> Answer:
    """The text of token IDs, special tokens included; IDs outside the vocabulary have none.

    Raises:
        ApiError: 400, 404.
    """
    if "tokens" not in body:
        raise wrong_field("body.tokens", "Field required")
    ids = list_of(bounded(integer, 0, _MAX_INT64))(body["tokens"], "body.tokens")
    served = work.models.find(read_nullable(body, "model", text))
    if ids and max(ids) > _MAX_ID:
        raise bad_request("number too large to fit in target type")
    tokenizer = served.model.tokenizer
    known = [token_id for token_id in ids if token_id <= tokenizer.max_token_id]
    return answered(served, {"prompt": tokenizer.decode(known)})


def tokenizer_info(source: ModelSource) -> dict[str, Any]:
    """``tokenizer_config.json`` as vLLM shows it: added tokens by their texts, no file names."""
    config = find_model(source.model, revision=source.revision).object("tokenizer_config.json")
    shown_ = {name: _plain(value) for name, value in config.items() if name not in _FILES}
    name = str(config.get("tokenizer_class", "MistralTokenizer")).removesuffix("Fast")
    return {"tokenizer_class": name, **{k: v for k, v in shown_.items() if k != "tokenizer_class"}}


def _chat(body: Body, *, strict: bool) -> ChatFields | None:
    """The chat, unless the body is of the other form. Where both fit vLLM takes what holds more."""
    if "messages" not in body:
        return None
    if strict and "prompt" in body:
        raise bad_request("Give `prompt` or `messages`, not both (--strict).", "prompt")
    is_text = isinstance(body.get("prompt"), str)
    if is_text and not _are_messages(body["messages"]):
        return None
    try:
        chat = read_chat(body)
        read_nullable(body, "return_token_strs", boolean)
        read_nullable(body, "model", text)
    except ApiError as error:
        if error.kind == _BY_SCHEMA and is_text:
            return None
        if error.kind == _BY_SCHEMA and error.param != "body.model":
            error.param = "body.prompt"  # of the other form, whose errors vLLM reports first
        raise
    return chat


def _are_messages(messages: object) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages)
    )


def _common(body: Body, work: Work) -> tuple[ServedModel, bool]:
    with_texts = bool(read_nullable(body, "return_token_strs", boolean))
    return work.models.find(read_nullable(body, "model", text)), with_texts


def _required(location: str) -> str:
    raise wrong_field(location, "Field required")


def _token_answer(served: ServedModel, ids: Sequence[int], *, with_texts: bool) -> dict[str, Any]:
    return {
        "count": len(ids),
        "max_model_len": served.max_model_len,
        "tokens": ids,
        "token_strs": _pieces(served, ids) if with_texts else None,
    }


def _pieces(served: ServedModel, ids: Sequence[int]) -> list[str]:
    """The vocabulary's own spelling of each token."""
    return [served.model.tokenizer.token(token_id) or "" for token_id in ids]


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        if "content" in value:
            return value["content"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
