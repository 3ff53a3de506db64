"""Which renderer a model's chats have, by the name that its family spec gives."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from mmroute.chat import Chat
from mmroute.chat.template_files import chat_templates
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.engines.vllm.kimi_k3_chat import KimiK3Chat
from mmroute.engines.vllm.refused_chat import RefusedChat
from mmroute.errors import ModelError, Reason, SpecError, did_you_mean
from mmroute.geometry import ModelContext
from mmroute.items import AudioLength, ImageSize, Modality
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    from mmroute.model.media_rules import MediaRules
    from mmroute.model.spec import FamilySpec
    from mmroute.model_directory import ModelFiles

    _Media: TypeAlias = Mapping[Modality, MediaRules]
    _Load: TypeAlias = Callable[[ModelFiles, FamilySpec, Tokenizer, _Media], Chat]
    from mmroute.engines.settings import EngineSettings

__all__ = ["load_chat"]


def load_chat(
    files: ModelFiles,
    family: FamilySpec,
    tokenizer: Tokenizer,
    media: _Media,
    settings: EngineSettings,
) -> Chat:
    """The chat renderer of one model.

    Raises:
        ModelError: its chat template cannot be loaded.
        SpecError: there is no renderer of that name.
    """
    if family.chat == _HARMONY:
        return _harmony(settings)
    if family.chat not in _RENDERERS:
        names = sorted([*_RENDERERS, _HARMONY])
        known = ", ".join(names)
        hint = did_you_mean(family.chat, names)
        raise SpecError(f"{family.family}: chat is {family.chat!r}, none of {known}{hint}")
    return _RENDERERS[family.chat](files, family, tokenizer, media)


def _template(
    files: ModelFiles,
    family: FamilySpec,
    tokenizer: Tokenizer,
    _media: _Media,
    *,
    processor: bool = True,
) -> Chat:
    """A model whose tokenizer has no processor beside it does not read chat_template.json."""
    template, tool_template = chat_templates(files, family.fallback_template, processor=processor)
    return HfChat(
        template=template,
        tool_template=tool_template,
        special_tokens=tokenizer.template_tokens,
        placeholders=_placeholders(family),
    )


def _refused(_files: ModelFiles, family: FamilySpec, _tokenizer: Tokenizer, _media: _Media) -> Chat:
    # Source: vLLM 0.33.0 ``renderers/`` (deepseek_v32, deepseek_v4, inkling).
    return RefusedChat(
        f"the engine renders chats of the family {family.family} by Python code of its own, not "
        "by a template; send the rendered `prompt`, or `prompt_token_ids`",
    )


def _harmony(settings: EngineSettings) -> Chat:
    if not settings.start_date:
        return RefusedChat(
            "the engine writes its date into chats of this model. Start it with "
            "VLLM_SYSTEM_START_DATE=YYYY-MM-DD in its environment, and give that here too "
            '(--engine-args "VLLM_SYSTEM_START_DATE=YYYY-MM-DD"); or send `prompt_token_ids`',
        )
    try:
        importlib.metadata.version("oss-harmony")
    except importlib.metadata.PackageNotFoundError:
        return RefusedChat(
            "the engine renders chats of this model by Harmony: pip install 'mmroute[gpt-oss]'",
        )
    from mmroute.engines.vllm.harmony_chat import HarmonyChat

    return HarmonyChat(settings.start_date)


def _mistral_text(
    _files: ModelFiles, family: FamilySpec, tokenizer: Tokenizer, _media: _Media
) -> Chat:
    from mmroute.engines.vllm.mistral_chat import MistralChat

    if tokenizer.chat_encoder is None:
        raise SpecError(f"{family.family}: mistral_text is for the tokenizer format mistral")
    return MistralChat(tokenizer.chat_encoder, takes_kwargs=False)


def _kimi_k3(files: ModelFiles, family: FamilySpec, tokenizer: Tokenizer, _media: _Media) -> Chat:
    _, template = chat_templates(files)  # the tokenizer's, whether there are tools or not
    if template is None:
        raise ModelError(
            Reason.CHAT_TEMPLATE_MISSING,
            f"{files.name} has no chat template. Chats of the published checkpoint are rendered "
            "by its tokenizer's own code, which is not covered.",
        )
    return KimiK3Chat(
        template=template,
        special_tokens=tokenizer.template_tokens,
        placeholders=_placeholders(family),
    )


def _placeholders(family: FamilySpec) -> Mapping[Modality, str]:
    return {
        modality: spec.chat_text
        for modality, spec in family.media.items()
        if spec.chat_text is not None
    }


def _mistral(_files: ModelFiles, family: FamilySpec, tokenizer: Tokenizer, media: _Media) -> Chat:
    # mistral-common is an extra, and slow to import.
    from mmroute.engines.vllm.mistral_chat import MistralChat

    encoder = tokenizer.chat_encoder
    if encoder is None or not media:
        raise SpecError(f"{family.family}: a family in Mistral format needs a geometry")
    context = ModelContext(0, lambda text: tokenizer.encode(text, add_special_tokens=False))

    def tokens_of(size: ImageSize | AudioLength) -> list[int]:
        (replacement,) = media[size.modality].geometry.replacements([size], context)
        ids: list[int] = replacement.token_ids.tolist()
        return ids

    # Images were compared with `LLM.chat`, audio with the server.
    return MistralChat(encoder.with_items(media, tokens_of), takes_kwargs=Modality.IMAGE in media)


_HARMONY: Final = "harmony"
_RENDERERS: Final[Mapping[str, _Load]] = {
    "kimi_k3": _kimi_k3,
    "mistral": _mistral,
    "template": _template,
    "tokenizer_template": partial(_template, processor=False),
    "refused": _refused,
    "mistral_text": _mistral_text,
}
