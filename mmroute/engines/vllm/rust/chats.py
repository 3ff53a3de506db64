"""Which renderer a model's chats have under vLLM's Rust frontend.

Source: vLLM ``rust/src/chat/src/renderer/selection.rs``,
``rust/src/chat/src/backend/hf.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mmroute.chat import Chat
from mmroute.chat.minijinja import MinijinjaTemplate
from mmroute.engines.profile import ChatSource
from mmroute.engines.vllm.chats import RefusedChat, harmony_refusal
from mmroute.engines.vllm.rust.parsers import choose_parsers
from mmroute.engines.vllm.rust.template_chat import RustChat
from mmroute.engines.vllm.rust.template_files import template_source
from mmroute.errors import ModelError

if TYPE_CHECKING:
    from mmroute.engines.settings import EngineSettings

_NATIVE: Final = frozenset({
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "inkling_mm_model", "kimi_k3",
})  # fmt: skip
_HARMONY: Final = "gpt_oss"


def load_chat(source: ChatSource) -> Chat:
    """The chat renderer of one model, whose family matters for its images alone.

    Raises:
        ModelError: `invalid_config_field`: the frontend does not load the model.
    """
    files, settings, images = source.files, source.settings, source.family.image
    text = template_source(files)
    model_type = _model_type(files.object("config.json"))
    if model_type in _NATIVE:
        return RefusedChat(
            f"vLLM's Rust frontend renders chats of {model_type} by code of its own, which is not "
            "covered; send the rendered `prompt`, or `prompt_token_ids`"
        )
    if model_type == _HARMONY:
        return _harmony(settings)
    template, why_none = None, "the model has no chat template; send a rendered `prompt` instead"
    if text is not None:
        try:
            template = MinijinjaTemplate.compile(*text)
        except ModelError as error:
            why_none = str(error)
    return RustChat(
        template=template,
        why_none=why_none,
        special_tokens=source.tokenizer.template_tokens,
        default_kwargs=settings.chat_template_kwargs,
        parsers=choose_parsers(settings, source.tokenizer),
        image_text="" if images is None else images.chat_text or "",
    )


def _model_type(config: Mapping[str, object]) -> object:
    own = config.get("model_type")
    nested = [config.get(name) for name in ("text_config", "llm_config", "thinker_config")]
    inner = next((each for each in nested if isinstance(each, Mapping)), {})
    return own if own is not None else _model_type(inner) if inner else None


def _harmony(settings: EngineSettings) -> Chat:
    if refusal := harmony_refusal(settings):
        return refusal
    from mmroute.engines.vllm.rust.harmony_chat import RustHarmonyChat  # an extra

    return RustHarmonyChat(str(settings.start_date), settings.chat_template_kwargs)
