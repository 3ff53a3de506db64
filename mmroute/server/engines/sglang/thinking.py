"""How SGLang switches the thoughts of a model on and off, by its chat template.

Source: SGLang 0.5.23 ``srt/parser/template_detection.py`` (`REASONING_MODE_RULES`),
``srt/entrypoints/openai/serving_chat.py`` (`apply_reasoning_enabled`).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import jinja2
import jinja2.ext
from jinja2 import nodes

from mmroute.chat.template import GenerationTag
from mmroute.errors import InexactError, Reason, invalid

ALWAYS: Final = "always"
MISTRAL: Final = "mistral"
# Parsers that set an effort, or further variables, in place of a switch.
_OWN_SWITCHES: Final = frozenset({
    "auto", "hunyuan", "inkling", "iquest_q1", "response_template",
})  # fmt: skip
_OF_GLM: Final = ("[gMASK]<sop>", "Reasoning Effort:", "<tool_call>", "<arg_key>", "<arg_value>")
_SET: Final = r"{%\s*if\s+not\s+NAME\s+is\s+defined\s*%}.*?{%\s*set\s+NAME\s*=\s*(?:VALUE)\s*%}"
_ON: Final = (
    r"set\s+NAME\s*=\s*NAME\s+if\s+NAME\s+is\s+defined\s+else\s+(?:true|True)",
    r"NAME\s+is\s+defined\s+and\s+(?:NAME\s+is\s+false|not\s+NAME)",
    r"NAME\s+is\s+not\s+defined\s+or\s+NAME",
    r"namespace\([^)]*NAME\s*=\s*true",
)


class Switch(NamedTuple):
    """What a chat template or a parser says of thoughts."""

    variable: str | None = None  # the template's variable that switches them
    rule: str | None = None  # `ALWAYS` or `MISTRAL`, where no variable does


def switch_of(template: str) -> Switch | None:
    """The switch of a chat template; None if it is not known by its text."""

    def has(*words: str) -> bool:
        return all(word in template for word in words)

    opens = re.search(r"<\|im_start\|>assistant\\n<think>\\n", template) is not None
    if (
        has("<ifm|think>", "<ifm|think_fast>", "reasoning_effort")
        or has("<|channel|>")
        or (opens and "thinking" not in template)
        or (has(*_OF_GLM) and "enable_thinking" not in template)
    ):
        return Switch(rule=ALWAYS)
    if has("reasoning_effort", "[THINK]"):
        return Switch(rule=MISTRAL)
    if has("reasoning_effort", "reasoning_mode_token", "no_think"):
        return Switch()
    for name in ("enable_thinking", "thinking"):
        quick = name == "enable_thinking" and has("low_effort", "truncate_history_thinking")
        if _is_off(template, name) or quick or _is_on(template, name):
            return Switch(name)
    return None


def _is_off(template: str, name: str) -> bool:
    return _sets(template, name, "false|False") or _has_default(template, name, value=False)


def _is_on(template: str, name: str) -> bool:
    return (
        _sets(template, name, "true|True")
        or any(re.search(pattern.replace("NAME", name), template) for pattern in _ON)
        or _has_default(template, name, value=True)
    )


def _sets(template: str, name: str, value: str) -> bool:
    pattern = _SET.replace("NAME", name).replace("VALUE", value)
    return re.search(pattern, template, re.DOTALL) is not None


def _has_default(template: str, name: str, *, value: bool) -> bool:
    """Whether a template has a default for a variable that leaves an explicit one as it is."""
    try:
        tree = jinja2.Environment(  # noqa: S701 - it is parsed alone
            extensions=[jinja2.ext.loopcontrols, GenerationTag]
        ).parse(template)
    except (jinja2.TemplateError, RecursionError):
        return False
    filters = (node for node in tree.find_all(nodes.Filter) if node.name in ("default", "d"))
    return any(_is_default(node, name, value=value) for node in filters)


def _is_default(node: nodes.Filter, name: str, *, value: bool) -> bool:
    read, args = node.node, list(node.args)
    if node.dyn_args or node.dyn_kwargs or not isinstance(read, nodes.Name) or read.name != name:
        return False
    if not args or not isinstance(args[0], nodes.Const) or args[0].value is not value:
        return False
    named: dict[object, nodes.Expr] = {pair.key: pair.value for pair in node.kwargs}
    also_false: nodes.Expr | None = args[1] if len(args) > 1 else named.get("boolean")
    if also_false is None:
        return True
    return isinstance(also_false, nodes.Const) and not (also_false.value and value)


def template_kwargs(parser: str | None, switch: Switch | None, *, enabled: bool) -> dict[str, Any]:
    """The variables of the template for a request that says whether to think.

    `switch` is the template's, or the parser's own where the template has none.
    Raises `InexactError`.
    """
    if parser is None:
        if enabled:
            raise invalid("thinking: the engine takes it with --reasoning-parser only")
        return {}
    if parser in _OWN_SWITCHES:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"thinking: what --reasoning-parser {parser} makes of it is not covered",
        )
    switch = switch or Switch()
    if switch.rule == MISTRAL:
        return {"reasoning_effort": "medium" if enabled else "none"}
    if switch.rule == ALWAYS:
        if not enabled:
            raise invalid("thinking: this model cannot do without it")
        return {}
    if switch.variable is None:
        if enabled:
            raise invalid("thinking: this model has no switch for it")
        return {}
    return {switch.variable: enabled}
