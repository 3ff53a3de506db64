"""A chat template, compiled once, and rendered as minijinja renders it.

Source: vLLM ``rust/src/chat/src/renderer/hf/template.rs``, ``mod.rs``
(`append_continue_final_message_tag`, `truncate_prompt_at_continue_final_message_tag`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jinja2
import jinja2.meta

from mmroute.chat.minijinja.content_format import detect_content_format
from mmroute.chat.minijinja.environment import environment, parse, with_its_operations
from mmroute.chat.minijinja.strings import WHITESPACE
from mmroute.chat.minijinja.values import UnknownResultError
from mmroute.chat.template import CONTINUE_TAG, written
from mmroute.errors import InexactError, Reason, malformed


@dataclass(frozen=True, slots=True)
class MinijinjaTemplate:
    """One compiled chat template. Immutable and safe to share.

    Attributes:
        source: the template's text.
        origin: the file (and field) it comes from.
        content_format: ``openai`` or ``string``.
    """

    source: str
    origin: str
    content_format: str
    _compiled: jinja2.Template = field(repr=False)

    @classmethod
    def compile(cls, source: str, origin: str) -> MinijinjaTemplate:
        """Parse and compile.

        Raises:
            ModelError: `malformed_file`: the text is no template, or minijinja may do something
                else with one of its constructs.
        """
        try:
            tree = parse(source)
            content_format = detect_content_format(tree)
            compiled = environment().from_string(with_its_operations(tree))
            compiled.globals = {}
        except jinja2.TemplateSyntaxError as error:
            raise malformed(
                f"{origin} is not a chat template that is rendered as minijinja does: line "
                f"{error.lineno}: {error.message}"
            ) from error
        except UnknownResultError as error:
            raise malformed(
                f"{origin}: {error}: what minijinja does there is not covered"
            ) from error
        except RecursionError:
            raise malformed(f"{origin} is not a chat template: it is nested too deeply") from None
        return cls(source, origin, content_format, compiled)

    def render(
        self,
        conversation: list[dict[str, Any]],
        variables: Mapping[str, Any],
        *,
        continue_final_message: bool,
    ) -> str:
        """The prompt text.

        Args:
            conversation: the messages as the template gets them.
            variables: all other values that the template may read. They may replace the messages.
            continue_final_message: whether to cut the text after the last message's content.

        Raises:
            InexactError: `chat_template_failed`; `chat_template_not_reproducible`: minijinja's
                result for these values is not covered, or the template asks for the date.
        """
        if continue_final_message:
            conversation = deepcopy(conversation)
            final = _tagged(conversation[-1])
        try:
            given = {**_globals(), "messages": conversation, **variables}
            text = "".join(written(self._compiled, given))
        except UnknownResultError as unknown:
            raise InexactError(
                Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE,
                f"the chat template comes to {unknown}; what the engine's template engine does "
                "there is not covered",
            ) from unknown
        return _cut_at_tag(text, final) if continue_final_message else text


@cache
def _globals() -> dict[str, Any]:
    return dict(environment().globals)


def _tagged(message: dict[str, Any]) -> str:
    """Put the tag after the last text of a message, and return that text."""
    content: Any = message["content"]
    if isinstance(content, str):
        message["content"] = content + CONTINUE_TAG
        return content
    for part in reversed(content):
        if "text" in part:
            final: str = part["text"]
            part["text"] = final + CONTINUE_TAG
            return final
    raise _cannot_continue("the final message has no text")


def _cut_at_tag(text: str, final: str) -> str:
    at = text.rfind(CONTINUE_TAG.strip())
    if at < 0 or final.strip(WHITESPACE) not in text:
        raise _cannot_continue("the final message does not appear in the rendered chat")
    if text.startswith(CONTINUE_TAG, at):
        return text[:at]
    return text[:at].rstrip(WHITESPACE)


def _cannot_continue(why: str) -> InexactError:
    return InexactError(Reason.CHAT_TEMPLATE_FAILED, f"continue_final_message is set, but {why}")
