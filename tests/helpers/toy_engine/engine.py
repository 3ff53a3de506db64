"""The engine: its parts in one frozen value. See `mmroute.engine.Engine`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from mmroute import engine as core
from mmroute.chat import Chat
from mmroute.errors import InexactError, ModelError, Reason
from mmroute.families.matching import check_generates, match_family
from mmroute.families.spec import FamilySpec
from mmroute.hashing.hashes import HashSettings
from mmroute.model.context_length import longest_context
from mmroute.model.tokenizer import load_tokenizer
from mmroute.model_directory import ModelFiles
from mmroute.release import Release
from mmroute.requests.items import Modality
from mmroute.requests.request import Request
from toy_engine.chat import load_chat
from toy_engine.hashes import ToyHashes, identify
from toy_engine.settings import ToySettings

_FAMILIES: Final = frozenset({"qwen2.5-vl"})
_NOT_READ: Final = (
    "videos", "audios", "continue_final_message", "chat_template_kwargs", "tools",
    "reasoning_effort", "documents", "mm_processor_kwargs", "media_io_kwargs",
    "truncate_prompt_tokens", "mm_hashes", "cache_salt", "lora", "api_fields",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToyEngine:
    release: Release
    limits: core.Limits
    naming: core.Naming
    settings: ToySettings
    dtype: ClassVar[str | None] = None
    load_tokenizer = staticmethod(load_tokenizer)
    load_chat = staticmethod(load_chat)

    def under(self, settings: core.EngineSettings) -> Self:
        return replace(self, settings=core.own_settings(self, settings, ToySettings))

    def match(self, files: ModelFiles) -> tuple[ModelFiles, FamilySpec]:
        check_generates(files)
        return files, match_family(files)

    def settle(self, family: FamilySpec, _files: ModelFiles, _model_string: str) -> FamilySpec:
        if family.family not in _FAMILIES:
            raise core.not_covered(family, self.release.label, "it was not checked on it")
        return family.for_engine(self.release.name, self.release.version)

    def context(self, files: ModelFiles, family: FamilySpec, positions: int) -> core.Context:
        return core.Context(longest_context(files, family, positions).default, None)

    def hashes_of(self, *_model: object, guessed: bool) -> ToyHashes:
        return ToyHashes(HashSettings(block_size=self.settings.page_size))

    def read_body(self, body: Mapping[str, Any]) -> Request:
        return Request(messages=body["messages"])

    def accept(self, request: Request, _chat: Chat) -> Request:
        if found := [name for name in _NOT_READ if getattr(request, name)]:
            raise InexactError(Reason.UNSUPPORTED_FIELD, f"the toy reads no {', '.join(found)}")
        return request

    def adds_special_tokens(self, _chat: Chat, request: Request, _items: bool) -> bool:
        return request.add_special_tokens

    def processor_kwargs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return given

    def media_io(self, _modality: Modality) -> Mapping[str, Any]:
        return {}

    def refused_media(self, _modality: Modality) -> str:
        return ""


_TOY: Final[core.Engine] = ToyEngine(
    Release("toy", "1.0", era="1.0", prompts="toy", proved=frozenset({"1.0"})),
    core.Limits(
        max_items=dict.fromkeys(Modality, 4),
        max_image_pixels=1 << 24,
        max_decoded_bytes=1 << 30,
        bytes_per_unit=dict.fromkeys(Modality, 3),
        max_audio_seconds=0,
        max_audio_bytes=0,
        min_encoder_cache=1 << 16,
        applies_exif_orientation=True,
    ),
    core.Naming(identify),
    ToySettings(),
)


def find_version(version: str) -> core.Engine:
    if version not in ("", _TOY.release.version):
        raise ModelError(Reason.UNKNOWN_BACKEND, f"toy {version!r} is not known: there is 1.0")
    return _TOY
