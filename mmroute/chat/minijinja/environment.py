"""The environment of templates: jinja2, with minijinja's operations in place of its own.

Source: minijinja 2.24.0 ``vm/mod.rs``, ``compiler/parser.rs``, ``utils.rs`` (`unescape`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
from jinja2 import TemplateSyntaxError, nodes
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from mmroute.chat.minijinja import values
from mmroute.chat.minijinja.filters import FILTERS, TESTS
from mmroute.chat.minijinja.strings import method
from mmroute.chat.template import GenerationTag, not_reproducible, raise_exception

_OPERATORS: Final = {
    nodes.Add: ":add", nodes.Sub: ":sub", nodes.Mul: ":mul", nodes.FloorDiv: ":div",
    nodes.Mod: ":mod",
}  # fmt: skip
_COMPARISONS: Final = {"lt": ":lt", "lteq": ":lteq", "gt": ":gt", "gteq": ":gteq"}
# Not among them: what another construct below stands for.
_KNOWN: Final = frozenset({
    nodes.And, nodes.Assign, nodes.AssignBlock, nodes.Break, nodes.CallBlock, nodes.CondExpr,
    nodes.Const, nodes.Continue, nodes.Dict, nodes.ExtensionAttribute, nodes.If, nodes.Keyword,
    nodes.List, nodes.NSRef, nodes.Name, nodes.Not, nodes.Operand, nodes.Or, nodes.Pair,
    nodes.Slice, nodes.Template, nodes.TemplateData, nodes.With,
})  # fmt: skip
# Names that mean something to jinja2 alone.
_OWN_NAMES: Final = frozenset({"self", "super", "caller", "varargs", "kwargs"})
_ESCAPE: Final = re.compile(r"\\(?:[nrt\\\"'bf]|u[0-9a-fA-F]{4})|\\")
_INTERNAL: Final = {
    ":add": values.added,
    ":attr": values.attribute,
    ":concat": values.concatenated,
    ":div": values.divided,
    ":in": values.contains,
    ":item": values.item,
    ":iter": values.looped_over,
    ":lt": values.ordered(operator.lt),
    ":lteq": values.ordered(operator.le),
    ":gt": values.ordered(operator.gt),
    ":gteq": values.ordered(operator.ge),
    ":method": method,
    ":mod": values.modulo,
    ":mul": values.multiplied,
    ":neg": values.negated,
    ":slice": values.slice_of,
    ":sub": values.subtracted,
    ":text": values.text,
}
"""Operations, as filters under names that no template can write."""


@cache
def environment() -> jinja2.Environment:
    """The environment in which templates are compiled. Shared, and never changed."""
    made = jinja2.Environment(  # noqa: S701 - prompts are no HTML
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    made.filters = {**FILTERS, **_INTERNAL}
    made.tests = dict(TESTS)
    made.globals = {
        "namespace": Namespace,
        "raise_exception": raise_exception,
        "range": lambda *bounds: values.Iterable(range(*bounds)),
        "strftime_now": not_reproducible("strftime_now"),
    }
    return made


def parse(source: str) -> nodes.Template:
    """The syntax tree of a template, as jinja2 reads it.

    Raises:
        TemplateSyntaxError: the text is no template, or its syntax may mean something else to
            minijinja.
    """
    if "\r" in source:
        raise TemplateSyntaxError("a carriage return, which the two engines keep or not", 1)
    for line, kind, token in environment().lexer.tokeniter(source, None):
        if kind == "string" and any(len(escape) == 1 for escape in _ESCAPE.findall(token)):
            raise TemplateSyntaxError(f"an escape in {token} that is read in several ways", line)
    return environment().parse(source)


def with_its_operations(tree: nodes.Template) -> nodes.Template:
    """The tree with minijinja's operations. It is changed in place.

    Raises:
        TemplateSyntaxError: minijinja may do something else with one of its constructs.
    """
    for macro in tree.find_all(nodes.Macro):
        _check_macro(tree, macro)
    changed: nodes.Template = _Operations().visit(tree)
    changed.set_environment(environment())
    return changed


def _check_macro(tree: nodes.Template, macro: nodes.Macro) -> None:
    for outer in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.AssignBlock)):
        if outer is not macro and macro in outer.find_all(nodes.Macro):
            _refuse(macro, "a macro within a loop or another block")


class _Operations(NodeTransformer):
    """Replaces jinja2's operations by minijinja's, and refuses unknown constructs."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, nodes.BinExpr) and type(node) in _OPERATORS:
            return _operation(_OPERATORS[type(node)], self.visit(node.left), self.visit(node.right))
        if type(node) not in _KNOWN:
            _refuse(node, f"{type(node).__name__} in a template")
        return super().generic_visit(node, *args, **kwargs)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        shown = [
            each if isinstance(each, nodes.TemplateData) else _operation(":text", self.visit(each))
            for each in node.nodes
        ]
        return nodes.Output(shown, lineno=node.lineno)

    def visit_Name(self, node: nodes.Name) -> nodes.Name:
        if node.name in _OWN_NAMES:
            _refuse(node, f"the name {node.name}")
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx == "store":
            return node
        return nodes.List([self.visit(each) for each in node.items], lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        return _operation(":concat", *map(self.visit, node.nodes))

    def visit_Neg(self, node: nodes.Neg) -> nodes.Node:
        if isinstance(node.node, nodes.Const):
            return node
        if not isinstance(node.node, nodes.Name):  # minijinja negates what stands before a dot
            _refuse(node, "a minus before more than a name or a number")
        return _operation(":neg", self.visit(node.node))

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        return _operation(":attr", self.visit(node.node), nodes.Const(node.attr))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        value = self.visit(node.node)
        if not isinstance(node.arg, nodes.Slice):
            return _operation(":item", value, self.visit(node.arg))
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        given = [nodes.Const(None) if bound is None else self.visit(bound) for bound in bounds]
        return _operation(":slice", value, *given)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        if len(node.ops) > 1:
            _refuse(node, "a chain of comparisons")
        left, right, sign = self.visit(node.expr), self.visit(node.ops[0].expr), node.ops[0].op
        if sign in _COMPARISONS:
            return _operation(_COMPARISONS[sign], left, right)
        if sign in ("in", "notin"):
            found = _operation(":in", left, right)
            return found if sign == "in" else nodes.Not(found)
        return nodes.Compare(left, [nodes.Operand(sign, right)], lineno=node.lineno)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            _refuse(node, "a call with unpacked arguments")
        if isinstance(node.node, nodes.Getattr):
            if node.kwargs:
                _refuse(node, f"the method {node.node.attr} with keyword arguments")
            args = [nodes.Const(node.node.attr), *map(self.visit, node.args)]
            return _operation(":method", self.visit(node.node.node), *args)
        if not isinstance(node.node, nodes.Name) or node.node.name == "loop":
            _refuse(node, "a call of what is no function")
        return super().generic_visit(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        if node.node is None or node.name not in FILTERS:
            _refuse(node, f"the filter {node.name}")
        return super().generic_visit(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        if node.name not in TESTS:
            _refuse(node, f"the test {node.name}")
        return super().generic_visit(node)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            _refuse(node, "a recursive loop")
        node.target = self.visit(node.target)
        node.iter = _operation(":iter", self.visit(node.iter))
        node.test = None if node.test is None else self.visit(node.test)
        node.body = [self.visit(each) for each in node.body]
        node.else_ = [self.visit(each) for each in node.else_]
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        if not isinstance(node.call.node, nodes.ExtensionAttribute):
            _refuse(node, "a call block")
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        if node.filter is not None or any(node.find_all((nodes.Assign, nodes.Macro))):
            _refuse(node, "a set block with a filter, or with a set in it")
        return super().generic_visit(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        node.body = [self.visit(each) for each in (*_defaults(node), *node.body)]
        node.defaults = []
        return node


def _defaults(macro: nodes.Macro) -> Iterator[nodes.Node]:
    """The defaults of a macro's parameters, which minijinja also uses for undefined arguments."""
    with_default = macro.args[len(macro.args) - len(macro.defaults) :]
    for parameter, default in zip(with_default, macro.defaults, strict=True):
        name = parameter.name
        given = nodes.Test(nodes.Name(name, "load"), "defined", [], [], None, None)
        kept = nodes.CondExpr(given, nodes.Name(name, "load"), default)
        yield nodes.Assign(nodes.Name(name, "store"), kept, lineno=macro.lineno)


def _operation(name: str, value: nodes.Node, *args: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _refuse(node: nodes.Node, what: str) -> NoReturn:
    raise TemplateSyntaxError(f"{what}: what minijinja does there is not covered", node.lineno)
