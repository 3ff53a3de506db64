"""Whether a chat template loops over the parts of a message's content.

vLLM's Rust frontend sees less than its Python frontend: no parameters of macros, no namespaces. A
loop over a name ``content`` counts as such a loop anywhere.

Source: vLLM ``rust/src/chat/src/renderer/hf/format.rs``.
"""

from __future__ import annotations

from jinja2 import nodes


def detect_content_format(template: nodes.Template) -> str:
    """``openai`` if the template loops over message contents, else ``string``."""
    loops = [loop for loop in template.find_all(nodes.For) if isinstance(loop.target, nodes.Name)]
    names = _aliases(template)
    messages = {
        loop.target.name  # type: ignore[attr-defined]  # a Name, by the line above
        for loop in loops
        if any(_is_access(loop.iter, name, None) for name in names)
    }
    for loop in loops:
        by_name = isinstance(loop.iter, nodes.Name) and loop.iter.name == "content"
        if by_name or any(_is_access(loop.iter, name, "content") for name in messages):
            return "openai"
    return "string"


def _aliases(template: nodes.Template) -> list[str]:
    """``messages`` and every variable that it is assigned to."""
    found = ["messages"]
    for known in found:  # grows while it is walked
        for assign in template.find_all(nodes.Assign):
            target = assign.target
            if isinstance(target, nodes.Name) and _is_access(assign.node, known, None):
                found += [target.name] * (target.name not in found)
    return found


def _is_access(node: nodes.Node | None, name: str, key: str | None) -> bool:
    """Whether an expression is ``name`` (or ``name[key]``), filtered, tested or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _is_access(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_access(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.name == name
    if isinstance(node, nodes.Getitem):
        arg = node.arg
        return isinstance(arg, nodes.Const) and arg.value == key and _is_access_of(node.node, name)
    return isinstance(node, nodes.Getattr) and node.attr == key and _is_access_of(node.node, name)


def _is_access_of(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name
