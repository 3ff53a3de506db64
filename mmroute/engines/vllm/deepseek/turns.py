"""The prompt of DeepSeek-V4 and V4.1: a conversation as turns, and the text of the turns.

Source: vLLM ``tokenizers/deepseek_v4_encoding.py``, ``tokenizers/deepseek_v41_encoding.py``,
``tokenizers/deepseek_v4.py``, ``rust/src/chat/src/renderer/deepseek.rs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mmroute.engines.vllm.deepseek.dsml import (
    ASSISTANT,
    BOS,
    END_THINK,
    EOS,
    SYSTEM,
    THINK,
    USER,
    V4_PREAMBLE,
    V4_TAGS,
    V41_TAGS,
    Call,
    Markup,
)
from mmroute.errors import invalid, quoted

_HIGH: Final = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""
_MAX: Final = """\
Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

"""
V4_EFFORTS: Final[Mapping[str, str]] = {
    "minimal": "", "low": "", "medium": "", "high": _HIGH, "xhigh": _HIGH, "max": _MAX,
}  # fmt: skip
"""Effort -> the text for V4."""
_PER_CENT: Final = range(1, 101)
_V41_BUDGETS: Final = {"low": 50, "high": 75, "xhigh": 75, "max": 100}


def v41_effort(effort: object) -> str:
    """The text for V4.1."""
    budget = _V41_BUDGETS.get(effort) if isinstance(effort, str) else effort
    if type(budget) is not int or budget not in _PER_CENT:
        raise invalid(
            f"reasoning_effort must be one of {', '.join(_V41_BUDGETS)}, or an integer from 1 to "
            f"100, found {quoted(effort)}"
        )
    return (
        f"Reasoning Effort: {budget} (range 1-100, the higher the value, the more thorough the "
        "reasoning)\n\n"
    )


_REMINDER: Final = "latest_reminder"
_REMINDER_MARK: Final = "<\uff5clatest_reminder\uff5c>"
_TASKS: Final = ("action", "query", "authority", "domain", "title", "read_url")
_FOLLOWING: Final = ("assistant", _REMINDER)
"""Roles of turns before which the one before them ends as if nothing followed."""
# What stays of a conversation of which earlier reasoning is dropped. The last has no form.
_KEPT: Final = frozenset({"system", "user", "assistant", _REMINDER, "direct_search_results"})


class Block(NamedTuple):
    """A piece of a turn: a text, or the result of a tool."""

    text: str  # the text of the piece
    is_result: bool = False  # whether it is the result of a tool
    call_id: str | None = None  # the call that the result answers
    images: Sequence[int] = ()  # the images in the text, by their numbers in the request


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, or all messages of a user and of tools that follow one another."""

    # The role; `tool` until `merged` has made a user's turn of it; `tools` for tools alone, which
    # ask for no answer.
    role: str
    blocks: Sequence[Block] = ()  # the pieces of its content
    reasoning: str = ""  # the assistant's reasoning
    calls: Sequence[Call] = ()  # the assistant's calls of tools
    functions: Sequence[Any] = ()  # the tools that it brings
    response_format: Any = None  # the schema of answers that it asks for
    task: str | None = None  # the task that is to follow it
    is_open: bool = False  # whether the assistant is to go on with it

    @property
    def text(self) -> str:
        """All that it says."""
        return "\n\n".join(
            f"<tool_result>{block.text}</tool_result>" if block.is_result else block.text
            for block in self.blocks
        )


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one of the models writes turns."""

    markup: Markup  # the markup of tools
    # Whether a system message has a mark. One in the middle of a conversation then asks for an
    # answer as a user does, and results of tools alone do not.
    marks_systems: bool


def dialects(json: Callable[[Any], str]) -> tuple[Dialect, Dialect]:
    """How V4 and V4.1 write turns."""
    return (
        Dialect(Markup(*V4_TAGS, V4_PREAMBLE, json), marks_systems=False),
        Dialect(Markup(*V41_TAGS, V4_PREAMBLE, json), marks_systems=True),
    )


class Thinking(NamedTuple):
    """How the model is to think."""

    effort: str | None  # the text that asks for an effort; None if it is not to think
    drops_earlier: bool = True  # whether earlier reasoning is dropped, where there are no tools


def merged(turns: Iterable[Turn]) -> list[Turn]:
    """Put what a user and tools say in a row into one turn, results in the order of their calls."""
    joined: list[Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last is not None and last.role == "user" and (
            turn.role == "tool" or (turn.role == "user" and last.task is None)
        ):  # fmt: skip
            joined[-1] = replace(last, blocks=[*last.blocks, *turn.blocks])
        else:
            joined.append(Turn("user", turn.blocks) if turn.role == "tool" else turn)
    places: Mapping[str | None, int] = {}
    for number, turn in enumerate(joined):
        if turn.calls:
            places = {call.id: i for i, call in enumerate(turn.calls) if call.id is not None}
        elif turn.role == "user":
            joined[number] = replace(turn, blocks=_ordered(turn.blocks, places))
    return joined


def _ordered(blocks: Sequence[Block], places: Mapping[str | None, int]) -> list[Block]:
    results = [block for block in blocks if block.is_result]
    waiting = iter(sorted(results, key=lambda result: places.get(result.call_id, 0)))
    return [next(waiting) if block.is_result else block for block in blocks]


def with_tools(turns: list[Turn], functions: Sequence[Any], *, role: str) -> list[Turn]:
    """The first system message brings the tools of the request."""
    if not functions:
        return turns
    at = next((i for i, turn in enumerate(turns) if turn.role == "system"), None)
    if at is None:
        return [Turn(role, functions=functions), *turns]
    return [*turns[:at], replace(turns[at], functions=functions), *turns[at + 1 :]]


def without_dropped(turns: Sequence[Turn], thinking: Thinking, dialect: Dialect) -> Sequence[Turn]:
    """The turns that the prompt has: a developer's stay before the last user's with tools only."""
    if not _drops(turns, thinking):
        return turns
    last = _last_user(turns, dialect)
    return [turn for i, turn in enumerate(turns) if i >= last or turn.role in _KEPT]


def _drops(turns: Sequence[Turn], thinking: Thinking) -> bool:
    tools = any(turn.functions for turn in turns)
    return thinking.effort is not None and thinking.drops_earlier and not tools


def write(turns: Sequence[Turn], thinking: Thinking, dialect: Dialect, *, asks: bool = True) -> str:
    """The prompt."""
    return BOS + "".join(_written(turns, thinking, dialect, asks) if turns else ())


def _written(
    turns: Sequence[Turn], thinking: Thinking, dialect: Dialect, asks: bool
) -> Iterator[str]:
    thinks, drops = thinking.effort is not None, _drops(turns, thinking)
    last = _last_user(turns, dialect)
    if dialect.marks_systems and (thinks or turns[0].role in ("system", "tools")):
        yield SYSTEM
    yield thinking.effort or ""
    for i, turn in enumerate(turns):
        if turn.role == "assistant":
            answers_task = i > 0 and turns[i - 1].task is not None
            thought = thinks and not answers_task and (not drops or i > last)
            yield f"{turn.reasoning}{END_THINK}" if thought else ""
            yield turn.text + dialect.markup.call(turn.calls) + ("" if turn.is_open else EOS)
        else:
            if dialect.marks_systems and turn.role == "system" and i > 0:
                yield SYSTEM
            yield _said(turn, dialect.markup)
        follower = turns[i + 1].role if i + 1 < len(turns) else None
        if follower is not None and follower not in _FOLLOWING:
            continue
        if turn.task is not None:
            yield _task(turn.task, thinks)
        elif (asks or follower) and _is_answered(turn.role, i, follower, dialect):
            yield ASSISTANT + (THINK if thinks and (not drops or i >= last) else END_THINK)


def _said(turn: Turn, markup: Markup) -> str:
    text = turn.text
    match turn.role:
        case "system" | "tools":
            return text + _demands(turn, markup)
        case "developer":
            if not text:
                raise invalid("a developer's message must not be empty for this model")
            return USER + text + _demands(turn, markup)
        case "user":
            return USER + text
        case "latest_reminder":
            return _REMINDER_MARK + text
    raise invalid(f"the engine takes no message of the role {quoted(turn.role)} for this model")


def _demands(turn: Turn, markup: Markup) -> str:
    tools = f"\n\n{markup.describe(turn.functions)}" if turn.functions else ""
    if not turn.response_format:
        return tools
    return (
        f"{tools}\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
        f"reply:\n{markup.json(turn.response_format)}"
    )


def _task(task: str, thinks: bool) -> str:
    if task not in _TASKS:
        raise invalid(f"task must be one of {', '.join(_TASKS)}, found {quoted(task)}")
    mark = f"<\uff5c{task}\uff5c>"
    return mark if task != "action" else ASSISTANT + (THINK if thinks else END_THINK) + mark


def _is_answered(role: str, i: int, follower: str | None, dialect: Dialect) -> bool:
    """Whether an answer of the assistant follows a turn, or is asked for."""
    if role != "system":
        return role in ("user", "developer")
    return i > 0 if dialect.marks_systems else follower != _REMINDER


def _last_user(turns: Sequence[Turn], dialect: Dialect) -> int:
    """The last turn that begins anew; -1 if there is none."""
    for i in range(len(turns) - 1, -1, -1):
        turn = turns[i]
        if turn.role == "developer":
            return i
        if turn.role == "system" and dialect.marks_systems and i > 0:
            return i
        if turn.role == "user" and not (
            dialect.marks_systems and all(block.is_result for block in turn.blocks)
        ):
            return i
    return -1
