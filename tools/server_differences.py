"""The differences from vLLM's render server that docs/server-reference.md lists, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chat_requests import MESSAGES, RESPONSES
from replayed import Posted

from mmroute.engines.vllm.messages import OTHER_MEDIA, TEXT_FIELD
from mmroute.lab.parity.oracles.pictures import has_media
from mmroute.server.settings import ServerSettings

Fields = Mapping[str, Any]

_NO_TOOLS: Final = (None, "none")
_BEYOND_UINT32: Final = 2**32
_OWN_ARGUMENTS: Final = frozenset({
    "chat_template", "conversation", "padding", "tokenize", "tools",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deliberate:
    """A difference that docs/server-reference.md lists.

    Attributes:
        name: in the report.
        when: whether a request is one of those.
        theirs: vLLM's status.
        ours: the status here.
        beside: fields in which two answers differ, and in no other, with dots; None for any.
        says: what vLLM's error message has in it.
    """

    name: str
    when: Callable[[Posted], bool]
    theirs: int
    ours: int
    beside: tuple[str, ...] | None = ()
    says: str = ""


_MAX_STRUCTURE: Final = ServerSettings().max_structure


def _calls_tools(request: Posted) -> bool:
    fields = request.fields
    given = bool(fields.get("tools")) or request.path == MESSAGES
    return given and fields.get("tool_choice", "auto") not in _NO_TOOLS


def _has_media(request: Posted) -> bool:
    return request.path in (MESSAGES, RESPONSES) or has_media(request.fields.get("messages"))


def _has(*names: str) -> Callable[[Posted], bool]:
    return lambda request: any(request.fields.get(name) is not None for name in names)


def _has_both(request: Posted) -> bool:
    return isinstance(request.fields.get("prompt"), str) and "messages" in request.fields


def _has_surrogate(request: Posted) -> bool:
    try:
        json.dumps(request.fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_no_json(request: Posted) -> bool:
    return isinstance(request.body, bytes) and not request.fields


def _has_many_brackets(request: Posted) -> bool:
    return isinstance(request.body, bytes) and 4 * request.body.count(b"[") > _MAX_STRUCTURE


def _is_at(path: str) -> Callable[[Posted], bool]:
    return lambda request: request.path == path


def _any_message(found: Callable[[Fields], bool]) -> Callable[[Posted], bool]:
    def when(request: Posted) -> bool:
        messages = request.fields.get("messages")
        return isinstance(messages, list) and any(
            found(message) for message in messages if isinstance(message, dict)
        )

    return when


def _has_wrong_field(message: Fields) -> bool:
    """A field that only one of the API's types has, and of another kind than it has there."""
    texts = [message.get(n) for n in ("reasoning", "reasoning_content", "task", "tool_call_id")]
    calls, tools = message.get("tool_calls"), message.get("tools")
    return (
        any(not isinstance(text, str | None) for text in texts)
        or not (calls is None or (message.get("role") == "assistant" and _are_objects(calls)))
        or not (tools is None or _are_objects(tools))
        or message.get("content") == {}
    )


def _are_objects(value: object) -> bool:
    """Whether it may be a list of tools or of their calls: each has a function."""
    items = value if isinstance(value, list) else []
    return bool(items) and all(isinstance(item, dict) and "function" in item for item in items)


def _has_part(found: Callable[[Any], bool]) -> Callable[[Fields], bool]:
    def when(message: Fields) -> bool:
        parts = message.get("content")
        return isinstance(parts, list) and any(map(found, parts))

    return when


def _is_text_without_text(part: Any) -> bool:
    if not isinstance(part, dict):
        return isinstance(part, str)
    field = TEXT_FIELD.get(str(part.get("type")))
    return field is not None and not isinstance(part.get(field), str)


def _is_without_type(part: Any) -> bool:
    return isinstance(part, dict) and "type" not in part


def _is_other_media(part: Any) -> bool:
    return isinstance(part, dict) and (
        part.get("type") in OTHER_MEDIA or not part.keys().isdisjoint(OTHER_MEDIA)
    )


def _has_huge_id(request: Posted) -> bool:
    prompt = request.fields.get("prompt")
    return isinstance(prompt, list) and any(
        isinstance(token_id, int) and token_id >= _BEYOND_UINT32 for token_id in prompt
    )


def _has_own_argument(request: Posted) -> bool:
    kwargs = request.fields.get("chat_template_kwargs")
    return isinstance(kwargs, dict) and not _OWN_ARGUMENTS.isdisjoint(kwargs)


def _is_tag(value: object) -> bool:
    name = "structural_tag"
    return isinstance(value, dict) and (name in value or value.get("type") == name)


def _has_tag(request: Posted) -> bool:
    names = ("response_format", "structured_outputs")
    return any(_is_tag(request.fields.get(name)) for name in names)


_CHECKED_BY_THE_ENGINE: Final = (
    "allowed_token_ids", "background", "bad_words", "echo", "frequency_penalty", "include",
    "kv_transfer_params", "logit_bias", "logprob_token_ids", "logprobs", "max_completion_tokens",
    "max_output_tokens", "max_tokens", "min_p", "min_tokens", "n", "output_config",
    "presence_penalty", "priority", "prompt_cache_options", "prompt_cache_retention",
    "prompt_logprobs", "repetition_detection", "repetition_penalty", "response_format",
    "return_weight_versions", "routed_experts_prompt_start", "seed", "service_tier", "stop",
    "stop_sequences", "stream_interval", "stream_options", "structured_outputs", "temperature",
    "text", "thinking", "thinking_token_budget", "tool_choice", "top_k", "top_logprobs", "top_p",
    "use_beam_search", "vllm_xargs",
)  # fmt: skip

DELIBERATE: Final = (
    Deliberate(
        "an item that the model does not take, which the engine itself refuses",
        _has_media, theirs=400, ours=422, says="At most 0",
    ),
    Deliberate(
        "a data URL that is no base64",
        _has_media, theirs=501, ours=400, says="Only base64 data URLs",
    ),
    Deliberate(
        "tools without a tool parser",
        _calls_tools, theirs=400, ours=200, says="--tool-call-parser",
    ),
    Deliberate(
        "a router's first request, whose parts have no type",
        _any_message(_has_part(_is_without_type)), theirs=400, ours=200,
    ),
    Deliberate(
        "links are not followed unless allowed",
        _has_media, theirs=500, ours=422,
    ),
    Deliberate(
        "a picture that the engine holds, without its size",
        _has_media, theirs=400, ours=422,
        says="Cache miss",
    ),
    Deliberate(
        "too many pixels",
        _has_media, theirs=500, ours=400, says="decompression bomb",
    ),
    Deliberate(
        "ranges that overlap",
        _has_media, theirs=400, ours=200, says="globally non-overlapping",
    ),
    Deliberate(
        "no tensors",
        _has_media, theirs=200, ours=200,
        beside=("features.kwargs_data", "features.mm_metadata"),
    ),
    Deliberate(
        "no offsets of chats",
        _has("return_token_offsets"), theirs=200, ours=200, beside=("token_offsets",),
    ),
    Deliberate(
        "fields that are not covered",
        _has("reasoning_effort", "documents", "media_io_kwargs", "kv_transfer_params",
             "truncate_prompt_tokens"),
        theirs=200, ours=422,
    ),
    Deliberate(
        "a cut through an image",
        _has("truncate_prompt_tokens"),
        theirs=500, ours=422,
    ),
    Deliberate(
        "a server error for a client's mistake",
        lambda _: True, theirs=500, ours=400,
    ),
    Deliberate(
        "a token ID above 2^32 - 1",
        _has_huge_id, theirs=200, ours=400,
    ),
    Deliberate(
        "a structural tag that xgrammar refuses",
        _has_tag, theirs=400, ours=200, says="structural_tag",
    ),
    Deliberate(
        "other media, malformed",
        _any_message(_has_part(_is_other_media)),
        theirs=400, ours=422,
    ),
    Deliberate(
        "a message's fields of another kind",
        _any_message(_has_wrong_field), theirs=200, ours=400,
    ),
    Deliberate(
        "a text part without its text",
        _any_message(_has_part(_is_text_without_text)), theirs=200, ours=400,
    ),
    Deliberate(
        "a text or a chat that is malformed within",
        _has_both, theirs=200, ours=400,
    ),
    Deliberate(
        "tool calls for /tokenize of Mistral's own tokenizers",
        _has("messages"), theirs=400, ours=200, says="got <class 'pydantic_core",
    ),
    *(
        Deliberate(
            "processor options that are not covered",
            _has("mm_processor_kwargs", "media_io_kwargs"),
            theirs=theirs, ours=422,
        )
        for theirs in (200, 400)  # of what is not covered nobody knows whether a processor takes it
    ),
    Deliberate("half of a surrogate pair", _has_surrogate, theirs=400, ours=400),
    # Where it is put into the prompt by mistral-common, which makes another character of it.
    Deliberate(
        "half of a surrogate pair", _has_surrogate, theirs=200, ours=400
    ),
    Deliberate(
        "detokenized IDs outside Mistral's vocabulary",
        _has("tokens"), theirs=500, ours=200, says="Invalid token for decoding",
    ),
    *(
        Deliberate(
            "which of several mistakes", lambda request: request.several, theirs=400, ours=ours
        )
        for ours in (404, 422)
    ),
    Deliberate(
        "template arguments that are no variables",
        _has_own_argument,
        theirs=200, ours=400,
    ),
    Deliberate(
        "a body of too many brackets", _has_many_brackets, theirs=400,
        ours=413,
    ),
    Deliberate("a body that is no JSON", _is_no_json, theirs=400, ours=400),
    # RFC 9110, section 9.1: a server answers HEAD where it answers GET.
    Deliberate("HEAD", _is_at("/health"), theirs=405, ours=200),
    Deliberate(
        "mmroute's own version",
        _is_at("/version"), theirs=200, ours=200, beside=("engine", "frontend", "mmroute"),
    ),
    Deliberate(
        "tokenizer information of the files, not of a tokenizer object",
        _is_at("/tokenizer_info"), theirs=200, ours=200, beside=None,
    ),
    Deliberate(
        "a value that changes neither the prompt nor its hashes",
        _has(*_CHECKED_BY_THE_ENGINE), theirs=400, ours=200,
    ),
)  # fmt: skip
"""Every difference that is meant."""
