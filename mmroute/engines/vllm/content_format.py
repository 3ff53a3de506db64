"""Finds out whether a chat template loops over the parts of a message's content.

Source: vLLM ``renderers/hf.py``, ``_detect_content_format`` and below.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes


def detect_content_format(template: nodes.Template) -> str:
    """``openai`` if the template loops over message contents, else ``string``."""
    try:
        found = _loops_over_content(template)
    except _UnpackingLoopError:
        return "string"
    return "openai" if found else "string"


class _UnpackingLoopError(Exception):
    """A relevant loop unpacks its items; the engine then gives up and assumes ``string``."""


def _loops_over_content(root: nodes.Template) -> bool:
    aliases = _aliases(root, "messages")
    message_names = [
        _target_name(loop)
        for loop in root.find_all(nodes.For)
        if any(is_access(loop.iter, alias) for alias in aliases)
    ]
    in_macro: set[int] = set()
    parameters_for: dict[int, set[str]] = {}
    for macro in root.find_all(nodes.Macro):
        parameters = _content_parameters(root, macro, message_names)
        for loop in macro.find_all(nodes.For):
            in_macro.add(id(loop))
            if parameters:  # of nested macros the innermost that has any
                parameters_for[id(loop)] = parameters
    for loop in root.find_all(nodes.For):
        over_content = any(is_access(loop.iter, name, "content") for name in message_names)
        if not over_content and isinstance(loop.iter, nodes.Name):
            names = parameters_for.get(id(loop), set() if id(loop) in in_macro else {"content"})
            over_content = loop.iter.name in names
        if over_content:
            _target_name(loop)
            return True
    return False


def _content_parameters(
    root: nodes.Template, macro: nodes.Macro, message_names: list[str]
) -> set[str]:
    """The macro's parameters that some call fills with a message's content."""
    names = [argument.name for argument in macro.args]
    found: set[str] = set()
    for call in root.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        given = [*zip(names, call.args, strict=False), *((k.key, k.value) for k in call.kwargs)]
        for name, value in given:
            if name in names and any(is_access(value, m, "content") for m in message_names):
                found.add(name)
    return found


def _aliases(root: nodes.Template, name: str) -> list[str]:
    """``name`` and every variable or namespace attribute it is assigned to."""
    found = [name]
    for known in found:  # grows while it is walked
        for assign in root.find_all(nodes.Assign):
            found += [a for a in _assigned(assign, known) if a not in found]
    return found


def _assigned(assign: nodes.Assign, name: str) -> Iterator[str]:
    target, value = assign.target, assign.node
    if is_access(value, name):
        dotted = _dotted_name(target)
        if dotted is not None:
            yield dotted
    elif (
        isinstance(target, nodes.Name)
        and isinstance(value, nodes.Call)
        and isinstance(value.node, nodes.Name)
        and value.node.name == "namespace"
    ):
        for keyword in value.kwargs:
            if is_access(keyword.value, name):
                yield f"{target.name}.{keyword.key}"


def _dotted_name(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    if isinstance(node, nodes.Getattr):
        base = _dotted_name(node.node)
        return None if base is None else f"{base}.{node.attr}"
    return None


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


def _target_name(loop: nodes.For) -> str:
    if not isinstance(loop.target, nodes.Name):
        raise _UnpackingLoopError
    return loop.target.name
