"""What is sure of a chat whose items are not known: its text up to the first of them."""

from __future__ import annotations

import numpy as np

from mmroute.chat import ParsedChat, check_api_fields
from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.pipeline import encode_text, rules_of
from mmroute.request import Request

__all__ = ["rendered_chat", "text_prefix"]


def text_prefix(model: ResolvedModel, request: Request) -> TokenIds | None:
    """The token IDs before the first item of a chat, whatever its items are; shape (n,).

    The engine encodes the whole prompt first and puts items into the IDs, so those before the
    first placeholder are its own. That holds where one token is the placeholder: other rules
    change the text around it. And it holds where every item has a placeholder: the engine
    encodes anew otherwise.

    Returns:
        None where it cannot be said.
    """
    if not model.placement.keeps_prefix:
        return None
    try:
        chat, text = rendered_chat(model, request)
        if not isinstance(text, str):
            return None
        ids = encode_text(model, text, add_special_tokens=request.add_special_tokens)
        rules = [rules_of(model, modality, len(parts)) for modality, parts in chat.media.items()]
    except InexactError:
        return None
    targets = {rule.target for rule in rules}
    if any(len(target) != 1 for target in targets):
        return None
    (places,) = np.isin(ids, [token for (token,) in targets]).nonzero()
    if not len(places) or len(places) < sum(map(len, chat.media.values())):
        return None
    prefix = ids[: places[0]]
    return prefix if 0 < len(prefix) < model.max_model_len else None


def rendered_chat(model: ResolvedModel, request: Request) -> tuple[ParsedChat, str | TokenIds]:
    """A chat, and its prompt as the engine renders it, before its items are counted.

    Raises:
        InexactError: the engine refuses the chat, or it is not covered.
    """
    request = model.engine.with_defaults(request, model.settings)
    chat = model.engine.parse_chat(request, None)
    check_api_fields(model.chat, request)
    return chat, model.chat.render(chat, {}, request)
