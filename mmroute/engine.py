"""What the core knows of an engine: its parts, and where engines are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

from mmroute.chat import Chat
from mmroute.errors import ModelError, Reason, nearest
from mmroute.geometry import Geometry, Overrides
from mmroute.geometry.frame_sampling import Frames
from mmroute.hashing.hashes import Hashes
from mmroute.release import Release
from mmroute.requests.items import Identity, IdentityForm, Item, Items, Modality
from mmroute.requests.request import Request
from mmroute.reuse.fast_paths import FastPaths

if TYPE_CHECKING:
    from mmroute.families.spec import FamilySpec
    from mmroute.model_directory import JsonValue, ModelFiles
    from mmroute.net.transport import Transport
    from mmroute.plugins import Registry
    from mmroute.tokenizers import Tokenizer

SettingsT = TypeVar("SettingsT")
DEFAULT: Final = "vllm"
"""The engine that is matched where nothing names one."""


class AdoptedLine(NamedTuple):
    """The command line that a server reports, that with the given one, and what neither tells."""

    reported: str
    line: str
    assumed: Sequence[str]


@runtime_checkable
class EngineSettings(Protocol):
    """The settings with which an engine was started: a frozen class of the engine's own."""

    engine: ClassVar[str]
    """The name by which `find_engine` finds what was started."""
    strict_json: ClassVar[bool] = False
    """Whether the API server refuses bodies that most readers of JSON take."""

    @property
    def loras(self) -> Mapping[str, str]:
        """The path of each adapter, by the name that a request may give as its model."""

    @property
    def model_string(self) -> str | None:
        """The engine's model string; None where the settings do not tell it."""

    @property
    def served_names(self) -> tuple[str, ...]:
        """The served names, by which requests ask for the model."""

    @property
    def revision(self) -> str | None:
        """The branch, tag or commit on the hub."""

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The options of the command line on which nothing here depends."""

    def prompt_settings(self) -> Self:
        """Only the settings that can change token IDs. Workers that agree in them share prompts."""

    @classmethod
    def is_started_by(cls, arguments: str) -> bool:
        """Whether a command line says that it starts this engine."""

    @classmethod
    def read(cls, arguments: str, config: str | None) -> EngineSettings:
        """See `from_args`, for a line of this engine."""

    @classmethod
    def deciding(cls) -> frozenset[str]:
        """The options and variables that change anything here, of which others may be misspelt."""
        return frozenset()

    @classmethod
    def adopted(
        cls, _transport: Transport, _frontend: str, _given: str, _config: str | None
    ) -> AdoptedLine | None:
        """What a running server reports, below a given line; None if such servers report none."""
        return None

    @staticmethod
    def from_args(
        arguments: str, *, config: str | os.PathLike[str] | None = None
    ) -> EngineSettings:
        """The settings of an engine's command line.

        Args:
            arguments: the line or any part of it, quoted as for a shell: ``[NAME=VALUE ...]
                [vllm serve] [MODEL] [--option ...]``, or ``sglang serve --option ...``. A part
                that does not say what it starts is one of vLLM's.
            config: a file as for ``vllm serve --config``; the command line wins.

        Raises:
            ModelError: `invalid_engine_setting`, `unsupported_engine_setting`; `missing_file`,
                `malformed_file`.
        """
        names = engine_names() if arguments else ()  # commands come here without a line, too
        classes = (type(find_engine(name).settings) for name in names)
        started = (own for own in classes if own.is_started_by(arguments))
        chosen = next(started, type(find_engine(DEFAULT).settings))
        return chosen.read(arguments, None if config is None else os.fspath(config))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine takes, under its settings."""

    max_items: Mapping[Modality, int]  # the most items of each modality in one prompt
    max_image_pixels: int  # the most pixels of one image or frame
    max_decoded_bytes: int  # the most bytes of a request's items, decoded
    # The decoded bytes of a pixel, or of a sample of audio, by modality.
    bytes_per_unit: Mapping[Modality, int]
    max_audio_seconds: int  # the most seconds of one recording
    max_audio_bytes: int  # the most bytes of one recording, with all channels decoded
    min_encoder_cache: int  # the features of one item that its encoder cache holds for every model
    # Whether an image is counted as it is shown, not as it is stored.
    applies_exif_orientation: bool
    takes_metadata: bool = False  # whether it takes metadata of items in place of pixels
    plans_largest: bool = True  # whether the encoder cache holds the largest item of each modality
    media_domains: frozenset[str] = frozenset()  # the hosts of links that it follows; empty for all
    # Where it reads files of `file:` links; empty if it refuses such links, None if it is not known
    # what it does.
    local_media_path: str | None = None
    processor_cache_off: bool = False  # whether it keeps no processed items
    # Why items in contents that become one text are refused; empty if they are not.
    string_items: str = ""


class Identify(Protocol):
    """The function by which an engine computes the identity of an item."""

    def __call__(
        self,
        item: Item,
        /,
        *,
        overrides: Overrides,
        frames: Frames | None,
        model_id: str,
        form: IdentityForm,
        flags: Mapping[str, bool] = ...,
        algorithm: str = ...,
    ) -> Identity | None:
        """The identity of an item; None if it cannot be computed. Raises `InexactError`.

        `frames` are those of a video's file that are decoded, `form` is the data that the engine
        hashes for this model, and `flags` are further values that it hashes with the item.
        """


@dataclass(frozen=True, slots=True)
class Naming:
    """How an engine tells items and adapters apart."""

    identify: Identify  # computes the identity of an item
    # Raises `InexactError` for uuids that the engine refuses or mixes up, of items with their
    # identities, of all items, and of the form by modality.
    check: Callable[
        [Sequence[tuple[Item, Identity]], Items, Mapping[Modality, IdentityForm]], None
    ] = lambda _named, _items, _forms: None
    # The identities that the request decides, of all its items, with the form of each and the
    # string that identities cover; None if each item has its own.
    of_request: Callable[
        [Request, Items, Sequence[IdentityForm], str], tuple[Identity | None, ...] | None
    ] = lambda _request, _items, _forms, _model_id: None
    # The path of each adapter, by the name that a request may give as its model.
    loras: Mapping[str, str] = field(default_factory=dict)
    lora_first: bool = False  # whether identities of requests to an adapter begin with its name
    # Why a request has no block hashes, whatever its prompt; empty if it has.
    why_unhashed: Callable[[Request], str] = lambda _request: ""


class Context(NamedTuple):
    """The numbers of tokens of the longest context."""

    own: int
    configured: int | None  # of the engine's settings; None if they leave the model's own


class Models(Protocol):
    """What an engine makes of a model's files, before any request. All raise `ModelError`."""

    def match(self, files: ModelFiles) -> tuple[ModelFiles, FamilySpec]:
        """The files as the engine reads them, and the spec of their family."""

    def settle(self, family: FamilySpec, files: ModelFiles, model_string: str) -> FamilySpec:
        """The family as this engine takes it. Refuses what is not covered, also of settings."""

    def context(self, files: ModelFiles, family: FamilySpec, positions: int) -> Context:
        """The longest context for a model with this ``max_position_embeddings``."""

    def hashes_of(
        self,
        family: FamilySpec,
        files: Callable[[], ModelFiles],
        model_string: str,
        *,
        guessed: bool,
    ) -> Hashes:
        """How the prompts of a model are hashed; `guessed` is whether the model string is."""


class ChatSource(NamedTuple, Generic[SettingsT]):
    """The parts of a model from which its chat renderer is made, under an engine's settings."""

    files: ModelFiles
    family: FamilySpec
    tokenizer: Tokenizer
    geometries: Mapping[Modality, Geometry]
    model_string: str
    settings: SettingsT


class Chats(Protocol):
    """What an engine makes of requests, up to the text or the token IDs of their prompt."""

    def load_tokenizer(
        self,
        files: ModelFiles,
        family: FamilySpec,
        fast_paths: FastPaths,
        note: Callable[[str, JsonValue, str], None],
    ) -> Tokenizer:
        """The model's tokenizer; `note` is told how it is read, and by what rule."""

    def load_chat(self, source: ChatSource[Any]) -> Chat:
        """The model's chat renderer."""

    def read_body(self, body: Mapping[str, Any]) -> Request:
        """The request of a client's body for the engine's chats and completions."""

    def accept(self, request: Request, chat: Chat) -> Request:
        """A request with the settings' defaults. Raises `InexactError` where it is refused."""

    def adds_special_tokens(self, chat: Chat, request: Request, with_items: bool) -> bool:
        """Whether special tokens are added to the text of a prompt."""


class Processors(Protocol):
    """What the settings change of the counts of items."""

    def processor_kwargs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``mm_processor_kwargs`` of a request as they reach the processor."""

    def media_io(self, modality: Modality) -> Mapping[str, Any]:
        """The arguments of a modality's reader where a request does not set them."""

    def refused_media(self, modality: Modality) -> str:
        """The options that change items in a way that is not covered; empty if there are none."""

    @property
    def dtype(self) -> str | None:
        """The type that the engine computes with; None for the model's own."""


class Engine(Models, Chats, Processors, Protocol):
    """An engine in one range of versions, under its settings: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def release(self) -> Release:
        """The engine's name and version."""

    @property
    def limits(self) -> Limits:
        """What it takes."""

    @property
    def settings(self) -> EngineSettings:
        """The settings with which it was started."""

    @property
    def naming(self) -> Naming:
        """How it tells items apart."""

    def under(self, settings: EngineSettings) -> Engine:
        """The same version of the engine, started with these settings."""


EngineT = TypeVar("EngineT", bound=Engine)


@cache
def _engines() -> Registry:
    """Functions of a version that return it, or the newest one for an empty text."""
    from mmroute.plugins import Registry  # takes a tenth of what importing mmroute does

    return Registry("engine", "mmroute.engines", {})


def engine_names() -> list[str]:
    """The names of engines that are installed."""
    return sorted(_engines().entries)


def find_engine(name: str) -> Engine:
    """The engine of that name, or a version of it such as ``vllm==0.28``."""
    engine, equals, version = name.partition("==")
    if engine in _engines().entries and bool(equals) == bool(version):
        found: Engine = _engines().find(engine)(version)
        return found
    known = engine_names()
    near = nearest(name, known)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"There is no backend profile {name!r}; there are: {', '.join(known)}.{hint}",
    )


def engine_under(
    backend: str, settings: EngineSettings | None, accept_version: str | None = None
) -> Engine:
    """The engine of a name under settings, which say what was started where the name does not.

    `accept_version` is the version that counts as compared, if it is the engine's.
    """
    usual = find_engine(DEFAULT).settings
    if backend == DEFAULT and settings is not None and not isinstance(settings, type(usual)):
        backend = settings.engine
    engine = find_engine(backend)
    engine = engine.under(settings or engine.settings)
    if engine.release.unproved and engine.release.version == accept_version:
        engine = replace(engine, release=replace(engine.release, unproved=False))
    return engine


def not_covered(family: FamilySpec, engine: str, why: str) -> ModelError:
    """The refusal of a family by an engine."""
    return ModelError(
        Reason.UNKNOWN_FAMILY, f"The family {family.family} is not covered for {engine}: {why}."
    )


def own_settings(engine: Engine, settings: EngineSettings, own: type[SettingsT]) -> SettingsT:
    """The settings, if they are of the engine's own class; its defaults for an empty line."""
    if isinstance(settings, own):
        return settings
    if settings.engine == DEFAULT and settings == type(settings)():
        return own()
    raise ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"the settings are those of {settings.engine}, and the engine is {engine.release.name}: "
        "name the engine that was started (--backend), or leave its command line out",
    )
