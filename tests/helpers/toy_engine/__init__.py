"""An engine from another package, which imports no other engine.

It names images by their uuids in capitals, joins the texts of a chat, and hashes blocks by SHA-1.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mmroute.chat import Chat, MediaPart, ParsedChat
from mmroute.engine import (
    PYTHON,
    ChatSource,
    Context,
    Engine,
    EngineSettings,
    Limits,
    Naming,
    Release,
    own_settings,
)
from mmroute.errors import ModelError, Reason
from mmroute.families.matching import match_family
from mmroute.hashing import PageHashes
from mmroute.hashing.hashes import HashedPrompt, HashSettings, RefusedHashes
from mmroute.model.context_length import longest_context
from mmroute.model.tokenizer import load_tokenizer
from mmroute.requests.items import Identity, IdentitySource, Item, Modality

if TYPE_CHECKING:
    from mmroute.families.spec import FamilySpec
    from mmroute.hashing.hashes import Hashes
    from mmroute.model_directory import JsonValue, ModelFiles
    from mmroute.requests.items import Items
    from mmroute.requests.request import Request
    from mmroute.reuse.fast_paths import FastPaths
    from mmroute.tokenizers import Tokenizer

_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ToySettings(EngineSettings):
    """The options of ``toyserve``."""

    engine: ClassVar[str] = "toy"
    frontend: ClassVar[str] = PYTHON
    loras: ClassVar[Mapping[str, str]] = {}
    block: int = 4
    model_string: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    without_effect: tuple[str, ...] = ()

    def prompt_settings(self) -> Self:
        return replace(self, block=4)

    @classmethod
    def is_started_by(cls, arguments: str) -> bool:
        return shlex.split(arguments)[:1] == ["toyserve"]

    @classmethod
    def read(cls, arguments: str, _config: str | None) -> Self:
        match shlex.split(arguments):
            case [] | ["toyserve"]:
                return cls()
            case ["toyserve", "--block", size]:
                return cls(int(size))
        raise ModelError(Reason.INVALID_ENGINE_SETTING, f"toyserve does not know {arguments}")


@dataclass(frozen=True, slots=True)
class ToyHashes(RefusedHashes):
    """Hashes of blocks, in the form of pages."""

    def announced(  # type: ignore[override]  # which is refused there
        self, prompt: HashedPrompt, _algorithm: str | None, size: int | None, _seed: str | None
    ) -> PageHashes:
        size = self.settings.size(size)
        ids, names = prompt.token_ids, [i and i.value for i in prompt.identities]
        ends = range(size, len(ids) + 1, size)
        data = (ids[:end].tobytes() + repr(names).encode() for end in ends)
        return PageHashes(tuple(hashlib.sha1(each).digest() for each in data), size)  # noqa: S324


@dataclass(frozen=True, slots=True)
class ToyChat(Chat):
    """Each text behind its role; each image is the family's placeholder."""

    image: str

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "toy"}

    def read(self, request: Request, cache: object = None) -> ParsedChat:
        messages = [dict(message) for message in request.messages or ()]
        images = [
            MediaPart(Modality.IMAGE, number, None, part.get("uuid"), {}, part)
            for message in messages
            for number, part in enumerate(message["content"], 1)
            if part["type"] == "image"
        ]
        return ParsedChat(messages, [], {Modality.IMAGE: images} if images else {})

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        return "".join(
            self.image if part["type"] == "image" else part["text"]
            for message in chat.messages
            for part in message["content"]
        )


@dataclass(frozen=True, slots=True)
class ToyEngine:
    """See `mmroute.engine.Engine`."""

    release: Release
    limits: Limits
    naming: Naming
    settings: ToySettings

    def under(self, settings: EngineSettings) -> Engine:
        return replace(self, settings=own_settings(self, settings, ToySettings))

    def match(self, files: ModelFiles) -> tuple[ModelFiles, FamilySpec]:
        return files, match_family(files)

    def settle(self, family: FamilySpec, _files: ModelFiles, _model_string: str) -> FamilySpec:
        return family

    def context(self, files: ModelFiles, family: FamilySpec, positions: int) -> Context:
        return Context(longest_context(files, family, positions).default, None)

    def hashes_of(
        self,
        _family: FamilySpec,
        _files: Callable[[], ModelFiles],
        model_string: str,
        *,
        guessed: bool,
    ) -> Hashes:
        known = HashSettings(
            block_size=self.settings.block, model_id=model_string, model_id_guessed=guessed
        )
        return ToyHashes(known, "the toy has no other hashes")

    def load_tokenizer(
        self,
        files: ModelFiles,
        family: FamilySpec,
        fast_paths: FastPaths,
        note: Callable[[str, JsonValue, str], None],
    ) -> Tokenizer:
        return load_tokenizer(files, family, fast_paths, note)

    def load_chat(self, source: ChatSource[ToySettings]) -> Chat:
        image = source.family.image
        return ToyChat("" if image is None else image.chat_text or "")

    def accept(self, request: Request, _chat: Chat) -> Request:
        return request

    def adds_special_tokens(self, _tokenizer: Tokenizer, _request: Request, _items: bool) -> bool:
        return False

    def processor_kwargs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return given

    def media_io(self, _modality: Modality) -> Mapping[str, Any]:
        return {}

    def refused_media(self, _modality: Modality) -> str:
        return ""

    @property
    def dtype(self) -> str | None:
        return None


def _identify(item: Item, /, **_: Any) -> Identity | None:
    uuid = item.size.uuid
    return None if uuid is None else Identity(uuid.upper(), IdentitySource.UUID)


_TOY: Final = ToyEngine(
    Release("toy", "1.0", "1.0", "toy", proved=frozenset({"1.0"})),
    Limits(
        max_items=2,
        max_image_pixels=_NO_LIMIT,
        max_decoded_bytes=_NO_LIMIT,
        bytes_per_unit=dict.fromkeys(Modality, 0),
        max_audio_seconds=_NO_LIMIT,
        max_audio_bytes=_NO_LIMIT,
        min_encoder_cache=_NO_LIMIT,
        applies_exif_orientation=True,
    ),
    Naming(_identify),
    ToySettings(),
)


def find_version(version: str) -> Engine:
    """The only version."""
    if version in ("", _TOY.release.version):
        return _TOY
    raise ModelError(Reason.UNKNOWN_BACKEND, f"there is no toy {version}")
