"""The bodies to forward to SGLang.

Source: SGLang 0.5.13, 0.5.22 and 0.5.23 ``srt/managers/io_struct.py`` (`GenerateReqInput`),
``srt/managers/tokenizer_manager.py``, ``srt/multimodal/processors/base_processor.py``,
``srt/entrypoints/openai/serving_chat.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.engines.forwarding import Answer, check_processor, media_parts, text_ids
from mmroute.engines.sglang.messages import parse_messages
from mmroute.requests.items import Modality

_FIELDS: Final = ("rid", "stream", "lora_path", "cache_salt", "extra_key", "priority")


def sglang_generate(
    routing: Answer, request: Mapping[str, Any], *, sampling_params: Mapping[str, Any]
) -> dict[str, Any]:
    """The body for SGLang's ``/generate``: token IDs, images, and their hashes as ``mm_hashes``.

    With these hashes SGLang's prefix cache tells images apart as `Routing.pad_value_ids` does. With
    ``backend="sglang"`` the images of a chat have hashes only if `normalize` got `mm_hashes`: its
    chat route has none. SGLang expands the prompt itself, so the body has the prompt *before*
    expansion.

    Args:
        routing: the answer to this request.
        request: the client's request, unchanged.
        sampling_params: the fields of SGLang's sampling parameters.

    Raises:
        InexactError: the routing is inexact, or has `image_identity_unknown`.
        ValueError: the request holds no link for an image, or has a field that the route has no
            place for; SGLang ignores the hashes for this family; or an image is more than one
            repeated ID, for which SGLang encodes the decoded text again (`_expand_input_ids`).
    """
    check_processor(request)
    body: dict[str, Any] = {
        "input_ids": routing.unexpanded_token_ids.tolist(),
        "sampling_params": dict(sampling_params),
        **{name: request[name] for name in _FIELDS if name in request},
    }
    if parts := media_parts(routing, request, parse_messages):
        if any(part.modality is not Modality.IMAGE for part in parts):
            raise ValueError("only images are forwarded to SGLang; forward the request unchanged")
        _check_fill(routing)
        if "sglang" in routing.hashing.settings.names_ignored_in:
            raise ValueError(
                "SGLang 0.5.23 writes the pad values of this family before it reads mm_hashes, so "
                "its prefix cache does not know the images by them; forward the request unchanged"
            )
        urls = [part.url for part in parts]
        if None in urls:
            raise ValueError(f"image {urls.index(None) + 1} has no link; SGLang knows no uuid")
        body |= {"image_data": urls, "mm_hashes": routing.image_hashes()}
    return body


def sglang_chat(routing: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The body for SGLang's ``/v1/chat/completions``: the request with its prompt's token IDs.

    SGLang still reads the messages for stop tokens and tool constraints. It is for text: SGLang
    drops the images of a chat with token IDs, and this route reads no ``mm_hashes``.

    Raises:
        InexactError: the routing is inexact.
        ValueError: the request has images.
    """
    token_ids = text_ids(
        routing, request, parse_messages, "SGLang drops the images of a chat with token IDs"
    )
    return {**request, "input_ids": token_ids}


def _check_fill(routing: Answer) -> None:
    for number, placed in enumerate(routing.placeholders, 1):
        if placed.embed_runs is not None or not placed.embeds_known:
            raise ValueError(
                f"image {number} may be more than one token ID repeated, and SGLang does not keep "
                "the token IDs of such a prompt; forward the request unchanged"
            )
