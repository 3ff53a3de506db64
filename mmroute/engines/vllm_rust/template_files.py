"""Finds the chat template among a model's files, and its form, as vLLM's Rust frontend does.

Source: vLLM ``rust/src/text/src/backend/hf/model_files.rs`` (`discover_chat_template_in_dir`),
``rust/src/chat/src/renderer/hf/template.rs`` (`load_chat_template`), ``mod.rs`` (`load`) and
``format.rs``.
"""

from __future__ import annotations

from typing import Final

from jinja2 import nodes

from mmroute.engines.template_nodes import is_access
from mmroute.errors import ModelError, Reason, json_type
from mmroute.model_directory import JsonValue, ModelFiles


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


WHITESPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What Rust trims: Unicode's White_Space. Python's ``strip`` also takes U+001C to U+001F."""
_FIELD: Final = "chat_template"
_CONFIG: Final = "tokenizer_config.json"


def template_source(files: ModelFiles) -> tuple[str, str] | None:
    """The text of the template, and where it stands; None if the model has none."""
    configured = files.object(_CONFIG).get(_FIELD)
    if not isinstance(configured, str | None):
        raise _not_one(files, f"{_CONFIG}:{_FIELD}", configured)
    own = _of_a_file(files)
    if own is not None and own[0].strip(WHITESPACE):
        return own
    return None if configured is None else (configured, f"{_CONFIG}:{_FIELD}")


def as_read(text: str) -> str:
    """The text of a template's file as the frontend takes it."""
    return text.strip(WHITESPACE).replace("\\n", "\n")


def _of_a_file(files: ModelFiles) -> tuple[str, str] | None:
    if files.has("chat_template.json"):
        value = files.json("chat_template.json")
        found = value.get(_FIELD) if isinstance(value, dict) else value
        if not isinstance(found, str):
            raise _not_one(files, "chat_template.json", found)
        return found, "chat_template.json"
    named = [name for name in files.names() if name.endswith(".jinja") and "/" not in name]
    if "chat_template.jinja" in named:
        named = ["chat_template.jinja"]
    if len(named) > 1:
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.name} has several templates, of which the frontend takes any: "
            f"{', '.join(named)}. Keep one.",
        )
    return (as_read(files.text(named[0])), named[0]) if named else None


def _not_one(files: ModelFiles, where: str, value: JsonValue) -> ModelError:
    return ModelError(
        Reason.INVALID_CONFIG_FIELD,
        f"{files.path(where.partition(':')[0])}: vLLM's Rust frontend does not load a model whose "
        f"{_FIELD} is no text, found {json_type(value)}. Give it one template.",
    )
