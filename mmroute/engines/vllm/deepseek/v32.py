"""The prompt of DeepSeek-V3.2: the text of a conversation's turns.

Both of vLLM's frontends write the same text for the same turns, apart from the preamble of tools.
What they make turns of, and what they refuse, differs.

Source: vLLM ``tokenizers/deepseek_v32_encoding.py``,
``rust/src/chat/src/renderer/deepseek_v32/encoding.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
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

USERS: Final = ("user", "developer")
"""Roles of turns that begin anew."""


def write(
    turns: Sequence[Turn],
    functions: Sequence[Any],
    markup: Markup,
    *,
    thinks: bool,
    asks: bool = True,
) -> str:
    """The prompt.

    Args:
        turns: the turns of the conversation, one for each message.
        functions: the tools of the request.
        markup: the markup of tools.
        thinks: whether the model is to think.
        asks: whether a user's message at the end asks for an answer.

    Raises:
        InexactError: `invalid_request`: a turn has no form.
    """
    tools = f"\n\n{markup.describe(functions)}" if functions else ""
    return BOS + tools + "".join(_written(turns, markup, thinks, asks))


def last_user(turns: Sequence[Turn]) -> int:
    """The last turn of a user or developer; -1 if there is none."""
    return max((i for i, turn in enumerate(turns) if turn.role in USERS), default=-1)


def _written(turns: Sequence[Turn], markup: Markup, thinks: bool, asks: bool) -> Iterator[str]:
    last, at = last_user(turns), 0
    for role, group in groupby(turns, attrgetter("role")):
        run = list(group)
        if role == "tool":
            caller = turns[at - 1] if at else None
            yield _results(run, caller, thought=thinks and at >= last)
        else:
            for i, turn in enumerate(run, at):
                if role == "assistant":
                    yield _answer(turn, markup, thinks=thinks and i > last)
                elif role == "system":
                    yield turn.text
                else:
                    yield _asked(turn, markup)
                    if asks or i + 1 < len(turns):
                        yield ASSISTANT + (THINK if thinks and i == last else END_THINK)
        at += len(run)


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
                "an assistant's message behind the last of the user needs reasoning or tool calls, "
                "where this model thinks"
            )
        thought = turn.reasoning + END_THINK
    return thought + turn.text + markup.call(turn.calls) + EOS


def _results(results: Sequence[Turn], caller: Turn | None, *, thought: bool) -> str:
    if caller is None or len(caller.calls) < len(results):
        raise invalid("each result of a tool must follow an assistant's message that calls it")
    texts = "".join(f"\n<result>{result.text}</result>" for result in results)
    opened = f"\n\n<function_results>{texts}"
    if len(results) < len(caller.calls):
        return opened
    return f"{opened}\n</function_results>\n\n{THINK if thought else END_THINK}"
