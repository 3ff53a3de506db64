"""Which chats vLLM's Rust frontend refuses for want of a parser.

The statements are those of ``rust/src/chat/src/output/default/mod.rs``
(`resolve_optional_unified_parser`) and of the parsers' constructors.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from mmroute.engines.vllm_rust.parsers import choose_parsers
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError
from mmroute.tokenizers import Tokenizer


class Marks:
    """A tokenizer, as far as parsers ask it."""

    def __init__(self, *marks: str) -> None:
        self.marks = marks

    def token_id(self, text: str) -> int | None:
        return self.marks.index(text) if text in self.marks else None


GEMMA = ("<|channel>", "<channel|>")


@pytest.mark.parametrize(
    ("settings", "marks", "answered"),
    [
        ({"model": "google/Gemma-4-31B"}, GEMMA, True),
        ({"model": "google/Gemma-4-31B"}, GEMMA[:1], False),
        ({"model": "google/gemma-4-31b", "tool_parser": "auto"}, GEMMA, True),
        ({"model": "google/gemma-4-31b", "tool_parser": "none"}, GEMMA, False),
        ({"model": "google/gemma-4-31b", "tool_parser": "hermes"}, GEMMA, False),
        ({"model": "google/gemma-4-31b", "tool_parser": "gemma4"}, GEMMA, True),
        ({"model": "mine", "tool_parser": "gemma4"}, GEMMA, False),
        ({"model": "mine", "tool_parser": "gemma4", "reasoning_parser": "gemma4"}, GEMMA, True),
        ({"model": "mine", "tool_parser": "gemma4", "reasoning_parser": "gemma4"}, (), False),
        ({"model": "gemma-4", "tool_parser": "none", "reasoning_parser": "none"}, (), True),
        ({"model": "tencent/hy3"}, GEMMA, False),
    ],
)
def test_parsers_of_tool_calls_and_reasoning(
    settings: dict[str, Any], marks: tuple[str, ...], answered: bool
) -> None:
    parsers = choose_parsers(RustSettings(**settings), cast("Tokenizer", Marks(*marks)))
    tools_are_read = settings.get("tool_parser") != "none"
    try:
        parsers.check(with_tools=tools_are_read)
    except InexactError:
        assert not answered
    else:
        assert answered
