"""The prompt of DeepSeek-V3.2: the text of a conversation's turns.

Source: vLLM ``tokenizers/deepseek_v32_encoding.py``,
``rust/src/chat/src/renderer/deepseek_v32/encoding.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from mmroute.engines.vllm.deepseek.dsml import (
    ASSISTANT,
    BOS,
    END_THINK,
    EOS,
    THINK,
    USER,
    Markup,
)
from mmroute.engines.vllm.deepseek.turns import Turn
from mmroute.errors import invalid, quoted

_USERS: Final = ("user", "developer")


def write(
    turns: Sequence[Turn],
    functions: Sequence[Any],
    markup: Markup,
    *,
    thinks: bool,
    asks: bool = True,
) -> str:
    """The prompt."""
    tools = f"\n\n{markup.describe(functions)}" if functions else ""
    return BOS + tools + "".join(_written(turns, markup, thinks, asks))


def _written(turns: Sequence[Turn], markup: Markup, thinks: bool, asks: bool) -> Iterator[str]:
    last = max((i for i, turn in enumerate(turns) if turn.role in _USERS), default=-1)
    for i, turn in enumerate(turns):
        match turn.role:
            case "system":
                yield turn.text
            case "assistant":
                yield _answer(turn, markup, thinks=thinks and i > last)
            case "tool":
                yield _results(turn, thought=thinks and i >= last)
            case _:
                yield _asked(turn, markup)
                if asks or i + 1 < len(turns):
                    yield ASSISTANT + (THINK if thinks and i == last else END_THINK)


def _asked(turn: Turn, markup: Markup) -> str:
    if turn.role == "user":
        return USER + turn.text
    if turn.role != "developer":
        raise invalid(f"the engine takes no message of the role {quoted(turn.role)} for this model")
    if not turn.text:
        raise invalid("a developer's message must not be empty for this model")
    tools = f"\n\n{markup.describe(turn.functions)}" if turn.functions else ""
    return f"{USER}{tools}\n\n# The user's message is: {turn.text}"


def _answer(turn: Turn, markup: Markup, *, thinks: bool) -> str:
    if turn.is_open and not turn.calls:
        return turn.text
    thought = ""
    if thinks:
        if not (turn.reasoning or turn.calls):
            raise invalid(
                "an assistant's message after the user's last one needs reasoning or tool calls if "
                "this model thinks"
            )
        thought = turn.reasoning + END_THINK
    return thought + turn.text + markup.call(turn.calls) + EOS


def _results(turn: Turn, *, thought: bool) -> str:
    results = "".join(f"\n<result>{block.text}</result>" for block in turn.blocks)
    end = "" if turn.is_open else f"\n</function_results>\n\n{THINK if thought else END_THINK}"
    return f"\n\n<function_results>{results}{end}"
