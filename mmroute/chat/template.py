"""A chat template, compiled once, and rendered as transformers renders it.

Source: transformers ``utils/chat_template_utils.py`` (environment, continuation of the
final message) and vLLM ``renderers/hf.py`` (which variables reach the template).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.parser
import jinja2.sandbox
from jinja2 import nodes, pass_context
from jinja2.runtime import Context, LoopContext
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from mmroute.errors import InexactError, Reason, malformed

FILTER: Final = "readable as in the engine"  # no template can name it
_METHODS: Final = frozenset(
    name for kind in (str, int, float, list, tuple, dict) for name in dir(kind)
)
_LAZY: Final = frozenset({
    "attr", "batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr",
    "slice", "unique",
})  # fmt: skip
_FUNCTIONS: Final = frozenset({"lipsum", "raise_exception", "range", "strftime_now"})
_CALLABLE: Final = frozenset({BuiltinMethodType, FunctionType, MethodType})
_ITERATORS: Final = frozenset({GeneratorType, type(reversed([])), map, filter, zip})


class NotReproducibleError(BaseException):
    """The template reads a value that differs at the next call or in another process.

    Not an `Exception`, because tests of jinja2 catch those and answer false.
    """


def _no_text(value: object) -> NoReturn:
    kind = type(value).__name__
    raise NotReproducibleError(f"the text of a {kind}, an address that each process has anew")


class _Addressed:
    """A value that a template may use, and may not write."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def _refuse(self, *_: object) -> NoReturn:
        _no_text(self._value)

    __format__ = __repr__ = __str__ = _refuse

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, _Addressed) else other))

    def __hash__(self) -> int:
        return hash(self._value)


class _Called(_Addressed):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._value(*args, **kwargs)


class _Walked(_Addressed):
    def __iter__(self) -> Iterator[Any]:
        return map(_guarded, self._value)


def unwritten(kind: type) -> type:
    """A subclass whose objects a template may not write."""
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__repr__": _no_text})


def _guarded(value: Any) -> Any:
    kind = type(value)
    if kind in _CALLABLE:
        return _Called(value)
    return _Walked(value) if kind in _ITERATORS else value


@pass_context  # or jinja2 would compute it for constants when it compiles
def guarded(_: Context, value: Any) -> Any:
    """The value itself, or an `_Addressed` in its place if its text has an address."""
    return _guarded(value)


class _Guards(NodeTransformer):
    """Applies `FILTER` to each expression that may have such a value, unless it is called."""

    def visit(self, node: nodes.Node, *_: object, **__: object) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.Call):
            node.node = _unguarded(node.node)
        if not isinstance(node, nodes.Expr) or not _may_give_one(node):
            return node
        place = {"lineno": node.lineno, "environment": node.environment}
        return nodes.Filter(node, FILTER, [], [], None, None, **place)


def _unguarded(node: nodes.Expr) -> nodes.Expr:
    if isinstance(node, nodes.Filter) and node.name == FILTER and node.node is not None:
        return node.node
    return node


def _may_give_one(node: nodes.Expr) -> bool:
    match node:
        case nodes.Getattr(attr=name) | nodes.Getitem(arg=nodes.Const(value=name)):
            return name in _METHODS
        case nodes.Getitem():
            return not isinstance(node.arg, nodes.Slice | nodes.Neg)
        case nodes.Filter():
            return node.name in _LAZY
        case nodes.Name():
            return node.ctx == "load" and node.name in _FUNCTIONS
    return False


def guard(tree: nodes.Template) -> None:
    """Make a template fail with `NotReproducibleError` where it writes an address."""
    _Guards().visit(tree)


CONTINUE_TAG: Final = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks where the content of the final message ends, as transformers does it."""
_DICT_ATTRIBUTES: Final = frozenset(dir(dict))
_READABLE: Final = frozenset({Namespace, LoopContext})
_PLAIN: Final = frozenset({bool, int, float, str, list, dict})


class GenerationTag(jinja2.ext.Extension):
    """The tag ``{% generation %}``, which marks a model's text and changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - the attribute jinja2 reads

    def parse(self, parser: jinja2.parser.Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_pass_through"), [], [], body).set_lineno(line)

    @staticmethod
    def _pass_through(caller: Callable[[], str]) -> str:
        return caller()


def raise_exception(message: str) -> str:
    """The function of templates by which they refuse messages."""
    raise jinja2.TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML, which no model was trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _Unreadable:
    """The result of a function whose value differs in the engine; a template may keep it unread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: object) -> NoReturn:
        raise NotReproducibleError(f"{self._name}, whose value the engine gets at another moment")

    __add__ = __bool__ = __contains__ = __eq__ = __ge__ = __getattr__ = __getitem__ = _refuse
    __gt__ = __hash__ = __iter__ = __le__ = __len__ = __lt__ = __mod__ = __mul__ = _refuse
    __ne__ = __radd__ = __repr__ = __rmod__ = __rmul__ = __str__ = _refuse


def not_reproducible(name: str) -> Callable[..., _Unreadable]:
    """A function for templates, whose result they may not read."""
    return lambda *_, **__: _Unreadable(name)


def _is_string(value: object) -> bool:
    if isinstance(value, _Unreadable):
        str(value)
    return isinstance(value, str)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with a short way for the accesses that templates make most."""

    def _generate(self, source: nodes.Template, *place: Any, **options: Any) -> str:
        guard(source)
        return super()._generate(source, *place, **options)

    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)
        if kind is dict:
            if attribute in obj and attribute not in _DICT_ATTRIBUTES:
                return obj[attribute]
        elif kind in _READABLE and not attribute.startswith("_"):
            value = getattr(obj, attribute, None)
            if type(value) in _PLAIN:  # None may be a missing one
                return value
        return super().getattr(obj, attribute)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        if obj is Namespace:
            kwargs.pop("_loop_vars", None)  # which compiled templates add to every call
            kwargs.pop("_block_vars", None)
            return Namespace(*args, **kwargs)
        return super().call(context, obj, *args, **kwargs)


@cache
def environment() -> jinja2.Environment:
    """The environment in which chat templates are compiled. Shared, and never changed."""
    made = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["cycler"], made.globals["joiner"] = unwritten(Cycler), unwritten(Joiner)
    for name in ("strftime_now", "lipsum"):
        made.globals[name] = not_reproducible(name)
    made.filters[FILTER] = guarded
    made.tests["string"] = _is_string
    # jinja2 computes other filters of constants when it compiles.
    made.filters["random"] = jinja2.pass_context(not_reproducible("random"))
    return made


@cache
def _globals() -> dict[str, Any]:
    return dict(environment().globals)  # those of a template are slow to copy


def pieces_of(compiled: jinja2.Template, variables: Mapping[str, Any]) -> list[str]:
    """The text that a template of `environment` writes, in pieces."""
    return written(compiled, {**_globals(), **variables})


def written(compiled: jinja2.Template, variables: dict[str, Any]) -> list[str]:
    """The text that a template writes, in pieces."""
    try:
        context = compiled.new_context(variables, shared=True)
        return list(compiled.root_render_func(context))
    except NotReproducibleError as error:
        raise InexactError(
            Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE,
            f"the chat template uses {error}; "
            "send a rendered `prompt`, or the variable that the template takes instead",
        ) from error
    except Exception as error:  # a template can raise whatever its input makes it
        raise InexactError(
            Reason.CHAT_TEMPLATE_FAILED, f"the chat template refuses the messages: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One compiled chat template. Immutable and safe to share."""

    source: str  # the template's text
    origin: str  # the file (and field) it comes from
    # The form in which the engine gives it message contents: `openai`, their parts, or `string`.
    content_format: str
    variables: frozenset[str]  # the names that the template reads and does not set
    knows_developer: bool  # whether it treats the role "developer" apart from others
    _compiled: jinja2.Template = field(repr=False)

    @classmethod
    def compile(
        cls,
        source: str,
        origin: str,
        content_format_of: Callable[[nodes.Template], str] = lambda _: "string",
    ) -> ChatTemplate:
        """Make a template from its text."""
        try:
            tree = environment().parse(source)
            content_format = content_format_of(tree)
            variables = frozenset(jinja2.meta.find_undeclared_variables(tree))
            compiled = environment().from_string(tree)
            compiled.globals = {}  # `pieces_of` gives them, and a context goes through all of these
        except jinja2.TemplateSyntaxError as error:
            raise malformed(
                f"{origin} is not a chat template: line {error.lineno}: {error.message}"
            ) from error
        except RecursionError:
            raise malformed(f"{origin} is not a chat template: it is nested too deeply") from None
        return cls(
            source=source,
            origin=origin,
            content_format=content_format,
            variables=variables,
            knows_developer="'developer'" in source or '"developer"' in source,
            _compiled=compiled,
        )

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        variables: Mapping[str, Any],
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> str:
        """The prompt text."""
        final: str | None = None
        if continue_final_message:
            if "content" not in self.source:
                raise _cannot_continue("the chat template does not use message contents")
            last = deepcopy(dict(conversation[-1]))
            final = put_tag(last)
            conversation = [*conversation[:-1], last]
        given = {
            **_globals(),
            **variables,
            "messages": conversation,
            "add_generation_prompt": add_generation_prompt,
        }
        text = "".join(written(self._compiled, given))
        return text if final is None else cut_at_tag(text, final)


def put_tag(message: dict[str, Any]) -> str:
    """Put the tag behind the last text of a message, and return that text."""
    content: Any = message["content"]
    if isinstance(content, str):
        message["content"] = content + CONTINUE_TAG
        return content
    for part in reversed(content):
        if "text" in part:
            final: str = part["text"]
            part["text"] = final + CONTINUE_TAG
            return final
    raise _cannot_continue("the final message has no text")


def cut_at_tag(text: str, final: str, whitespace: str | None = None) -> str:
    """A rendered chat up to the tag."""
    at = text.rfind(CONTINUE_TAG.strip())
    if at < 0 or final.strip(whitespace) not in text:
        raise _cannot_continue("the final message does not appear in the rendered chat")
    if text.startswith(CONTINUE_TAG, at):
        return text[:at]
    # The template trimmed the message, and the space of the tag with it.
    return text[:at].rstrip(whitespace)


def _cannot_continue(why: str) -> InexactError:
    return InexactError(Reason.CHAT_TEMPLATE_FAILED, f"continue_final_message is set, but {why}")
