"""Chooses the chat renderer of a model under vLLM's Rust frontend.

Source: vLLM ``rust/src/chat/src/renderer/selection.rs``,
``rust/src/chat/src/backend/hf.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mmroute.chat import Chat
from mmroute.engine import ChatSource
from mmroute.engines.vllm.chats import RefusedChat, harmony_refusal
from mmroute.engines.vllm.inkling_chat import marks_of
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.deepseek_chat import DEEPSEEK_MODES, RustDeepSeekChat
from mmroute.engines.vllm_rust.inkling_chat import RustInklingChat
from mmroute.engines.vllm_rust.kimi_k3_chat import RustKimiK3Chat
from mmroute.engines.vllm_rust.parsers import Parsers, choose_parsers
from mmroute.engines.vllm_rust.template import RustTemplate
from mmroute.engines.vllm_rust.template_chat import RustChat
from mmroute.engines.vllm_rust.template_files import template_source
from mmroute.engines.vllm_rust.tokenizer import ordinary_encoder
from mmroute.errors import InexactError, ModelError

_MODES: Final = {"gpt_oss": "harmony", "inkling_mm_model": "inkling"}
"""Model type -> the renderer; that of other types has the name of the type, if there is one."""


def load_chat(source: ChatSource[VllmSettings], *, earlier: bool = False) -> Chat:
    """The chat renderer of one model, whose family matters for its images alone."""
    files, settings, images = source.files, source.settings, source.family.image
    parsers = choose_parsers(replace(settings, model=source.model_string), source.tokenizer)
    mode = settings.tokenizer_mode
    if mode == "auto":
        model_type = _model_type(files.object("config.json"))
        mode = _MODES.get(model_type, model_type) if isinstance(model_type, str) else "hf"
    if earlier and mode in DEEPSEEK_MODES:
        return RefusedChat(
            f"vLLM's Rust frontend renders these chats by code of its own, {mode}, which is not "
            "covered; send the rendered `prompt`, or `prompt_token_ids`"
        )
    if mode == "harmony":
        return _harmony(settings, earlier=earlier)
    if mode in DEEPSEEK_MODES:
        return RustDeepSeekChat(settings.chat_template_kwargs, parsers, mode)
    if mode == "inkling":
        return _inkling(source, parsers, earlier=earlier)
    if mode == "kimi_k3":
        ordinary = ordinary_encoder(files)
        return RustKimiK3Chat(settings.chat_template_kwargs, parsers, source.tokenizer, ordinary)
    text = template_source(files)
    template, why_none = None, "the model has no chat template; send a rendered `prompt` instead"
    if text is not None:
        try:
            template = RustTemplate.compile(*text, has_dates=not earlier)
        except ModelError as error:
            why_none = str(error)
    return RustChat(
        template=template,
        why_none=why_none,
        special_tokens=source.tokenizer.template_tokens,
        default_kwargs=settings.chat_template_kwargs,
        parsers=parsers,
        image_text="" if images is None else images.chat_text or "",
        earlier=earlier,
    )


def _inkling(source: ChatSource[VllmSettings], parsers: Parsers, *, earlier: bool) -> Chat:
    try:
        marks = marks_of(source.tokenizer, aliases=False)
    except InexactError as error:
        return RefusedChat(str(error))
    kwargs = source.settings.chat_template_kwargs
    return RustInklingChat(kwargs, parsers, source.tokenizer, marks, earlier)


def _model_type(config: Mapping[str, object]) -> object:
    own = config.get("model_type")
    nested = [config.get(name) for name in ("text_config", "llm_config", "thinker_config")]
    inner = next((each for each in nested if isinstance(each, Mapping)), {})
    return own if own is not None else _model_type(inner) if inner else None


def _harmony(settings: VllmSettings, *, earlier: bool) -> Chat:
    if refusal := harmony_refusal(settings):
        return refusal
    from mmroute.engines.vllm_rust.harmony_chat import RustHarmonyChat  # an extra

    return RustHarmonyChat(str(settings.start_date), settings.chat_template_kwargs, earlier)
