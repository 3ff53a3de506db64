"""Tokens in, text out: the body to forward to an engine, so that it need not tokenize again.

Each function makes the body for one route of one engine of an exact `Routing` and the client's own
OpenAI request. Media travel as the client sent them; mmroute has none. What a route cannot
carry is a ValueError: forward the client's request as it came then.

Source: vLLM ``entrypoints/scale_out/token_in_token_out`` (``protocol.py``, ``serving.py``),
``renderers/online_renderer.py`` (`_reused_prompt_token_ids`); SGLang 0.5.13, 0.5.22 and 0.5.23
``srt/managers/io_struct.py`` (`GenerateReqInput`), ``srt/managers/tokenizer_manager.py``,
``srt/multimodal/processors/base_processor.py``, ``srt/entrypoints/openai/serving_chat.py``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from mmroute.answering.routing import Routing
from mmroute.chat import MediaPart
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import did_you_mean, quoted
from mmroute.images.data_url import is_data_url
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

__all__ = [
    "OUTPUT_MODES", "OutputMode", "sglang_chat", "sglang_generate", "vllm_chat", "vllm_generate",
    "vllm_generate_cached", "with_uuids",
]  # fmt: skip

OutputMode = Literal["tokens", "text", "derender"]
"""How much vLLM's generate route answers: token IDs, their text too, or the parsed message."""

OUTPUT_MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)

# What means the same in a client's request and in the body made of it.
_SAME_IN_VLLM: Final = (
    "request_id", "model", "stream", "stream_options", "return_token_ids", "priority",
    "kv_transfer_params", "ec_transfer_params",
)  # fmt: skip
_SAME_IN_SGLANG: Final = ("rid", "stream", "lora_path", "cache_salt", "extra_key", "priority")
# Type of a part that may hold a file -> the key under which it does.
_CARRIERS: Final[Mapping[str, str]] = {
    "image_url": "url", "video_url": "url", "audio_url": "url", "input_audio": "data",
}  # fmt: skip
# They change how the engine reads or counts images, and generate routes have no place for them.
_OF_THE_PROCESSOR: Final = ("mm_processor_kwargs", "media_io_kwargs")


def with_uuids(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with a name for each image, video and audio that it holds as a data URL.

    The name is a hash of the file's base64, so one file has one name. Route this request, and
    forward it or a body made of it: then router and engine tell items apart by the same names,
    where the engine would otherwise hash what it decodes, such as the samples of audio. Parts with
    a uuid, and links, stay as they are.

    Args:
        request: the client's. One without a list of ``messages`` is handed back as it is.
    """
    messages = request.get("messages")
    if not isinstance(messages, list):
        return dict(request)
    named = [
        {**message, "content": [_with_uuid(part) for part in message["content"]]}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for message in messages
    ]
    return {**request, "messages": named}


def vllm_generate(
    routing: Routing,
    request: Mapping[str, Any],
    *,
    sampling_params: Mapping[str, Any],
    output_mode: OutputMode = "tokens",
    parse_context: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """For vLLM's ``/inference/v1/generate``: media go along as ``content_parts``.

    The engine fetches, decodes and counts them, so the prompt it gets is the one *before*
    expansion; it makes `Routing.token_ids` of it.

    Args:
        routing: the answer to this request.
        request: the client's request, as it came.
        sampling_params: vLLM's `SamplingParams` by field, as the render routes answer with. The
            engine adds no defaults of the model but `max_tokens`.
        output_mode: see `OutputMode`.
        parse_context: the render route's field of this name; ``derender`` needs it where the engine
            has a tool or reasoning parser.

    Raises:
        InexactError: the routing is inexact.
        ValueError: an item of which the request holds neither link nor uuid; a field that the
            route has no place for.
    """
    body = {
        "token_ids": routing.unexpanded_token_ids.tolist(),
        **_vllm_body(routing, request, sampling_params, output_mode, parse_context),
    }
    _check_processor(request)
    if parts := _media_parts(routing, request):
        body["content_parts"] = [_content_part(part) for part in parts]
    return body


def vllm_generate_cached(
    routing: Routing,
    request: Mapping[str, Any],
    *,
    sampling_params: Mapping[str, Any],
    output_mode: OutputMode = "tokens",
    parse_context: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """For the same route, without pictures: only their hashes and ranges, as ``features``.

    For an engine that is known to hold every image in its processor cache (its default one, of a
    single API server). If one is missing there it answers 500; if it has no such cache its worker
    fails, and the engine with it. Arguments as for `vllm_generate`.

    Raises:
        InexactError: the routing is inexact; `image_identity_unknown`.
        ValueError: ranges that overlap, which the engine refuses; ranges of which not every
            position is a feature, which the engine cannot be told.
    """
    body = {
        "token_ids": routing.token_ids.tolist(),
        **_vllm_body(routing, request, sampling_params, output_mode, parse_context),
    }
    if _media_parts(routing, request):
        _check_ranges(routing)
        hashes: dict[str, list[str]] = {}
        ranges: dict[str, list[dict[str, int]]] = {}
        for placed, identity in routing.identified():
            hashes.setdefault(placed.modality.value, []).append(identity.value)
            where = {"offset": placed.offset, "length": placed.length}
            ranges.setdefault(placed.modality.value, []).append(where)
        body["features"] = {
            "mm_hashes": hashes,
            "mm_placeholders": ranges,
            "kwargs_data": {modality: [None] * len(named) for modality, named in hashes.items()},
        }
    return body


def vllm_chat(routing: Routing, request: Mapping[str, Any]) -> dict[str, Any]:
    """For vLLM's ``/v1/chat/completions``: the request with its prompt's token IDs.

    Parsers, tools and streaming work as ever. Text only: beside media vLLM ignores the IDs.

    Raises:
        InexactError: the routing is inexact.
        ValueError: there are images, or vLLM would not read the IDs.
    """
    token_ids = _text_ids(routing, request, "vLLM ignores the token IDs of a chat with images")
    if request.get("echo"):
        raise ValueError("vLLM ignores the token IDs of a chat with `echo`")
    _check_salt(routing, request)
    transfer = request.get("kv_transfer_params") or {}
    if transfer.get("prompt_token_ids") is not None:
        raise ValueError("the request holds kv_transfer_params.prompt_token_ids already")
    return {**request, "kv_transfer_params": {**transfer, "prompt_token_ids": token_ids}}


def sglang_generate(
    routing: Routing, request: Mapping[str, Any], *, sampling_params: Mapping[str, Any]
) -> dict[str, Any]:
    """For SGLang's ``/generate``: token IDs, the images, and their hashes as ``mm_hashes``.

    The hashes make SGLang's prefix cache tell images apart as `Routing.pad_value_ids` does. It
    expands the prompt itself, and so gets the one before expansion.

    Args:
        routing: the answer to this request.
        request: the client's request, as it came.
        sampling_params: SGLang's own, by field.

    Raises:
        InexactError: the routing is inexact; `image_identity_unknown`.
        ValueError: an image of which the request holds no link; one that is more than one ID
            repeated, beside which SGLang encodes the decoded text anew (`_expand_input_ids`); a
            family of which SGLang ignores the hashes; a field that the route has no place for.
    """
    _check_processor(request)
    body: dict[str, Any] = {
        "input_ids": routing.unexpanded_token_ids.tolist(),
        "sampling_params": dict(sampling_params),
        **{name: request[name] for name in _SAME_IN_SGLANG if name in request},
    }
    if parts := _media_parts(routing, request):
        if any(part.modality is not Modality.IMAGE for part in parts):
            raise ValueError("only images are forwarded to SGLang; forward the request as it came")
        _check_fill(routing)
        if "sglang" in routing.hashing.settings.unnamed_in:
            raise ValueError(
                "SGLang 0.5.23 writes the pad values of this family before it reads mm_hashes, so "
                "that its prefix cache does not know the images by them; forward the request as "
                "it came"
            )
        urls = [part.url for part in parts]
        if None in urls:
            raise ValueError(f"image {urls.index(None) + 1} has no link; SGLang knows no uuid")
        body |= {"image_data": urls, "mm_hashes": routing.image_hashes()}
    return body


def sglang_chat(routing: Routing, request: Mapping[str, Any]) -> dict[str, Any]:
    """For SGLang's ``/v1/chat/completions``: the request with its prompt's token IDs.

    The messages are still read for stop tokens and tool constraints. Text only: beside token IDs
    SGLang drops the images of a chat, and this route reads no ``mm_hashes``.

    Raises:
        InexactError: the routing is inexact.
        ValueError: there are images.
    """
    token_ids = _text_ids(routing, request, "SGLang drops the images of a chat with token IDs")
    return {**request, "input_ids": token_ids}


def _vllm_body(
    routing: Routing,
    request: Mapping[str, Any],
    sampling_params: Mapping[str, Any],
    output_mode: str,
    parse_context: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the body has beside prompt and images."""
    if output_mode not in OUTPUT_MODES:
        raise ValueError(
            f"output_mode must be one of {', '.join(OUTPUT_MODES)}, found {quoted(output_mode)}"
            f"{did_you_mean(str(output_mode), OUTPUT_MODES)}"
        )
    if output_mode == "derender" and request.get("stream"):
        raise ValueError("vLLM does not stream with output_mode 'derender'")
    if output_mode != "tokens" and sampling_params.get("detokenize") is False:
        raise ValueError(f"output_mode {output_mode!r} needs sampling_params.detokenize")
    _check_salt(routing, request)
    body: dict[str, Any] = {
        "sampling_params": dict(sampling_params),
        "output_mode": output_mode,
        **{name: request[name] for name in _SAME_IN_VLLM if request.get(name) is not None},
    }
    if routing.cache_salt is not None:
        body["cache_salt"] = routing.cache_salt
    if parse_context is not None:
        body["parse_context"] = dict(parse_context)
    return body


def _check_salt(routing: Routing, request: Mapping[str, Any]) -> None:
    """The engine would hash other blocks than the router looked up."""
    if request.get("cache_salt") != routing.cache_salt:
        raise ValueError(
            f"the request's cache_salt is {quoted(request.get('cache_salt'))}, and the routing was "
            f"made with {quoted(routing.cache_salt)}"
        )


def _check_processor(request: Mapping[str, Any]) -> None:
    given = [name for name in _OF_THE_PROCESSOR if request.get(name)]
    if given:
        raise ValueError(f"the route has no place for {', '.join(given)}")


def _check_ranges(routing: Routing) -> None:
    end = 0
    for number, placed in enumerate(routing.placeholders, 1):
        if placed.offset < end:
            raise ValueError(
                f"the range of item {number} overlaps the one before it; vLLM refuses such "
                "features: forward the media (vllm_generate)"
            )
        if placed.embed_runs is not None or not placed.embeds_known:
            raise ValueError(
                f"not every position of item {number} is known to be a feature, and vLLM's "
                "features cannot say which: forward the media (vllm_generate)"
            )
        end = placed.offset + placed.length


def _check_fill(routing: Routing) -> None:
    for number, placed in enumerate(routing.placeholders, 1):
        if placed.embed_runs is not None or not placed.embeds_known:
            raise ValueError(
                f"image {number} may be more than one token ID repeated, and SGLang does not keep "
                "the token IDs of such a prompt; forward the request as it came"
            )


def _text_ids(routing: Routing, request: Mapping[str, Any], with_images: str) -> list[int]:
    token_ids: list[int] = routing.token_ids.tolist()
    if _media_parts(routing, request):
        raise ValueError(f"{with_images}; forward it as it came, or to its generate route")
    return token_ids


def _media_parts(routing: Routing, request: Mapping[str, Any]) -> Sequence[MediaPart]:
    """The parts of the messages that stand for an item, by modality; completions have none."""
    media: Mapping[Modality, Sequence[MediaPart]] = {}
    if "messages" in request:
        media = parse_chat(Request(messages=request["messages"])).media
    asked = {modality: len(parts) for modality, parts in media.items()}
    if asked != Counter(placed.modality for placed in routing.placeholders):
        raise ValueError(
            f"the request has {sum(asked.values())} items, and the routing "
            f"{len(routing.placeholders)}, or of other modalities: it is another request's"
        )
    return [part for parts in media.values() for part in parts]


def _content_part(part: MediaPart) -> dict[str, Any]:
    url, uuid, kind = part.url, part.uuid, f"{part.modality}_url"
    if url is None and uuid is None:
        raise ValueError(
            f"a part of type {part.modality} has neither a link nor a uuid; forward items as "
            f'{{"type": "{kind}"}} parts, with a data URL or a link the engine can follow'
        )
    return {"type": kind, "url": url, **({} if uuid is None else {"uuid": uuid})}


def _with_uuid(part: Any) -> Any:
    if not isinstance(part, Mapping) or part.get("uuid") is not None:
        return part
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _CARRIERS or kind not in part:
        return part
    carrier = part[kind]
    given = carrier.get(_CARRIERS[kind]) if isinstance(carrier, Mapping) else None
    if not isinstance(given, str) or (kind != "input_audio" and not is_data_url(given)):
        return part
    # One name for images and videos of one file would mix them up in the engine's cache.
    modality = kind.removeprefix("input_").removesuffix("_url")
    content = given if kind == "input_audio" else given.partition(",")[2]
    # A lone surrogate is no base64: such a part is refused where its file is read.
    name = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
    return {**part, "uuid": f"{modality}-{name}"}
