"""What the syntax tree of a chat template says: engines read from it how contents are rendered."""

from __future__ import annotations

from jinja2 import nodes


def is_access(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether an expression is ``name`` (or ``name[key]``), filtered, tested or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return is_access(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return is_access(node.node, name, key)
    if key is None:
        return _is_variable(node, name)
    if isinstance(node, nodes.Getitem):
        has_key = isinstance(node.arg, nodes.Const) and node.arg.value == key
        return has_key and _is_variable(node.node, name)
    if isinstance(node, nodes.Getattr):
        return node.attr == key and _is_variable(node.node, name)
    return False


def _is_variable(node: nodes.Node | None, name: str) -> bool:
    if isinstance(node, nodes.Name):
        return node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getattr) and "." in name:
        base, _, attribute = name.rpartition(".")
        return node.attr == attribute and _is_variable(node.node, base)
    return False
