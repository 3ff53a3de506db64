"""The beginning of a chat that does not depend on its images."""

from __future__ import annotations

from collections.abc import Sequence

from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.placement.single_token import SingleToken
from mmroute.request import Message, RequestOptions

__all__ = ["text_prefix"]


def text_prefix(
    model: ResolvedModel, messages: Sequence[Message], options: RequestOptions
) -> TokenIds | None:
    """The token IDs before the first image of a chat, whatever its images are; shape (n,).

    The engine encodes the whole prompt first and puts images into the IDs, so those before the
    first placeholder are its own. That holds where one token is the placeholder: other rules
    change the text around it. And it holds where every image has a placeholder: the engine
    encodes anew otherwise.

    Returns:
        None where it cannot be said.
    """
    rules = model.images
    if rules is None or not isinstance(rules.placement, SingleToken):
        return None
    try:
        chat = parse_chat(messages, options)
        rendered = model.chat.render(chat, (), options)
    except InexactError:
        return None
    if not isinstance(rendered, str):
        return None
    try:
        ids = model.tokenizer.encode(rendered, add_special_tokens=options.add_special_tokens)
    except ValueError:  # a lone surrogate
        return None
    (places,) = (ids == rules.placement.target_id).nonzero()
    if not len(places) or len(places) < len(chat.image_parts):
        return None
    prefix = ids[: places[0]]
    return prefix if 0 < len(prefix) < model.max_model_len else None
