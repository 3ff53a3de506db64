"""Chooses the chat templates that vLLM takes, and the form in which they get contents.

Source: vLLM ``renderers/hf.py``, ``_detect_content_format`` and below; vLLM ``renderers/hf.py``;
vLLM ``renderers/hf.py`` (`_try_get_processor_chat_template`) and
``transformers_utils/processor.py`` (`get_processor`), transformers ``processing_utils.py``
(`from_args_and_dict`) and ``models/auto/processing_auto.py`` (`AutoProcessor`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import nodes

from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import (
    DEFAULT,
    has_listed_template,
    processor_templates,
    tokenizer_templates,
)
from mmroute.engines.template_nodes import is_access
from mmroute.families.processors import named_class
from mmroute.model_directory import PARTS, FieldRef, ModelFiles

_GIVEN: Final = FieldRef("processor_config.json", ("chat_template",))
"""Also as null it is given to the constructor, in place of the template of the class."""


def compile_template(source: str, origin: str) -> ChatTemplate:
    """Compile a template, and choose the form in which vLLM gives it message contents."""
    return ChatTemplate.compile(source, origin, detect_content_format)


def chat_templates(
    files: ModelFiles,
    fallback: str | None = None,
    *,
    processor: bool = True,
    of_processor: str | None = None,
    takes_tokenizers: bool = False,
) -> tuple[ChatTemplate | None, ChatTemplate | None]:
    """The template of requests without tools, and of those with tools.

    For requests without tools the engine takes the processor's template first. It then takes the
    tokenizer's, and then its own. A tokenizer with several templates has ``tool_use`` for tools and
    ``default``; others are never used. The engine fails on requests to a processor with several.
    """
    own = tokenizer_templates(files)
    if not own and fallback is not None:
        own[DEFAULT] = fallback, "the engine's own template"
    default = own.get(DEFAULT)
    listed = processor and has_listed_template(files)
    templates = processor_templates(files) if processor and not listed else {}
    if takes_tokenizers and processor and not templates:  # a list, even of one, is never one text
        listed = listed or any(":chat_template." in origin for _, origin in own.values())
    if processor and not templates and of_processor and not files.has_null(_GIVEN):
        templates = {DEFAULT: (of_processor, "the template of the processor's class")}
    several = listed or bool(templates.keys() - {DEFAULT})
    first = None if several else templates.get(DEFAULT, default)
    with_tools = own.get("tool_use", default)
    template = None if first is None else compile_template(*first)
    if with_tools is None:
        return template, None
    source, origin = with_tools
    if template is not None and template.source == source:
        return template, replace(template, origin=origin)
    return template, compile_template(source, origin)


def keeps_template(
    files: ModelFiles, of_family: Collection[str] = (), needs: Iterable[str] = ()
) -> bool | None:
    """Whether the engine finds a processor that has the files' template; None if it may fail."""
    classes = _classes()
    of_type = classes["by_type"].get(files.object("config.json").get("model_type"))
    name, is_code = named_class(files)
    if name is None and not is_code:
        name = of_type
    if is_code and name not in classes["named"]:
        return True  # the model's own class, which was read with the family
    if name is not None and name in (of_type, *of_family):
        fields = (files.effective(FieldRef.parse(place)) for place in needs)
        return all(files.lookup(field)[0] for field in fields)
    is_known = name in classes["named"] or name in classes["own"]
    return None if is_known and any(map(files.has_part, PARTS)) else False


@cache
def _classes() -> dict[str, Any]:
    """Classes whose constructor takes a template, by `tools/generate_lists.py`."""
    file = resources.files("mmroute.engines.vllm") / "processor_classes.json"
    classes: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return classes


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


def _target_name(loop: nodes.For) -> str:
    if not isinstance(loop.target, nodes.Name):
        raise _UnpackingLoopError
    return loop.target.name
