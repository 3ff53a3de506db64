"""DeepSeek's marks, and the markup in which tools are described and called (DSML).

Source: vLLM ``tokenizers/deepseek_v32_encoding.py``, ``tokenizers/deepseek_v4_encoding.py`` and
``tokenizers/deepseek_v41_encoding.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

BOS: Final = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
EOS: Final = "<\uff5cend\u2581of\u2581sentence\uff5c>"
SYSTEM: Final = "<\uff5cSystem\uff5c>"
USER: Final = "<\uff5cUser\uff5c>"
ASSISTANT: Final = "<\uff5cAssistant\uff5c>"
THINK: Final = "<think>"
END_THINK: Final = "</think>"
IMAGE: Final = "<\uff5cdeepseek_image\uff5c>"
_TAG: Final = "\uff5cDSML\uff5c"

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
"""The roles of messages that the models take."""
V32_TAGS: Final = ("function_calls", "invoke", "parameter")
V4_TAGS: Final = ("tool_calls", "invoke", "parameter")
V41_TAGS: Final = (" calls", " invoke", " parameter")
"""The tags around all calls of a message, around one, and around one of its arguments."""


class Call(NamedTuple):
    """A call of a tool."""

    id: str | None  # the ID by which a result names the call; None if none can
    name: str  # the tool's name
    arguments: Mapping[str, Any]  # the arguments by their names


@dataclass(frozen=True, slots=True)
class Markup:
    """The markup of one model, as one frontend writes it."""

    calls: str  # the tag around all calls of a message
    invoke: str  # the tag around one call
    parameter: str  # the tag around one argument
    preamble: str  # the text that describes the tools, with `{schemas}` in it
    json: Callable[[Any], str]  # writes JSON

    def describe(self, functions: Sequence[Any]) -> str:
        """The text by which a model is told its tools."""
        return self.preamble.format(
            calls=_TAG + self.calls,
            invoke=_TAG + self.invoke,
            parameter=_TAG + self.parameter,
            schemas="\n".join(map(self.json, functions)),
        )

    def call(self, calls: Sequence[Call]) -> str:
        """The text of all calls of a message, which follows its content; empty for none."""
        if not calls:
            return ""
        written = "\n".join(map(self._one_call, calls))
        return "\n\n" + _element(self.calls, "", f"\n{written}\n")

    def _one_call(self, call: Call) -> str:
        parameters = "\n".join(
            _element(self.parameter, f' name="{name}" string="true"', value)
            if isinstance(value, str)
            else _element(self.parameter, f' name="{name}" string="false"', self.json(value))
            for name, value in call.arguments.items()
        )
        return _element(self.invoke, f' name="{call.name}"', f"\n{parameters}\n")


def _element(tag: str, attributes: str, content: str) -> str:
    return f"<{_TAG}{tag}{attributes}>{content}</{_TAG}{tag}>"


V32_PREAMBLE: Final = """## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{calls}>" block like the following as part of your reply to the user:
<{calls}>
<{invoke} name="$FUNCTION_NAME">
<{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{parameter}>
...
</{invoke}>
<{invoke} name="$FUNCTION_NAME2">
...
</{invoke}>
</{calls}>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<{calls}>
...
</{calls}>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{schemas}
</functions>
"""

V4_PREAMBLE: Final = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{calls}>" block like the following:

<{calls}>
<{invoke} name="$TOOL_NAME">
<{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{parameter}>
...
</{invoke}>
<{invoke} name="$TOOL_NAME2">
...
</{invoke}>
</{calls}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{schemas}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
