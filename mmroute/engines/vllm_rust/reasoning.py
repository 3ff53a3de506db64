"""Reads whether and how much a model is to think, for renderers of vLLM's Rust frontend.

Source: vLLM ``rust/src/chat/src/reasoning.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mmroute.errors import invalid, quoted
from mmroute.requests.request import Request

_TOGGLES: Final = ("thinking", "enable_thinking")


class Reasoning(NamedTuple):
    """The reasoning for which a request or a server asks."""

    enabled: bool | None = None  # whether the model is to think; None if that is not said
    effort: Any = None  # the effort, a text or a number; None if that is not said

    def or_else(self, default: Reasoning) -> Reasoning:
        """This value; the default's where it says nothing."""
        if self.enabled is None:
            return default
        if self.enabled and self.effort is None and default.enabled:
            return default
        return self


def reasoning_of(request: Request, defaults: Mapping[str, Any]) -> Reasoning:
    """The reasoning that a request asks for, or else that of the server's default variables."""
    own = _read(request.chat_template_kwargs, request.reasoning_effort)
    return own.or_else(_read(defaults, None))


def _read(kwargs: Mapping[str, Any], own: str | None) -> Reasoning:
    toggle = next((kwargs[name] for name in _TOGGLES if name in kwargs), None)
    named = any(name in kwargs for name in _TOGGLES)
    if named and not isinstance(toggle, bool):
        raise invalid(f"thinking must be true or false, found {quoted(toggle)}")
    if toggle is False:
        return Reasoning(False)
    effort = own if own is not None else kwargs.get("reasoning_effort")
    if effort is not None and (
        isinstance(effort, bool) or not isinstance(effort, str | int | float)
    ):
        raise invalid(f"reasoning_effort must be a text or a number, found {quoted(effort)}")
    if effort == "none":
        return Reasoning(bool(toggle))
    return Reasoning(True if toggle or effort is not None else None, effort)
