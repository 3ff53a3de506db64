"""The answer to a render request, in vLLM's key order.

Source: vLLM 0.33.0 ``entrypoints/scale_out/token_in_token_out/protocol.py`` (`GenerateRequest`,
`MultiModalFeatures`, `ParseContext`) and ``scale_out/render/serving.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmroute.errors import InexactError, Reason
from mmroute.routing import Routing

__all__ = ["BlockForm", "Rendered", "block_hashes_of", "features_of", "generate_request"]


@dataclass(frozen=True, slots=True)
class BlockForm:
    """Which block hashes a request wants.

    Attributes:
        algorithm: the engine's ``--prefix-caching-hash-algo``.
        block_size: in tokens.
        seed: the engine's PYTHONHASHSEED.
    """

    algorithm: str
    block_size: int
    seed: str | None


@dataclass(frozen=True, slots=True)
class Rendered:
    """One prompt, and what the request says beside it.

    Attributes:
        request_id: with its prefix.
        token_ids: of the expanded prompt.
        features: of its images; None if there are none.
        sampling_params: see `mmroute.server.sampling`.
        parse_context: of a chat; None for a completion.
        token_offsets: of text; None if not asked for.
        block_hashes: hexadecimal; None if not asked for.
    """

    request_id: str
    token_ids: Sequence[int]
    features: Mapping[str, Any] | None
    sampling_params: Mapping[str, Any]
    parse_context: Mapping[str, Any] | None = None
    token_offsets: Sequence[tuple[int, int]] | None = None
    block_hashes: Sequence[str] | None = None


def generate_request(rendered: Rendered, carried: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer. `block_hashes` is mmroute's own, and stands last.

    Args:
        rendered: the prompt.
        carried: fields of the request that are handed on.
    """
    context = rendered.parse_context
    answer: dict[str, Any] = {
        "request_id": rendered.request_id,
        "token_ids": rendered.token_ids,
        "token_offsets": rendered.token_offsets,
        "features": rendered.features,
        "content_parts": None,
        "sampling_params": rendered.sampling_params,
        "model": carried["model"],
        # Without a reasoning parser only the request itself can say so.
        "reasoning_ended": True if context and not context["include_reasoning"] else None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": carried["return_token_ids"],
        "output_mode": carried["output_mode"],
        "parse_context": context,
        "stream": carried["stream"],
        "stream_options": carried["stream_options"],
        "cache_salt": carried["cache_salt"],
        "priority": carried["priority"],
        "kv_transfer_params": carried["kv_transfer_params"],
        "ec_transfer_params": carried["ec_transfer_params"],
    }
    if rendered.block_hashes is not None:
        answer["block_hashes"] = rendered.block_hashes
    return answer


def features_of(routing: Routing) -> dict[str, Any] | None:
    """Hashes and ranges of the images, by their position; None if there are none.

    `kwargs_data` and `mm_metadata` are null, as with vLLM's ``mm_payload: "none"``: there are no
    pixels. `is_embed`, one boolean for each position of a range, stands where not all of them
    receive features. vLLM's answer has no key for that; Dynamo reads it by this name.

    Raises:
        InexactError: `image_identity_unknown`.
    """
    if not routing.placeholders:
        return None
    hashes, ranges = [], []
    for placed, identity in zip(routing.placeholders, routing.image_identities, strict=True):
        if identity is None:
            raise InexactError(
                Reason.IMAGE_IDENTITY_UNKNOWN,
                f"nothing tells which image {placed.item + 1} is; send it as a data URL, or "
                "give its uuid",
            )
        hashes.append(identity.value)
        where: dict[str, Any] = {"offset": placed.offset, "length": placed.length}
        if placed.embed_runs:
            runs = placed.embed_runs
            where["is_embed"] = [bool(embed) for embed, length in runs for _ in range(length)]
        ranges.append(where)
    return {
        "mm_hashes": {"image": hashes},
        "mm_placeholders": {"image": ranges},
        "kwargs_data": None,
        "mm_metadata": None,
    }


def block_hashes_of(routing: Routing, form: BlockForm) -> list[str]:
    """The block hashes that were asked for.

    Raises:
        InexactError: as `Routing.block_hashes`.
    """
    hashes = routing.block_hashes(form.algorithm, block_size=form.block_size, seed=form.seed)
    return hashes.hex()
