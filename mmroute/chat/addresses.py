"""Values of templates whose text would hold an address in memory, such as a method's."""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, NoReturn

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

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
