"""Makes token IDs of a prompt, within the limits of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mmroute.answering.stages import Stage, Stopwatch
from mmroute.chat import Continued, ParsedChat, Rendered
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.checks import integers
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds, as_token_ids

if TYPE_CHECKING:
    from mmroute.model.resolved import ResolvedModel

_LONG_TEXT: Final = 1 << 20  # characters of a text that is worth a look before it is encoded
_LONGEST_TARGET: Final = 64  # characters, and so tokens


def prompt_ids(
    model: ResolvedModel,
    request: Request,
    chat: ParsedChat | None,
    items: Items,
    watch: Stopwatch | None,
) -> TokenIds:
    """The token IDs of a request before its items are placed, shape (n,)."""
    if request.prompt_token_ids is not None:
        return _checked_ids(model, request.prompt_token_ids)
    text: Rendered | None
    if chat is None:
        text = request.prompt
        specials = model.engine.adds_special_tokens(model.chat, request, bool(items))
    else:
        text = model.chat.render(chat, items, request)
        if watch is not None:
            watch.lap(Stage.RENDER)
        if not isinstance(text, str | Continued):
            return text
        specials = request.add_special_tokens
    if isinstance(text, Continued):
        return _encode_rest(model, text)
    if isinstance(text, str) and len(text) > _LONG_TEXT:
        _check_long_text(model, request, text, items)
    return encode_text(model, text, add_special_tokens=specials)


def encode_text(model: ResolvedModel, text: object, *, add_special_tokens: bool) -> TokenIds:
    """The token IDs of a prompt, shape (n,), if it is not too long for this model."""
    if not isinstance(text, str):
        raise invalid(
            f"prompt must be a string, found {json_type(text)}; token IDs go into prompt_token_ids"
        )
    _check_characters(model, len(text))
    try:
        return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except ValueError as error:
        raise invalid(f"the prompt cannot be encoded: {error}") from error


def _encode_rest(model: ResolvedModel, rendered: Continued) -> TokenIds:
    """The token IDs of a chat of which a prefix is encoded already, shape (n,)."""
    _check_characters(model, rendered.characters + len(rendered.text))
    try:
        ids, cuts = model.tokenizer.encode_cut(rendered.text)
    except ValueError as error:
        raise invalid(f"the prompt cannot be encoded: {error}") from error
    return rendered.prompt(ids, cuts)


def _check_characters(model: ResolvedModel, length: int) -> None:
    if length <= model.max_model_len:
        return
    limit = model.max_model_len * model.tokenizer.max_chars_per_token
    if length > limit:
        raise InexactError(
            Reason.PROMPT_TOO_LONG,
            f"the prompt has {length} characters; more than {limit} cannot fit the context "
            f"of {model.max_model_len} tokens",
        )


def _check_long_text(model: ResolvedModel, request: Request, text: str, items: Items) -> None:
    """Refuse a long text that cannot fit the context, before it is encoded for seconds."""
    bound = model.tokenizer.fewest_tokens
    if bound is not None and request.truncate_prompt_tokens is None:
        fewest = bound(text) - _LONGEST_TARGET * sum(map(len, items.values()))
        if fewest >= model.max_model_len:
            raise too_long(model, fewest, "prompt has at least")


def _checked_ids(model: ResolvedModel, values: object) -> TokenIds:
    ids = integers("prompt_token_ids", values)
    highest = model.max_token_id
    if ids and not (min(ids) >= 0 and max(ids) <= highest):
        position, wrong = next((i, t) for i, t in enumerate(ids) if not 0 <= t <= highest)
        raise InexactError(
            Reason.TOKEN_OUT_OF_VOCABULARY,
            f"prompt_token_ids[{position}] is {quoted(wrong)}; this model's IDs are 0 to {highest}",
        )
    return as_token_ids(ids)


def too_long(model: ResolvedModel, length: int, what: str) -> InexactError:
    """The error for a prompt that does not fit the context."""
    return InexactError(
        Reason.PROMPT_TOO_LONG,
        f"the {what} {length} tokens; the context of {model.max_model_len} tokens must also hold "
        "one token of the answer",
    )
