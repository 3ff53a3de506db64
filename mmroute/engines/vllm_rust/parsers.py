"""Chooses the parsers of a model's answers. Without one the frontend refuses chats.

Source: vLLM ``rust/src/chat/src/parser/tool/mod.rs``,
``rust/src/chat/src/parser/reasoning/mod.rs``, ``rust/src/chat/src/parser/unified.rs``,
``rust/src/chat/src/output/default/mod.rs``, ``rust/src/parser/src/reasoning/delimited.rs``,
``rust/src/chat/src/reasoning.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.request import Request
from mmroute.tokenizers import Tokenizer

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


# Part of a model's name -> its parser: the first that it contains counts, whatever the case. The
# first table has those that read both tool calls and reasoning.
_UNIFIED: Final[Mapping[str, str]] = {
    "gemma-4": "gemma4", "gemma4": "gemma4", "hy3": "hy_v3", "hy4": "hy_v4", "inkling": "inkling",
    "kimi-k3": "kimi_k3", "kimi_k3": "kimi_k3", "muse-spark": "muse",
}  # fmt: skip
_TOOLS: Final = (
    "mistral-", "mixtral-", "mimo-v2", "qwen3-coder", "qwen3.5", "qwq", "qwen2.5", "qwen3",
    "hermes", "internlm2", "llama-4", "llama-3.2", "llama-3.1", "deepseek-r1", "deepseek-v4.1",
    "deepseek-v4", "deepseek_v4", "deepseek-v3.2", "deepseek-v3.1", "deepseek-v3", "glm-5",
    "glm-4.7", "glm-4.6", "glm-4.5", "granite-4", "kimi-k2", "minimax-m3", "mm-m3", "minimax",
    "mm-m2", "step-5", "step5", "seed-oss", "seedoss",
)  # fmt: skip
_REASONING: Final[Mapping[str, str]] = {
    "deepseek-r1": "deepseek_r1", "deepseek-v4.1": "deepseek_v41", "deepseek-v4": "deepseek_v4",
    "deepseek_v4": "deepseek_v4", "deepseek-v3": "deepseek_v3", "qwq": "deepseek_r1",
    "mimo-v2": "mimo", "qwen3": "qwen3", "glm-5": "glm47", "glm-4.7": "glm47", "glm-4.6": "glm45",
    "glm-4.5": "glm45", "kimi-k2": "kimi_k2", "kimi": "kimi", "step-3p5": "step3p5",
    "step3p5": "step3p5", "step-3.5": "step3p5", "step3": "step3", "step-5": "step5",
    "step5": "step5", "seed-oss": "seed_oss", "seedoss": "seed_oss", "minimax-m3": "minimax_m3",
    "mm-m3": "minimax_m3", "minimax": "minimax_m2", "mm-m2": "minimax_m2", "cohere": "cohere_cmd",
    "command": "cohere_cmd", "nano": "nemotron_v3", "nemotron": "nemotron_v3",
}  # fmt: skip
_TOOL_PARSERS: Final = frozenset({
    "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "glm45", "glm47",
    "granite4", "hermes", "internlm", "kimi_k2", "llama3_json", "llama4_json", "mimo", "minimax_m2",
    "minimax_m3", "mistral", "phi4_mini_json", "qwen3_coder", "qwen3_json", "qwen3_xml", "seed_oss",
    "step5",
})  # fmt: skip
_THINK: Final = ("<think>", "</think>")
_MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((
        "deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "glm45", "glm47", "kimi_k2",
        "mimo", "minimax_m2", "nemotron_v3", "qwen3", "step3", "step3p5", "step5",
    ), _THINK),
    "cohere_cmd": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "gemma4": ("<|channel>", "<channel|>"),
    "inkling": ("<|message_model|>", "<|content_text|>", "<|content_thinking|>"),
    "kimi_k3": ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
    "muse": ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
}  # fmt: skip
_AUTO: Final = "auto"
_NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Parsers:
    """The frontend's refusals for want of a parser of the model's answers."""

    refusal: str = ""  # the reason why it refuses every chat; empty if it does not
    tool_refusal: str = ""  # the reason why it refuses chats with tools; empty if it does not

    def check(self, *, with_tools: bool) -> None:
        """Refuse a chat that the frontend refuses for want of a parser."""
        why = self.refusal or (self.tool_refusal if with_tools else "")
        if why:
            raise InexactError(Reason.CHAT_RENDERER_UNSUPPORTED, why)


def choose_parsers(settings: VllmSettings, tokenizer: Tokenizer) -> Parsers:
    """The parsers of a model."""
    name = str(settings.model).lower()
    unified = _first(name, _UNIFIED)
    pattern = next((pattern for pattern in _TOOLS if pattern in name), None)
    tools = _selected(settings.tool_parser, unified or pattern)
    reasoning = _selected(settings.reasoning_parser, unified or _first(name, _REASONING))
    for parser in (tools, reasoning):
        if parser in _UNIFIED.values() and tools != reasoning:
            return Parsers(
                f"vLLM's Rust frontend refuses chats of {settings.model!r}: the parser {parser} "
                f"reads both tool calls and reasoning. Start it with --tool-call-parser {parser} "
                f"--reasoning-parser {parser}, and give that here too"
            )
    if reasoning is not None and reasoning not in _MARKS:
        return Parsers(f"answers read by the parser {quoted(reasoning)} were not checked")
    missing = [mark for mark in _MARKS.get(reasoning or "", ()) if tokenizer.token_id(mark) is None]
    if missing:
        return Parsers(
            f"vLLM's Rust frontend refuses chats of {settings.model!r}: its parser {reasoning} "
            f"needs the token {missing[0]}, which the tokenizer has not"
        )
    if tools is not None and tools in (pattern, *_UNIFIED.values(), *_TOOL_PARSERS):
        return Parsers()
    return Parsers(
        tool_refusal=f"vLLM's Rust frontend refuses tools: it knows no tool parser "
        f"{quoted(settings.tool_parser or _AUTO)} for {settings.model!r}. Start it with "
        "--tool-call-parser, and give that here too"
    )


def _selected(option: str | None, automatic: str | None) -> str | None:
    """The parser that an option selects; None for none."""
    if option is None or option.lower() == _AUTO:
        return automatic
    return None if option.lower() == _NONE else option


def _first(name: str, patterns: Mapping[str, str]) -> str | None:
    return next((found for pattern, found in patterns.items() if pattern in name), None)
