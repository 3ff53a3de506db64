"""SGLang in one version, and the newest one by the defaults of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from mmroute.engine import (
    ChatSource,
    Context,
    EngineSettings,
    Limits,
    Naming,
    not_covered,
    own_settings,
)
from mmroute.engines.sglang.bodies import EXTRA_KEY, parse_body
from mmroute.engines.sglang.encoding import Kept, PromptEncoder
from mmroute.engines.sglang.hashes import SglangHashes
from mmroute.engines.sglang.identity import (
    hashes_files,
    item_identity,
    processor_fingerprint,
    request_identities,
)
from mmroute.engines.sglang.message_schema import check_values
from mmroute.engines.sglang.served import as_read, is_multimodal, is_native
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.engines.sglang.tokenizer import load_tokenizer
from mmroute.errors import ModelError, Reason, invalid, quoted
from mmroute.hashing.hashes import HashSettings, RefusedHashes
from mmroute.release import Release
from mmroute.requests.checks import check_text
from mmroute.requests.items import IdentityForm, Modality
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.chat import Chat
    from mmroute.engines.sglang.chat import SglangChat
    from mmroute.engines.sglang.conversation import ConversationChat
    from mmroute.families.spec import FamilySpec
    from mmroute.hashing.hashes import Hashes
    from mmroute.model_directory import ModelFiles

_DEFAULTS: Final = SglangSettings()
_HASHES: Final = SglangHashes()
_ALL_KEPT: Final = Kept()
_NO_LIMIT: Final = 1 << 62
_NO_MEDIA: Final[Mapping[str, Any]] = {"image": None, "video": None, "audio": None}
RESERVED: Final = 6
"""Tokens of a context that no prompt may take, by `max_req_input_len`."""
_NOTHING: Final[Mapping[str, Any]] = {}
# Those of a request whose values nothing else checks.
_CHECKED: Final = (
    "tools", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "mm_hashes",
    "api_fields",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SglangEngine:
    """See `mmroute.engine.Engine`. Another version is a `replace` of its neighbour."""

    release: Release
    limits: Limits
    naming: Naming
    transformers: str  # the version of transformers that it requires
    hashes: SglangHashes = _HASHES  # how it hashes pages
    # A request with what the newest version must get, to do what this one does.
    adapted: Callable[[Request], Request] = lambda request: request
    kept: Kept = _ALL_KEPT
    # Raises `ModelError` for files that this version reads in a way that is not covered.
    check_files: Callable[[ModelFiles], None] = lambda _files: None
    has_dynamo_events: bool = True  # whether it has Dynamo's format of events
    settings: SglangSettings = _DEFAULTS
    load_tokenizer = staticmethod(load_tokenizer)

    def under(self, settings: EngineSettings) -> SglangEngine:
        own = own_settings(self, settings, SglangSettings).read_by(self.release.version)
        if own.dynamo_events and not self.has_dynamo_events:
            raise ModelError(
                Reason.UNSUPPORTED_ENGINE_SETTING,
                f"--kv-events-config: SGLang {self.release.version} has no format dynamo",
            )
        limits = replace(
            _LIMITS,
            max_items={**_LIMITS.max_items, **own.max_items},
            media_domains=own.media_domains,
        )
        return replace(self, settings=own, limits=limits)

    def match(self, files: ModelFiles) -> tuple[ModelFiles, FamilySpec]:
        from mmroute.families.matching import check_generates, match_family  # pydantic

        files = as_read(files)
        family = match_family(files)
        check_generates(files)
        return files, family

    def settle(self, family: FamilySpec, files: ModelFiles, _model_string: str) -> FamilySpec:
        """See `Models`. Families that were not checked on this engine are refused."""
        self.check_files(files)
        family = family.for_engine(self.release.name, self.release.version)
        checked = self.release.proved.intersection(family.checked.get(self.release.name, ()))
        if not checked or family.refused:
            why = family.refused or "it was not checked on it"
            raise not_covered(family, self.release.label, why)
        image = family.image
        if image is None or not is_multimodal(family, files, self.settings):
            return family.model_copy(update=_NO_MEDIA)
        if hashes_files(files, self.settings):
            image = image.model_copy(update={"identity": IdentityForm.UNCONVERTED_FILE})
        return family.model_copy(update={**_NO_MEDIA, "image": image})

    def context(self, files: ModelFiles, family: FamilySpec, positions: int) -> Context:
        from mmroute.model.context_length import longest_context

        configured = self.settings.context_length
        own = max(longest_context(files, family, positions).default - RESERVED, 1)
        return Context(own, None if configured is None else max(configured - RESERVED, 1))

    def hashes_of(
        self,
        family: FamilySpec,
        files: Callable[[], ModelFiles],
        _model_string: str,
        *,
        guessed: bool,  # its identities cover no model string
    ) -> Hashes:
        settings, found = self.settings, files()
        by_file = family.image and family.image.identity is IdentityForm.UNCONVERTED_FILE
        # A GPU may take another backend for a hybrid model, and with it pages of another size.
        chosen = family.hybrid and settings.attention_backend is None
        ignored = family.names_ignored_in
        known = HashSettings(
            block_size=None if chosen else settings.page_size,
            chosen_by_engine=chosen,
            model_id=processor_fingerprint(found, settings, self.transformers) if by_file else "",
            names_ignored_in=ignored | {self.release.name} if by_file else ignored,
            keeps_blocks=settings.radix_cache,
        )
        if family.media and not is_native(found, self.release.version):
            why = "SGLang serves this model by its Transformers backend, which keeps no pages"
            return RefusedHashes(replace(known, keeps_blocks=False), why)
        return replace(
            self.hashes,
            settings=known,
            bigrams=settings.bigrams,
            dynamo=settings.dynamo_events,
            loras=settings.loras,
        )

    def load_chat(self, source: ChatSource[SglangSettings]) -> Chat:
        from mmroute.engines.sglang.chat import load_chat  # jinja2

        return load_chat(source, self.release.version, self.kept)

    def read_body(self, body: Mapping[str, Any]) -> Request:
        return parse_body(body)

    def accept(self, request: Request, _chat: Chat) -> Request:
        """See `Chats`. SGLang refuses a body with half of a surrogate pair in any of its texts."""
        salt = request.cache_salt
        if salt is not None:
            if not isinstance(salt, str):
                raise invalid(f"cache_salt must be a text, found {quoted(salt)}")
            check_text("cache_salt", salt)
        for name in _CHECKED:
            if value := getattr(request, name):
                check_values(name, value)
        return self.adapted(request)

    def adds_special_tokens(self, chat: Chat, request: Request, with_items: bool) -> bool:
        encoder: PromptEncoder = cast("SglangChat | ConversationChat", chat).encoder
        return not encoder.is_begun(str(request.prompt), with_items=with_items)

    def processor_kwargs(self, _given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Processors`. Those of a request change nothing."""
        return _NOTHING

    def media_io(self, _modality: Modality) -> Mapping[str, Any]:
        return _NOTHING

    def refused_media(self, _modality: Modality) -> str:
        return ""

    @property
    def dtype(self) -> str | None:
        return None


def _why_unhashed(request: Request) -> str:
    if EXTRA_KEY not in request.api_fields:
        return ""
    return (
        "extra_key separates the prefix cache of SGLang, and no event shows it: the hashes of its "
        "pages do not tell what is held for this key"
    )


_LIMITS: Final = Limits(
    max_items=dict.fromkeys(Modality, _NO_LIMIT),
    max_image_pixels=178_956_970,  # Pillow's own
    max_decoded_bytes=_NO_LIMIT,
    bytes_per_unit=dict.fromkeys(Modality, 0),
    max_audio_seconds=_NO_LIMIT,
    max_audio_bytes=_NO_LIMIT,
    min_encoder_cache=_NO_LIMIT,
    applies_exif_orientation=False,
)
SGLANG: Final = SglangEngine(
    Release("sglang", "0.5.23", "0.5.23", "sglang", proved=frozenset({"0.5.23"})),
    _LIMITS,
    # It keeps no items by their uuids.
    Naming(item_identity, of_request=request_identities, why_unhashed=_why_unhashed),
    transformers="5.19.0",
)
