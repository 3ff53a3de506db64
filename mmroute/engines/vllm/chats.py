"""The chat renderers by name: those of this package, and those of installed packages."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mmroute.chat import Chat, ParsedChat
from mmroute.chat.template_files import check_one_template
from mmroute.engine import ChatSource
from mmroute.engines.vllm.deepseek_chat import DEEPSEEK_CHATS
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.engines.vllm.inkling_chat import InklingChat, marks_of
from mmroute.engines.vllm.kimi_k3_chat import KimiK3Chat
from mmroute.engines.vllm.messages import VllmChat
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm.templates import chat_templates, keeps_template
from mmroute.errors import (
    InexactError,
    ModelError,
    Reason,
    SpecError,
    did_you_mean,
    install_command,
    needs_extra,
)
from mmroute.families.spec import FamilySpec
from mmroute.geometry import ModelContext
from mmroute.plugins import installed, load
from mmroute.requests.items import AudioLength, ImageSize, Items, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.tokenizers.formats.mistral import MistralChatEncoder

_TEMPLATES: Final = importlib.resources.files(__package__) / "chat_templates"
ENTRY_POINTS: Final = "mmroute.chats"
"""The entry point group for other packages' renderers: name in a spec -> ``module:function``.

The function gets a `ChatSource` and the spec's ``chat.values``, and gives a `Chat`.
"""


@dataclass(frozen=True, slots=True)
class RefusedChat(VllmChat):
    """Refuses every chat, because the engine renders chats in a way that is not covered."""

    why: str  # the message of the refusal

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"refused: {self.why}"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        raise InexactError(Reason.CHAT_RENDERER_UNSUPPORTED, self.why)


def load_chat(source: ChatSource[VllmSettings]) -> Chat:
    """The chat renderer of one model."""
    family = source.family
    name, values = family.chat.renderer, family.chat.values
    added = installed(ENTRY_POINTS, _OWN)
    if name not in _OWN and name not in added:
        known = sorted({*_OWN, *added})
        hint = did_you_mean(name, known)
        raise SpecError(f"{family.family}: chat is {name!r}, none of {', '.join(known)}{hint}")
    render = load(added[name]) if name in added else _OWN[name]
    try:
        inspect.signature(render).bind(source, **values)
    except TypeError as error:
        raise SpecError(f"{family.family}: chat.values of {name}: {error}") from error
    chat: Chat = render(source, **values)
    return chat


def _template(
    source: ChatSource[VllmSettings],
    *,
    processors: Sequence[str] = (),
    needs: Sequence[str] = (),
    processor_template: str | None = None,
    takes_tokenizers: bool = False,
    fallback_template: str | Mapping[str, str] | None = None,
) -> Chat:
    """Renders with the model's template, or with the engine's own for the family."""
    keeps = keeps_template(source.files, processors, needs)

    def with_processor(processor: bool) -> HfChat:
        return _of_files(
            source,
            fallback_template,
            processor=processor,
            of_processor=processor_template,
            takes_tokenizers=takes_tokenizers,
        )

    chat = with_processor(keeps is not False)
    if keeps is None and chat.texts != with_processor(False).texts:
        return RefusedChat(
            f"{source.files.name} names a processor_class of another family. Whether the engine "
            "can load it decides which chat template it takes, which is not covered. Take the "
            "field out, or leave one chat template; or send a rendered `prompt`"
        )
    return chat


def _tokenizer_template(
    source: ChatSource[VllmSettings],
    *,
    fallback_template: str | Mapping[str, str] | None = None,
) -> Chat:
    """Renders without a template of a processor: the model has none, or its class keeps none."""
    return _of_files(source, fallback_template, processor=False)


def _of_files(
    source: ChatSource[VllmSettings],
    fallback: str | Mapping[str, str] | None,
    *,
    processor: bool,
    of_processor: str | None = None,
    takes_tokenizers: bool = False,
) -> HfChat:
    # Source: vLLM ``transformers_utils/chat_templates/registry.py``.
    if isinstance(fallback, Mapping):
        model = source.model_string
        fallback = next(file for part, file in fallback.items() if part in model)
    template, tool_template = chat_templates(
        source.files,
        None if fallback is None else _packaged(fallback),
        processor=processor,
        of_processor=None if of_processor is None else _packaged(of_processor),
        takes_tokenizers=takes_tokenizers,
    )
    return HfChat(
        template=template,
        tool_template=tool_template,
        special_tokens=source.tokenizer.template_tokens,
        placeholders=_placeholders(source.family),
    )


def _packaged(name: str) -> str:
    return (_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def _refused(source: ChatSource[VllmSettings]) -> Chat:
    # Source: vLLM ``renderers/`` (deepseek_v32, deepseek_v4, inkling).
    return RefusedChat(
        f"the engine renders chats of the family {source.family.family} by Python code of its "
        "own, not by a template; send the rendered `prompt`, or `prompt_token_ids`"
    )


def _harmony(source: ChatSource[VllmSettings]) -> Chat:
    if refusal := harmony_refusal(source.settings):
        return refusal
    from mmroute.engines.vllm.harmony_chat import HarmonyChat  # an extra

    return HarmonyChat(str(source.settings.start_date))


def harmony_refusal(settings: VllmSettings) -> RefusedChat | None:
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
            f"the engine renders chats of this model by Harmony: {install_command('gpt-oss')}"
        )
    try:
        with needs_extra("gpt-oss", "openai_harmony", "Harmony, which renders these chats,"):
            from mmroute.engines.vllm import harmony
        harmony.encoding()
    except ModelError as error:
        return RefusedChat(str(error))
    return None


def _kimi_k3(source: ChatSource[VllmSettings]) -> Chat:
    files = source.files
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
        special_tokens=source.tokenizer.template_tokens,
        placeholders=_placeholders(source.family),
    )


def _placeholders(family: FamilySpec) -> Mapping[Modality, str]:
    return {
        modality: spec.chat_text
        for modality, spec in family.media.items()
        if spec.chat_text is not None
    }


def _mistral_text(source: ChatSource[VllmSettings]) -> Chat:
    from mmroute.engines.vllm.mistral_chat import MistralChat  # an extra, and slow to import

    return MistralChat(_encoder(source), as_server=True)


def _mistral(source: ChatSource[VllmSettings]) -> Chat:
    from mmroute.engines.vllm.mistral_chat import MistralChat

    tokenizer, geometries = source.tokenizer, source.geometries
    context = ModelContext(0, lambda text: tokenizer.encode(text, add_special_tokens=False))

    def tokens_of(size: ImageSize | AudioLength) -> list[int]:
        (replacement,) = geometries[size.modality].replacements([size], context)
        ids: list[int] = replacement.token_ids.tolist()
        return ids

    # Images were compared with `LLM.chat`, audio with the server.
    return MistralChat(
        _encoder(source).with_items(geometries, tokens_of),
        as_server=Modality.IMAGE not in geometries,
    )


def _encoder(source: ChatSource[VllmSettings]) -> MistralChatEncoder:
    encoder = source.tokenizer.chat_encoder
    if encoder is None:
        family = source.family
        raise SpecError(
            f"{family.family}: {family.chat.renderer} is for the tokenizer format mistral"
        )
    return encoder


def _inkling(source: ChatSource[VllmSettings]) -> Chat:
    try:
        marks = marks_of(source.tokenizer)
    except InexactError as inexact:
        return RefusedChat(str(inexact))
    return InklingChat(source.tokenizer, marks, _placeholders(source.family))


def _deepseek(source: ChatSource[VllmSettings]) -> Chat:
    return DEEPSEEK_CHATS[source.family.chat.renderer]


_OWN: Final[Mapping[str, Callable[..., Chat]]] = {
    **dict.fromkeys(DEEPSEEK_CHATS, _deepseek),
    "harmony": _harmony,
    "inkling": _inkling,
    "kimi_k3": _kimi_k3,
    "mistral": _mistral,
    "mistral_text": _mistral_text,
    "refused": _refused,
    "template": _template,
    "tokenizer_template": _tokenizer_template,
}
