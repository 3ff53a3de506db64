"""The bodies for vLLM's routes.

Source: vLLM ``entrypoints/scale_out/token_in_token_out/protocol.py`` and ``serving.py``,
``renderers/online_renderer.py`` (`_reused_prompt_token_ids`); vLLM
``entrypoints/scale_out/token_in_token_out/mm_serde.py``, ``v1/serial_utils.py`` (`MsgpackEncoder`),
``multimodal/inputs.py`` (`BaseMultiModalField` and its kinds).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Mapping
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, NotRequired, get_args

import msgspec
import numpy as np
from typing_extensions import TypedDict, Unpack

from mmroute.chat import MediaPart
from mmroute.engines.forwarding import (
    CARRIERS,
    Answer,
    changed_parts,
    check_processor,
    media_parts,
    text_ids,
)
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import did_you_mean, quoted
from mmroute.geometry.metadata import BFLOAT16, ItemMetadata, MetadataField
from mmroute.requests.items import Modality

_RAW: Final = 3  # CUSTOM_TYPE_RAW_VIEW


def mm_metadata(routing: Answer) -> dict[str, list[str | None]] | None:
    """The items' metadata by modality, in their order; None if the family has none."""
    found: dict[str, list[str | None]] = {}
    for (placed, identity), item in zip(routing.items, routing.metadata(), strict=True):
        modality = (identity and identity.modality) or placed.modality.value
        found.setdefault(modality, []).append(_encoded(item) if item else None)
    return {modality: items for modality, items in found.items() if any(items)} or None


def _encoded(item: ItemMetadata) -> str:
    packed = msgspec.msgpack.encode({name: _element(field) for name, field in item.items()})
    return base64.b64encode(packed).decode("ascii")


def _element(field: MetadataField) -> dict[str, Any]:
    kind: dict[str, Any] = {"keep_on_cpu": field.keep_on_cpu}
    if field.kind == "shared":
        kind["batch_size"] = len(field.lengths)
    elif field.kind == "flat":
        ends = [*accumulate(field.lengths, initial=0)]
        kind |= {"slices": [[[*part, None]] for part in pairwise(ends)], "dim": 0}
    return {"data": _data(field.value, field.dtype), "field": (field.kind, kind)}


def _data(value: Any, dtype: str) -> Any:
    if isinstance(value, np.ndarray):
        if dtype == BFLOAT16:
            value = (value.view(np.uint32) >> 16).astype(np.uint16)
        return dtype, value.shape, msgspec.msgpack.Ext(_RAW, value.tobytes())
    return [_data(part, dtype) for part in value] if isinstance(value, list) else value


OutputMode = Literal["tokens", "text", "derender"]
"""What vLLM's generate route answers with: token IDs, their text too, or the parsed message."""

OUTPUT_MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)

# Fields that mean the same in a client's request and in the body made of it.
_VLLM_FIELDS: Final = (
    "request_id", "model", "stream", "stream_options", "return_token_ids", "priority",
    "kv_transfer_params", "ec_transfer_params",
)  # fmt: skip


class GenerateFields(TypedDict):
    """The fields of vLLM's generate route that a client's request does not have."""

    # The fields of vLLM's `SamplingParams`, as the render routes return them. The engine adds none
    # of the model's defaults except `max_tokens`.
    sampling_params: Mapping[str, Any]
    output_mode: NotRequired[OutputMode]  # see `OutputMode`; `tokens` if it is left out
    # The render route's field of this name. `derender` needs it if the engine has a tool or
    # reasoning parser.
    parse_context: NotRequired[Mapping[str, Any] | None]


def vllm_generate(
    routing: Answer, request: Mapping[str, Any], **fields: Unpack[GenerateFields]
) -> dict[str, Any]:
    """The body for vLLM's ``/inference/v1/generate``, with the media as ``content_parts``.

    The engine fetches, decodes and expands the media itself, so the body has the prompt *before*
    expansion. The engine makes `Routing.token_ids` of it.

    Args:
        routing: the answer to this request.
        request: the client's request, unchanged.
        fields: the fields that the client's request does not have, see `GenerateFields`.

    Raises:
        InexactError: the routing is inexact.
        ValueError: the request holds neither a link nor a uuid for an item, or has a field that
            the route has no place for.
    """
    body = {
        "token_ids": routing.unexpanded_token_ids.tolist(),
        **_vllm_body(routing, request, **fields),
    }
    check_processor(request)
    if parts := media_parts(routing, request, parse_chat):
        body["content_parts"] = [_content_part(part) for part in parts]
    return body


def vllm_generate_cached(
    routing: Answer, request: Mapping[str, Any], **fields: Unpack[GenerateFields]
) -> dict[str, Any]:
    """The body for the same route without the media, only their hashes and ranges as ``features``.

    Use it for an engine that is known to hold every item in its processor cache: the default cache
    of a server with one API process. The engine answers 500 if an item is missing from the cache.
    An engine without such a cache fails as a whole. The arguments are those of `vllm_generate`.

    Raises:
        InexactError: the routing is inexact, or has `image_identity_unknown`.
        ValueError: two ranges overlap, which the engine refuses; or a range has positions that are
            no features, which this body cannot say.
    """
    body, features = _expanded(routing, request, fields)
    if features:
        nulls = {name: [None] * len(named) for name, named in features["mm_hashes"].items()}
        body["features"] = {**features, "kwargs_data": nulls}
    return body


def vllm_generate_metadata(
    routing: Answer, request: Mapping[str, Any], **fields: Unpack[GenerateFields]
) -> dict[str, Any]:
    """The body for the same route with the media's metadata in place of the media.

    Use it for an engine that takes the embeddings of the media from an encoder-cache connector. The
    arguments are those of `vllm_generate`. The request has the ``ec_transfer_params`` with which
    the encoder's engine answered. An engine whose connector has no embedding of an item ends.

    Raises:
        InexactError: the routing is inexact, or has `image_identity_unknown` or `metadata_unknown`.
        ValueError: as `vllm_generate_cached`; the encoder did not say in ``ec_transfer_params``
            that it has an item.
    """
    body, features = _expanded(routing, request, fields)
    if features:
        _check_encoded(routing, request)
        body["features"] = {**features, "kwargs_data": None, "mm_metadata": mm_metadata(routing)}
    return body


def vllm_chat(routing: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The body for vLLM's ``/v1/chat/completions``: the request with its prompt's token IDs.

    Parsers, tools and streaming work as without the IDs. It is for text: vLLM ignores the IDs of a
    chat with media.

    Raises:
        InexactError: the routing is inexact.
        ValueError: the request has media, or another field beside which vLLM ignores the IDs.
    """
    token_ids = text_ids(
        routing, request, parse_chat, "vLLM ignores the token IDs of a chat with images"
    )
    if request.get("echo"):
        raise ValueError("vLLM ignores the token IDs of a chat with `echo`")
    _check_salt(routing, request)
    transfer = request.get("kv_transfer_params") or {}
    if transfer.get("prompt_token_ids") is not None:
        raise ValueError("the request holds kv_transfer_params.prompt_token_ids already")
    return {**request, "kv_transfer_params": {**transfer, "prompt_token_ids": token_ids}}


def vllm_chat_cached(
    routing: Answer, request: Mapping[str, Any], held: Container[str]
) -> dict[str, Any]:
    """The chat without the media that the engine holds, each named by its uuid alone.

    All fields of the chat API work, and no prompt is forwarded: the engine renders and tokenizes.
    If it does not hold an item any more, it answers with an error: send the whole request then.

    Args:
        routing: the answer to this request.
        request: the client's request, such as `with_uuids` returns it.
        held: the uuids of the items in the engine's processor cache. A router knows what it sent,
            and to which engine.

    Raises:
        InexactError: the routing is inexact.
    """

    def named(part: Mapping[str, Any], _: int) -> Mapping[str, Any]:
        return {**part, part["type"]: None} if part.get("uuid") in held else part

    return _with_parts(routing, request, named)


def vllm_chat_metadata(routing: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The chat with the metadata of images and audio in their place.

    Use it for an engine that takes the embeddings from an encoder-cache connector, which is what
    `vllm_generate_metadata` is for, where the chat API with its tools is wanted.

    Raises:
        InexactError: the routing is inexact, or has `image_identity_unknown` or `metadata_unknown`.
        ValueError: as `vllm_generate_metadata`; the engine takes no metadata in chats for an item:
            a video, or an item of a family without ``embedding_fields``.
    """
    _check_encoded(routing, request)
    known = {
        (placed.modality, placed.item): (identity.value, fields)
        for (placed, identity), fields in zip(routing.identified(), routing.metadata(), strict=True)
    }

    def described(part: Mapping[str, Any], item: int) -> Mapping[str, Any]:
        modality = CARRIERS[part["type"]].modality
        uuid, fields = known[modality, item]
        numbers = {
            name: np.asarray(field.value).tolist()
            for name, field in fields.items()
            if field.declared
        }
        if modality is Modality.VIDEO or not numbers:
            raise ValueError(
                f"vLLM takes no metadata of this {modality} in a chat: forward it, or use "
                "vllm_generate_metadata"
            )
        kind = f"{modality}_embeds"
        return {"type": kind, kind: numbers, "uuid": uuid}

    return _with_parts(routing, request, described)


def _expanded(
    routing: Answer, request: Mapping[str, Any], fields: GenerateFields
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A body with the expanded prompt, and the hashes and ranges of its items, if it has any."""
    body = {
        "token_ids": routing.token_ids.tolist(),
        **_vllm_body(routing, request, **fields),
    }
    if not media_parts(routing, request, parse_chat):
        return body, {}
    _check_ranges(routing)
    hashes, ranges = hashes_and_ranges(routing)
    return body, {"mm_hashes": hashes, "mm_placeholders": ranges}


def hashes_and_ranges(
    routing: Answer,
) -> tuple[dict[str, list[str]], dict[str, list[Any]]]:
    """The hashes and ranges of the items by modality; Dynamo reads `is_embed`, vLLM has none."""
    hashes: dict[str, list[str]] = {}
    ranges: dict[str, list[Any]] = {}
    for placed, identity in routing.identified():
        modality = identity.modality or placed.modality.value
        where: dict[str, Any] = {"offset": placed.offset, "length": placed.length}
        if placed.embed_runs:
            embeds, lengths = zip(*placed.embed_runs, strict=True)
            where["is_embed"] = np.repeat(np.array(embeds, dtype=bool), lengths)
        hashes.setdefault(modality, []).append(identity.value)
        ranges.setdefault(modality, []).append(where)
    return hashes, ranges


def _vllm_body(
    routing: Answer,
    request: Mapping[str, Any],
    *,
    sampling_params: Mapping[str, Any],
    output_mode: str = "tokens",
    parse_context: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of the body beside the prompt and the items."""
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
        **{name: request[name] for name in _VLLM_FIELDS if request.get(name) is not None},
    }
    if routing.cache_salt is not None:
        body["cache_salt"] = routing.cache_salt
    if parse_context is not None:
        body["parse_context"] = dict(parse_context)
    return body


def _check_salt(routing: Answer, request: Mapping[str, Any]) -> None:
    """Refuse a salt with which the engine would hash other blocks than the router looked up."""
    if request.get("cache_salt") != routing.cache_salt:
        raise ValueError(
            f"the request's cache_salt is {quoted(request.get('cache_salt'))}, and the routing was "
            f"made with {quoted(routing.cache_salt)}"
        )


def _check_ranges(routing: Answer) -> None:
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


def _check_encoded(routing: Answer, request: Mapping[str, Any]) -> None:
    """Refuse items that the encoder's answer does not name, or names without metadata.

    Source: vLLM ``distributed/ec_transfer/ec_connector/utils.py`` (`collect_ec_item_metadata`),
    ``ec_connector/cpu/scheduler`` (`request_finished`).
    """
    encoded = request.get("ec_transfer_params") or {}
    for number, (_, identity) in enumerate(routing.identified(), 1):
        entry = encoded.get(identity.value)
        if not isinstance(entry, Mapping) or not entry.get("metadata"):
            raise ValueError(
                f"ec_transfer_params has no metadata of item {number}, {identity}, and the engine "
                "ends if its connector has no embedding of it: send the item to the encoder first, "
                "and put the ec_transfer_params of its answer into the request"
            )


def _content_part(part: MediaPart) -> dict[str, Any]:
    url, uuid, kind = part.url, part.uuid, f"{part.modality}_url"
    if url is None and uuid is None:
        raise ValueError(
            f"a part of type {part.modality} has neither a link nor a uuid; forward items as "
            f'{{"type": "{kind}"}} parts, with a data URL or a link the engine can follow'
        )
    return {"type": kind, "url": url, **({} if uuid is None else {"uuid": uuid})}


def _with_parts(
    routing: Answer,
    request: Mapping[str, Any],
    change: Callable[[Mapping[str, Any], int], Mapping[str, Any]],
) -> dict[str, Any]:
    """`changed_parts` of a request that the routing answers."""
    _check_salt(routing, request)
    _ = routing.token_ids  # raises if the routing is inexact
    media_parts(routing, request, parse_chat)
    return changed_parts(request, change)
