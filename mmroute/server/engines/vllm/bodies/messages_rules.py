"""The rules of the Anthropic Messages API for a model, which vLLM finds by rendering chats.

Source: vLLM ``entrypoints/anthropic/serving.py`` (`AnthropicServingMessages`,
`DisabledThinkingEffortResolver`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import jinja2
import jinja2.ext
import jinja2.sandbox

from mmroute.chat.renderer import Chat
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.requests.request import Request
from mmroute.server.engines.vllm.bodies.messages_protocol import AnthropicEffort

DISABLED_EFFORT_OPTION: Final = "--anthropic-disabled-thinking-effort"


@dataclass(frozen=True, slots=True)
class MessagesRules:
    """The rules for a model, which vLLM finds by rendering chats when it starts."""

    # Whether all system messages become one at the beginning, because the template refuses others.
    merges_system: bool
    # The reasoning effort of `thinking: {"type": "disabled"}`; None where an option of the engine
    # sets one, which is not covered.
    disabled_effort: Literal["none", "low"] | None


def messages_rules(
    chat: Chat, prompt_of: Callable[[Request], bytes | None], without_effect: Iterable[str]
) -> MessagesRules:
    """The rules of a model."""
    effort = None if DISABLED_EFFORT_OPTION in without_effect else _disabled_effort(prompt_of)
    return MessagesRules(_merges_system(chat), effort)


def _merges_system(chat: Chat) -> bool:
    """Whether vLLM finds that a template refuses system messages behind others, as it asks them."""
    templates = chat.templates if isinstance(chat, HfChat) else {}
    if not templates.keys() >= {"default", "tool_use"}:
        return True
    return any(_fails_inline(source) for source in {each.source for each in templates.values()})


def _fails_inline(source: str) -> bool:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    messages = [{"role": role, "content": "t"} for role in ("system", "user") * 2]
    try:
        environment.from_string(source).render(messages=messages, add_generation_prompt=False)
    except Exception:  # noqa: BLE001 - a template can raise anything; of most vLLM does not start
        return True
    return False


def _disabled_effort(prompt_of: Callable[[Request], bytes | None]) -> Literal["none", "low"]:
    """``none``, unless the model fails with it or has the same prompt for another effort."""
    found = _prompt_with(prompt_of, "none")
    others = (_prompt_with(prompt_of, effort) for effort in get_args(AnthropicEffort))
    return "low" if found is None or found in others else "none"


def _prompt_with(prompt_of: Callable[[Request], bytes | None], effort: str) -> bytes | None:
    """The token IDs of a short chat with an effort; None if there are none."""
    messages = [{"role": "user", "content": "Hi"}]
    return prompt_of(Request(messages=messages, reasoning_effort=effort))
