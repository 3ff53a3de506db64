"""A chat template, compiled once, and rendered by minijinja, as vLLM's Rust frontend renders it.

minijinja's Python binding keeps Python's own lists and mappings, which have other methods and
another text than minijinja's. So a render is a small template of its own: it builds the values from
JSON and includes the chat template.

Source: minijinja 2.24.0 ``compiler/meta.rs``, ``vm/mod.rs``; vLLM
``rust/src/chat/src/renderer/hf/template.rs``, ``generation.rs``, ``tojson.rs``, ``mod.rs``
(`append_continue_final_message_tag`, `truncate_prompt_at_continue_final_message_tag`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import jinja2
import jinja2.lexer
import msgspec
from jinja2 import TemplateSyntaxError, nodes

from mmroute.chat.template import cut_at_tag, environment, put_tag, raise_exception
from mmroute.engines.vllm_rust.json_text import tojson
from mmroute.engines.vllm_rust.template_files import WHITESPACE, detect_content_format
from mmroute.errors import InexactError, Reason, malformed

if TYPE_CHECKING:
    import minijinja

# What the binding has beside minijinja's own, and the frontend has not.
_FOREIGN_FILTERS: Final = (
    "filesizeformat", "pluralize", "striptags", "truncate", "urlencode", "wordcount", "wordwrap",
)  # fmt: skip
_FOREIGN_GLOBALS: Final = ("cycler", "joiner")
_UNCOVERED: Final = (
    nodes.Extends, nodes.FilterBlock, nodes.FromImport, nodes.Import, nodes.Include,
    nodes.ScopedEvalContextModifier,
)  # fmt: skip
_TAGS: Final = {"generation": "call __generation()", "endgeneration": "endcall"}
_GENERATION: Final = "{% macro __generation() %}{{ caller() }}{% endmacro %}"
_SORTING: Final = frozenset({"dictsort", "groupby", "sort", "unique"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY: Final = re.compile(r'"((?:[^"\\]|\\.)*)":')


@dataclass(frozen=True, slots=True)
class RustTemplate:
    """One compiled chat template. Immutable and safe to share."""

    source: str  # the template's text
    origin: str  # the file (and field) it comes from
    content_format: str  # `openai` or `string`
    _set_in_macros: frozenset[str] = field(repr=False)
    _sorts: frozenset[str] = field(repr=False)
    _environments: tuple[minijinja.Environment, ...] = field(repr=False)

    @classmethod
    def compile(cls, source: str, origin: str, *, has_dates: bool = True) -> RustTemplate:
        """Make a template from its text."""
        try:
            tree = environment().parse(source)
            for node in tree.find_all(_UNCOVERED):
                _refuse(node.lineno, f"{type(node).__name__} in a template")
            environments = [_environment(_for_binding(source), has_dates and time.strftime)]
            if has_dates and "strftime_now" in {name.name for name in tree.find_all(nodes.Name)}:
                environments.append(_environment(_for_binding(source), lambda _: "no date"))
        except TemplateSyntaxError as error:
            raise malformed(
                f"{origin} is not a chat template that is rendered as minijinja does: line "
                f"{error.lineno}: {error.message}"
            ) from error
        except RecursionError:
            raise malformed(f"{origin} is not a chat template: it is nested too deeply") from None
        filters = {each.name for each in tree.find_all(nodes.Filter)}
        return cls(
            source=source,
            origin=origin,
            content_format=detect_content_format(tree),
            _set_in_macros=frozenset(_set_in_macros(tree)),
            _sorts=_SORTING & filters,
            _environments=tuple(environments),
        )

    def render(
        self,
        conversation: list[dict[str, Any]],
        variables: Mapping[str, Any],
        *,
        continue_final_message: bool,
    ) -> str:
        """The prompt text."""
        if continue_final_message:
            conversation = deepcopy(conversation)
            final = put_tag(conversation[-1])
        given = {"messages": conversation, **variables}
        if both := self._set_in_macros & given.keys():
            raise _not_covered(f"a macro that sets {min(both)}, which the request sets as well")
        including = self._including(given)
        text, *others = [_rendered(each, including) for each in self._environments]
        if any(other != text for other in others):
            raise _not_covered("the date, which the engine gets at another moment")
        return cut_at_tag(text, final, WHITESPACE) if continue_final_message else text

    def _including(self, given: Mapping[str, Any]) -> str:
        """The template that sets the variables and includes the chat template."""
        names = [name for name in given if _NAME.fullmatch(name)]  # no template reads another
        values = msgspec.json.encode([given[name] for name in names]).decode()
        if self._sorts:
            _check_order(values if self._sorts - {"dictsort"} else "".join(_KEY.findall(values)))
        return (
            f"{_GENERATION}{{% set __given = namespace() %}}{{% with null = none %}}"
            f"{{% set __given.values = {values} %}}{{% endwith %}}"
            f"{{% set {', '.join(names)} = __given.values %}}{{% include 'chat' %}}"
        )


def _set_in_macros(tree: nodes.Template) -> Iterator[str]:
    """Names that a macro sets before it reads them, or reads for the default of their parameter.

    minijinja gives a macro the values of all other names that it reads. For these it may look in
    what the render was given, and here that is nothing.
    """
    macros: list[Any] = [*tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock)]
    for macro in macros:
        first: dict[str, nodes.Name] = {}
        for name in macro.find_all(nodes.Name):
            first.setdefault(name.name, name)
        parameters = {parameter.name for parameter in macro.args}
        yield from (n for n, at in first.items() if at.ctx != "load" and n not in parameters)
        in_defaults = nodes.List(macro.defaults).find_all(nodes.Name)
        yield from (name.name for name in in_defaults if name.name in parameters)


def _for_binding(source: str) -> str:
    """The text of a template, with the binding's names for what the frontend adds to minijinja.

    The binding hands a filter Python's values, which have lost what was a float. So its own filter
    writes JSON, and another one reads that and writes the frontend's.
    """
    if "\r" in source:
        _refuse(1, "a carriage return, which the two engines keep or not")
    written, before, end = "", "", 0
    for line, kind, token in _lexer().tokeniter(source, None):
        start = source.index(token, end)  # the lexer leaves out what a minus strips
        written += source[end:start] + _in_binding(line, kind, token, before)
        end = start + len(token)
        if kind != "whitespace":
            before = "block" if kind == "block_begin" else token
    return written


def _in_binding(line: int, kind: str, token: str, before: str) -> str:
    named = kind == "string" and token[1:-1] == "tojson"
    odd = kind == "name" and (not token.isascii() or token.startswith("__"))
    if named or odd or (kind == "name" and token == "tojson" and before != "|"):
        _refuse(line, f"the name {token}")
    if kind != "name":
        return token
    if token == "tojson":
        return "tojson | __frontend_json"
    return _TAGS.get(token, token) if before == "block" else token


@cache
def _lexer() -> jinja2.lexer.Lexer:
    return jinja2.Environment(keep_trailing_newline=True).lexer  # noqa: S701 - prompts are no HTML


def _refuse(line: int, what: str) -> NoReturn:
    raise TemplateSyntaxError(f"{what}: what minijinja does there is not covered", line)


def _environment(source: str, date: Callable[[str], str] | Literal[False]) -> minijinja.Environment:
    import minijinja  # a compiled library, for this frontend alone

    made = minijinja.Environment(trim_blocks=True, lstrip_blocks=True, debug=False)
    for name in _FOREIGN_FILTERS:
        made.remove_filter(name)
    for name in _FOREIGN_GLOBALS:
        made.remove_global(name)
    made.add_filter(
        "__frontend_json",
        lambda text, **options: minijinja.safe(tojson(json.loads(text), **options)),
    )
    made.add_global("raise_exception", raise_exception)
    made.add_global("debug", _no_debug)
    if date:
        made.add_global("strftime_now", date)
    try:
        made.add_template("chat", source)
    except minijinja.TemplateError as error:
        raise TemplateSyntaxError(error.detail or error.message, error.line or 1) from error
    return made


def _no_debug(*_: object) -> NoReturn:
    raise jinja2.TemplateError("debug shows the engine's state")


def _rendered(environment: minijinja.Environment, including: str) -> str:
    try:
        return environment.render_str(including)
    except Exception as error:  # minijinja's own, or what a function of the template raises
        why = str(error).strip().rpartition("caused by: ")[2]
        raise InexactError(
            Reason.CHAT_TEMPLATE_FAILED, f"the chat template refuses the messages: {why}"
        ) from error


def _check_order(sorted_texts: str) -> None:
    """The binding is built with Unicode's rules for the order of letters in either case."""
    if sorted_texts.casefold().encode() != sorted_texts.encode().lower():
        raise _not_covered("the order of texts with capital letters that are not ASCII")


def _not_covered(what: str) -> InexactError:
    return InexactError(
        Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE,
        f"the chat template comes to {what}; what the engine's template engine does there is not "
        "covered",
    )
