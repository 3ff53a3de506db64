"""Which renderer a model's chats have, by the name that its family spec gives."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mmroute.chat import Chat, ParsedChat
from mmroute.chat.cache import ChatCache
from mmroute.chat.template_files import chat_templates, check_one_template
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.engines.vllm.kimi_k3_chat import KimiK3Chat
from mmroute.engines.vllm.messages import parse_chat
from mmroute.errors import InexactError, ModelError, Reason, SpecError, did_you_mean, needs_extra
from mmroute.geometry import ModelContext, TokenIds
from mmroute.requests.items import AudioLength, ImageSize, Items, Modality
from mmroute.requests.request import Request
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    from mmroute.engines.settings import EngineSettings
    from mmroute.families.spec import FamilySpec
    from mmroute.geometry import AnyGeometry
    from mmroute.model_directory import ModelFiles

_NAMES: Final = (
    "harmony", "kimi_k3", "mistral", "mistral_text", "refused", "template", "tokenizer_template",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedChat(Chat):
    """Refuses every chat: the engine renders them in a way that is not covered.

    Attributes:
        why: the message of the refusal.
    """

    why: str

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"refused: {self.why}"}

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        return parse_chat(request)

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        raise InexactError(Reason.CHAT_RENDERER_UNSUPPORTED, self.why)


def load_chat(
    files: ModelFiles,
    family: FamilySpec,
    tokenizer: Tokenizer,
    geometries: Mapping[Modality, AnyGeometry],
    settings: EngineSettings,
) -> Chat:
    """The chat renderer of one model.

    Raises:
        ModelError: its chat template cannot be loaded.
        SpecError: there is no renderer of that name.
    """
    match family.chat:
        case "template":
            return _by_template(files, family, tokenizer, processor=True)
        case "tokenizer_template":  # without a processor, it does not read chat_template.json
            return _by_template(files, family, tokenizer, processor=False)
        case "kimi_k3":
            return _kimi_k3(files, family, tokenizer)
        case "harmony":
            return _harmony(settings)
        case "mistral" | "mistral_text":
            return _mistral(family, tokenizer, geometries)
        case "refused":
            # Source: vLLM ``renderers/`` (deepseek_v32, deepseek_v4, inkling).
            return RefusedChat(
                f"the engine renders chats of the family {family.family} by Python code of its "
                "own, not by a template; send the rendered `prompt`, or `prompt_token_ids`"
            )
    hint = did_you_mean(family.chat, _NAMES)
    raise SpecError(f"{family.family}: chat is {family.chat!r}, none of {', '.join(_NAMES)}{hint}")


def _by_template(
    files: ModelFiles, family: FamilySpec, tokenizer: Tokenizer, *, processor: bool
) -> Chat:
    template, tool_template = chat_templates(files, family.fallback_template, processor=processor)
    return HfChat(
        template=template,
        tool_template=tool_template,
        special_tokens=tokenizer.template_tokens,
        placeholders=_placeholders(family),
    )


def _harmony(settings: EngineSettings) -> Chat:
    if refusal := harmony_refusal(settings):
        return refusal
    from mmroute.engines.vllm.harmony_chat import HarmonyChat  # an extra

    return HarmonyChat(str(settings.start_date))


def harmony_refusal(settings: EngineSettings) -> RefusedChat | None:
    """Refuses chats of gpt-oss where they cannot be rendered; None where they can."""
    if not settings.start_date:
        return RefusedChat(
            "the engine writes its date into chats of this model. Start it with "
            "VLLM_SYSTEM_START_DATE=YYYY-MM-DD in its environment, and give that here too "
            '(--engine-args "VLLM_SYSTEM_START_DATE=YYYY-MM-DD"); or send `prompt_token_ids`'
        )
    try:
        importlib.metadata.version("oss-harmony")
    except importlib.metadata.PackageNotFoundError:
        return RefusedChat(
            "the engine renders chats of this model by Harmony: pip install 'mmroute[gpt-oss]'"
        )
    try:
        with needs_extra("gpt-oss", "openai_harmony", "Harmony, which renders these chats,"):
            from mmroute.engines.vllm import harmony
        harmony.encoding()
    except ModelError as error:
        return RefusedChat(str(error))
    return None


def _kimi_k3(files: ModelFiles, family: FamilySpec, tokenizer: Tokenizer) -> Chat:
    check_one_template(files)
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


def _mistral(
    family: FamilySpec, tokenizer: Tokenizer, geometries: Mapping[Modality, AnyGeometry]
) -> Chat:
    # mistral-common is an extra, and slow to import.
    from mmroute.engines.vllm.mistral_chat import MistralChat

    encoder = tokenizer.chat_encoder
    if encoder is None:
        raise SpecError(f"{family.family}: {family.chat} is for the tokenizer format mistral")
    if family.chat == "mistral_text":
        return MistralChat(encoder, takes_kwargs=False)
    context = ModelContext(0, lambda text: tokenizer.encode(text, add_special_tokens=False))

    def tokens_of(size: ImageSize | AudioLength) -> list[int]:
        (replacement,) = geometries[size.modality].replacements([size], context)
        ids: list[int] = replacement.token_ids.tolist()
        return ids

    # Images were compared with `LLM.chat`, audio with the server.
    return MistralChat(
        encoder.with_items(geometries, tokens_of), takes_kwargs=Modality.IMAGE in geometries
    )
