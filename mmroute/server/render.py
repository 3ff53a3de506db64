"""``/v1/chat/completions/render`` and ``/v1/completions/render``.

Source: vLLM 0.33.0 ``entrypoints/scale_out/render/serving.py``, ``renderers/params.py``
(`TokenizeParams`), and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, Reason, did_you_mean, shown
from mmroute.forwarding import OUTPUT_MODES
from mmroute.request import check_cache_salt
from mmroute.routing import Routing
from mmroute.server.answers import Rendered, block_hashes_of, features_of, generate_request
from mmroute.server.chats import ChatFields, beginning_of_chat, exact, read_chat, route_chat
from mmroute.server.early_checks import check_early, check_unused
from mmroute.server.errors import ApiError, bad_request, of_reason, wrong_field
from mmroute.server.fields import (
    Body,
    boolean,
    bounded,
    integer,
    list_of,
    object_,
    object_of,
    read,
    read_nullable,
    text,
)
from mmroute.server.models import ServedModel
from mmroute.server.prompts import Prompt, encode_prompt, read_prompts
from mmroute.server.sampling import SamplingRequest
from mmroute.server.settings import InexactPolicy
from mmroute.server.truncation import Truncation, read_truncation
from mmroute.server.work import Answer, Work, answered
from mmroute.stages import Stage

__all__ = ["render_chat", "render_completion"]

_PAYLOADS: Final = ("tensors", "none")
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TOOL_CHOICES: Final = ("none", "auto", "required")
_UNSET: Final = (None, "auto")
# Why a chat may have no exact answer while the tokens before its first image are known.
_OF_IMAGES: Final = frozenset({
    Reason.IMAGE_SIZE_UNKNOWN, Reason.IMAGE_LINK_REFUSED, Reason.IMAGE_LINK_FAILED,
    Reason.IMAGE_UNREADABLE, Reason.IMAGE_IDENTITY_UNKNOWN, Reason.ITEM_TOO_LARGE,
})  # fmt: skip
_NO_TENSORS: Final = {"x-mmroute-mm-payload": "none"}


def render_chat(body: Body, work: Work) -> Answer:
    """The prompt of a chat, as the engine would get it.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    check_early(body, chat=True)
    chat = read_chat(body)
    check_unused(body, chat=True)
    tool_choice = _tool_choice(body, chat)
    carried = _carried(body, chat=True)
    payload = _mm_payload(body)
    truncation = read_truncation(body)
    context = _parse_context(body, chat, tool_choice)
    unsupported = _unsupported(body)
    served = work.models.find(carried["model"])
    sampling = SamplingRequest(body, served.defaults, chat=True)
    _check_refusals(body, work, tool_choice if chat.tools else None)
    _check_template(body, served)
    sampling.check_prompt_budget(served.max_model_len)
    if unsupported is not None:
        raise of_reason(Reason.UNSUPPORTED_FIELD, unsupported, model=served.name)
    normalizer = served.normalizer if truncation is None else served.unlimited
    request_id, salt = _base_id("chatcmpl", body, work), carried["cache_salt"]
    try:
        routing = route_chat(served, normalizer, chat, work.settings, cache_salt=salt)
        if truncation is not None:
            truncation.check_untouched(served, len(routing.token_ids))
        rendered = _rendered(served, routing, request_id, sampling, work, context=context)
    except ApiError as error:
        wanted = work.settings.inexact is InexactPolicy.TEXT_PREFIX and truncation is None
        if not wanted or error.reason not in _OF_IMAGES:
            raise
        begun = beginning_of_chat(served, chat, cache_salt=salt)
        if begun is None:
            raise
        rendered = _rendered(served, begun, request_id, sampling, work, context=context)
        answer = generate_request(rendered, carried)
        answer["sampling_params"] = None  # or it could be posted on, and answered
        answer["inexact"] = {"reason": error.reason.value, "message": error.message}
        return answered(served, answer, [begun], inexact=error.reason)
    headers = _NO_TENSORS if rendered.features is not None and payload == "tensors" else {}
    return answered(served, generate_request(rendered, carried), [routing], headers)


def render_completion(body: Body, work: Work) -> Answer:
    """The prompts of a completion, one answer for each.

    Raises:
        ApiError: as `render_chat`.
    """
    check_early(body, chat=False)
    prompts = read_prompts(body)
    check_unused(body, chat=False)
    carried = _carried(body, chat=False)
    _mm_payload(body)
    truncation = read_truncation(body)
    with_special = read(body, "add_special_tokens", boolean, True)
    with_offsets = bool(read_nullable(body, "return_token_offsets", boolean))
    served = work.models.find(carried["model"])
    sampling = SamplingRequest(body, served.defaults, chat=False)
    _check_refusals(body, work, None)
    sampling.check_prompt_budget(served.max_model_len)
    base = _base_id("cmpl", body, work)
    routings, answers = [], []
    for number, prompt in enumerate(prompts):
        routing = _route_prompt(
            served, prompt, truncation, work, carried, with_special=with_special
        )
        offsets = prompt.offsets(served, with_special) if with_offsets else None
        request_id = base if len(prompts) == 1 else f"{base}-{number}"
        rendered = _rendered(served, routing, request_id, sampling, work, offsets=offsets)
        routings.append(routing)
        answers.append(generate_request(rendered, carried))
    return answered(served, answers, routings)


def _route_prompt(
    served: ServedModel,
    prompt: Prompt,
    truncation: Truncation | None,
    work: Work,
    carried: Mapping[str, Any],
    *,
    with_special: bool,
) -> Routing:
    routing = encode_prompt(
        served,
        prompt,
        truncation,
        add_special_tokens=with_special,
        cache_salt=carried["cache_salt"],
        in_vocabulary=work.blocks is not None,
    )
    return exact(served, routing)


def _rendered(
    served: ServedModel,
    routing: Routing,
    request_id: str,
    sampling: SamplingRequest,
    work: Work,
    *,
    context: Mapping[str, Any] | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Rendered:
    ids = routing.token_ids
    try:
        features = features_of(routing)
        hashes = None
        if work.blocks is not None:
            work.models.watch.resume()
            hashes = block_hashes_of(routing, work.blocks)
            work.models.watch.lap(Stage.HASH)
    except InexactError as inexact:
        raise of_reason(inexact.reason, str(inexact), model=served.name) from None
    return Rendered(
        request_id=request_id,
        token_ids=ids.tolist(),
        features=features,
        sampling_params=sampling.params(served.max_model_len, len(ids)),
        parse_context=context,
        token_offsets=offsets,
        block_hashes=hashes,
    )


def _base_id(prefix: str, body: Body, work: Work) -> str:
    """The header wins over the body."""
    own = read(body, "request_id", text, "")
    return f"{prefix}-{work.request_id or own or work.own_id}"


def _carried(body: Body, *, chat: bool) -> dict[str, Any]:
    """The fields that are handed on."""
    salt = body.get("cache_salt")
    try:
        check_cache_salt(salt)
    except InexactError as inexact:
        raise bad_request(str(inexact), "cache_salt") from None
    stream = bool(read_nullable(body, "stream", boolean))
    options = read_nullable(body, "stream_options", object_)
    usage = {"include_usage": False, "continuous_usage_stats": False}
    return {
        "model": read_nullable(body, "model", text),
        "return_token_ids": read_nullable(body, "return_token_ids", boolean),
        "output_mode": _output_mode(body),
        "stream": stream,
        "stream_options": {**usage, **options} if stream and options is not None else None,
        "cache_salt": salt,
        "priority": read(body, "priority", bounded(integer, -(2**63), 2**63 - 1), 0),
        "kv_transfer_params": _for_engine(body, chat=chat),
        "ec_transfer_params": read_nullable(body, "ec_transfer_params", object_) or None,
    }


def _output_mode(body: Body) -> str:
    """A field of the generate route; vLLM's render routes have none, and say ``tokens``."""
    mode = body.get("output_mode", "tokens")
    if mode not in OUTPUT_MODES:
        raise wrong_field(
            "body.output_mode",
            f"Input should be {', '.join(map(repr, OUTPUT_MODES))}, found {shown(mode)}"
            f"{did_you_mean(str(mode), OUTPUT_MODES)}",
        )
    return str(mode)


def _for_engine(body: Body, *, chat: bool) -> dict[str, Any] | None:
    """`kv_transfer_params`; of a chat without `prompt_token_ids`, which are for the render."""
    given = read_nullable(body, "kv_transfer_params", object_) or {}
    left = {name: value for name, value in given.items() if not chat or name != "prompt_token_ids"}
    return left or None


def _mm_payload(body: Body) -> str:
    read_nullable(body, "return_mm_kwargs", boolean)
    if "mm_payload" not in body:
        return "none" if body.get("return_mm_kwargs") is False else "tensors"
    payload = body["mm_payload"]
    if payload not in _PAYLOADS:
        raise wrong_field(
            "body.mm_payload", f"Input should be 'tensors' or 'none', found {shown(payload)}"
        )
    return str(payload)


def _unsupported(body: Body) -> str | None:
    """Which fields of a chat change its prompt in a way that is not covered, in words."""
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        raise wrong_field("body.reasoning_effort", f"Input should be one of {', '.join(_EFFORTS)}")
    documents = read_nullable(body, "documents", list_of(object_of(text)))
    forwarded = (read_nullable(body, "kv_transfer_params", object_) or {}).get("prompt_token_ids")
    if forwarded is not None and not _are_ids(forwarded):
        raise bad_request(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative "
            "integers.",
            "kv_transfer_params.prompt_token_ids",
        )
    fields = {
        "reasoning_effort": effort,
        "documents": documents,
        "kv_transfer_params.prompt_token_ids": forwarded,
    }
    found = [name for name, value in fields.items() if value is not None]
    if not found:
        return None
    return f"{', '.join(found)}: the engine's token IDs depend on it, and it is not covered"


def _are_ids(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(type(i) is int and i >= 0 for i in given)


def _tool_choice(body: Body, chat: ChatFields) -> Any:
    if chat.tools == []:
        raise bad_request(
            "`tools` must not be an empty array. Either provide at least one tool or omit the "
            "field entirely.",
            "tools",
        )
    choice = body.get("tool_choice", "auto" if chat.tools else "none")
    if choice in (None, "none"):
        return choice
    if not chat.tools:
        raise bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in [tool["function"]["name"] for tool in chat.tools]:
            raise bad_request("`tool_choice` does not match any of `tools`", "tool_choice")
    elif choice not in _TOOL_CHOICES:
        raise bad_request(f"Invalid value for `tool_choice`: {shown(choice)}", "tool_choice")
    return choice


def _check_refusals(body: Body, work: Work, tool_choice: object) -> None:
    if read(body, "use_beam_search", boolean, False):
        raise bad_request("Beam search is not supported by the render endpoint")
    if work.settings.strict and tool_choice not in (None, "none"):
        raise bad_request(
            f"tool_choice={shown(tool_choice)} requires --enable-auto-tool-choice and "
            "--tool-call-parser to be set (--strict)"
        )


def _check_template(body: Body, served: ServedModel) -> None:
    """What mistral-common encodes has no template; ``/tokenize`` does not mind."""
    named = any(body.get(name) is not None for name in ("chat_template", "chat_template_kwargs"))
    if named and served.model.chat.templates is None:
        raise bad_request("chat_template is not supported for Mistral tokenizers.", "chat_template")


def _parse_context(body: Body, chat: ChatFields, tool_choice: object) -> dict[str, Any]:
    kwargs = {
        # A default of vLLM's own, for every model.
        "cohere_format": "cmd4",
        **{k: v for k, v in chat.chat_template_kwargs.items() if v not in _UNSET},
        "add_generation_prompt": chat.add_generation_prompt,
        "continue_final_message": chat.continue_final_message,
    }
    calls = [m.get("tool_calls") for m in chat.messages if m["role"] == "assistant"]
    parallel = body.get("parallel_tool_calls", True)
    return {
        "tools": normalize_tools(chat.tools),
        "tool_choice": tool_choice,
        "parallel_tool_calls": None
        if parallel is None
        else boolean(parallel, "body.parallel_tool_calls"),
        "include_reasoning": read(body, "include_reasoning", boolean, True),
        "chat_template_kwargs": kwargs,
        "history_tool_call_cnt": sum(len(c) for c in calls if isinstance(c, list)),
    }
