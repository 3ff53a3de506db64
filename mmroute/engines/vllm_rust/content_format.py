"""Whether a chat template loops over the parts of a message's content.

vLLM's Rust frontend sees less than its Python frontend: no parameters of macros, no namespaces. A
loop over a name ``content`` counts as such a loop anywhere.

Source: vLLM ``rust/src/chat/src/renderer/hf/format.rs``.
"""

from __future__ import annotations

from jinja2 import nodes

from mmroute.engines.vllm.templates import is_access


def detect_content_format(template: nodes.Template) -> str:
    """``openai`` if the template loops over message contents, else ``string``."""
    loops = [loop for loop in template.find_all(nodes.For) if isinstance(loop.target, nodes.Name)]
    names = _aliases(template)
    messages = {
        loop.target.name  # type: ignore[attr-defined]  # a Name, by the line above
        for loop in loops
        if any(is_access(loop.iter, name) for name in names)
    }
    for loop in loops:
        by_name = isinstance(loop.iter, nodes.Name) and loop.iter.name == "content"
        if by_name or any(is_access(loop.iter, name, "content") for name in messages):
            return "openai"
    return "string"


def _aliases(template: nodes.Template) -> list[str]:
    """``messages`` and every variable that it is assigned to."""
    found = ["messages"]
    for known in found:  # grows while it is walked
        for assign in template.find_all(nodes.Assign):
            target = assign.target
            if isinstance(target, nodes.Name) and is_access(assign.node, known):
                found += [target.name] * (target.name not in found)
    return found
