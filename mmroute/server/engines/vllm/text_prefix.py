"""The tokens before the first item of a chat, which are exact even if its items are unknown."""

from __future__ import annotations

import numpy as np

from mmroute.answering.pipeline import rules_of
from mmroute.answering.prompt_ids import encode_text
from mmroute.chat import ParsedChat, Rendered
from mmroute.errors import InexactError
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds


def text_prefix(model: ResolvedModel, request: Request) -> TokenIds | None:
    """The token IDs before the first item of a chat, whatever its items are; shape (n,).

    The engine encodes the whole prompt first and puts items into the IDs, so those before the
    first placeholder stay as they are. That holds where a placeholder is one token (other rules
    change the text around it), and where every item has a placeholder (otherwise the engine
    encodes the prompt again).
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


def rendered_chat(model: ResolvedModel, request: Request) -> tuple[ParsedChat, Rendered]:
    """A parsed chat, and the prompt that the engine renders from it before it places items."""
    request = model.engine.accept(request, model.chat)
    chat = model.chat.read(request)
    return chat, model.chat.render(chat, {}, request)
