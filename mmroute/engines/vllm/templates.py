"""Which of a model's chat templates vLLM takes, and the form in which it gives it contents.

Source: vLLM ``renderers/hf.py``.
"""

from __future__ import annotations

from dataclasses import replace

from mmroute.chat.template import ChatTemplate
from mmroute.chat.template_files import DEFAULT, processor_templates, tokenizer_templates
from mmroute.engines.vllm.content_format import detect_content_format
from mmroute.model_directory import ModelFiles


def compile_template(source: str, origin: str) -> ChatTemplate:
    """A template that gets message contents as vLLM gives them.

    Raises:
        ModelError: `malformed_file` if it is not a jinja2 template.
    """
    return ChatTemplate.compile(source, origin, detect_content_format)


def chat_templates(
    files: ModelFiles, fallback: str | None = None, *, processor: bool = True
) -> tuple[ChatTemplate | None, ChatTemplate | None]:
    """The template of requests without tools, and of those with tools.

    The engine takes the processor's first, but only without tools; else the tokenizer's; else its
    own. A tokenizer with several has ``tool_use`` for tools, and ``default``; the others are never
    asked for. A processor with several has none for the engine, which fails on such requests.

    Args:
        files: the model's files.
        fallback: the engine's own template for the family.
        processor: whether the engine has a processor for it, which models of text have not.

    Raises:
        ModelError: as `processor_templates` and `tokenizer_templates`.
    """
    own = tokenizer_templates(files)
    if not own and fallback is not None:
        own[DEFAULT] = fallback, "the engine's own template"
    default = own.get(DEFAULT)
    templates = processor_templates(files) if processor else {}
    several = bool(templates.keys() - {DEFAULT})
    first = None if several else templates.get(DEFAULT, default)
    with_tools = own.get("tool_use", default)
    template = None if first is None else compile_template(*first)
    if with_tools is None:
        return template, None
    source, origin = with_tools
    if template is not None and template.source == source:
        return template, replace(template, origin=origin)
    return template, compile_template(source, origin)
