"""Proves, by some chats, that a template can continue after messages whose text is known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from mmroute.chat.resumable import ResumableTemplate
from mmroute.chat.template import ChatTemplate
from mmroute.errors import InexactError, Reason

_LOG: Final = logging.getLogger(__name__)
_ROLES: Final = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def proved(template: ChatTemplate) -> ResumableTemplate | None:
    """The resumable template, if it writes all probe chats like the original; else None."""
    resumable = ResumableTemplate.of(template.source)
    if resumable is None:
        return None
    for roles in ("suauaua", "uauauau", "utatuaattuu", "uusuaasu"):  # a template may refuse some
        conversation = [
            _probe(_ROLES[role], number, template.content_format)
            for number, role in enumerate(roles)
        ]
        for known in range(1, len(conversation)):
            if not _agree(template, resumable, conversation, known):
                _LOG.warning("%s is rendered whole: a probe chat went wrong", template.origin)
                return None
    return resumable


def _probe(role: str, number: int, content_format: str) -> dict[str, Any]:
    text = f" {role} {number} "
    if role == "tool":
        return {"role": role, "content": text, "tool_call_id": f"call-{number}"}
    images = [{"type": "image"}] * (number % 3 if role == "user" else 0)
    parts = [*images, {"type": "text", "text": text}]
    message: dict[str, Any] = {
        "role": role,
        "content": parts if content_format == "openai" else text,
    }
    if role == "assistant" and not number % 3:
        function = {"name": "look", "arguments": {"at": number}}
        message["tool_calls"] = [{"id": f"call-{number}", "type": "function", "function": function}]
    return message


def _agree(
    template: ChatTemplate,
    resumable: ResumableTemplate,
    conversation: Sequence[dict[str, Any]],
    known: int,
) -> bool:
    """Whether a chat has the same text if it is rendered whole, and if it is resumed."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    variables = {**tokens, "add_generation_prompt": True}

    def whole() -> str:
        return template.render(
            conversation, variables=tokens, add_generation_prompt=True, continue_final_message=False
        )

    def resumed() -> str:
        return before + resumable.render(conversation, variables, first, state)[0]

    try:
        text, places = resumable.render([*conversation[:known], conversation[0]], variables)
    except InexactError:
        return True  # no chat goes on behind one without a text
    first = resumable.first_new(known)
    place = places[first] if first else None
    before, state = ("", ()) if place is None else (text[: place.at], place.state)
    first = 0 if place is None else first
    return _text_or_refusal(whole) == _text_or_refusal(resumed)


def _text_or_refusal(render: Callable[[], str]) -> str | Reason:
    try:
        return render()
    except InexactError as error:
        return error.reason
