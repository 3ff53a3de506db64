"""Chooses the chat templates that vLLM takes, and the form in which they get contents.

Source: vLLM ``renderers/hf.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import (
    DEFAULT,
    has_listed_template,
    processor_templates,
    tokenizer_templates,
)
from mmroute.engines.vllm.content_format import detect_content_format
from mmroute.model_directory import FieldRef, ModelFiles

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
