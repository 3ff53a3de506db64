"""Family specs: how one family of models is read. Data, in ``model_specs/*.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from mmroute.errors import SpecError, problem
from mmroute.families.lookup import Lookup, Ref, Strict, TokenLookup, Value, one_of
from mmroute.families.media import MediaSpec, media_problems
from mmroute.families.overlays import overlaid
from mmroute.families.processors import find_processor, with_processors
from mmroute.families.sources import OWN_PACKAGE, packaged_table
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.placement.rules import PLACEMENTS
from mmroute.requests.items import IdentityForm, Modality
from mmroute.tokenizers.engine_classes import FILE, AddedTokens
from mmroute.tokenizers.pipelines import PIPELINES

_VERSION: Final = r"(?:[<>]=?|[=!]=)\d+(?:\.\d+)*(?:rc\d+)?"
_ENGINE: Final = re.compile(rf"([a-z][a-z0-9_-]*)((?:{_VERSION}(?:,{_VERSION})*)?)")
_MOST_ADDED: Final = 1 << 16
_OF_LANGUAGE_MODEL: Final = {
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
}
_CONTEXT_LENGTHS: Final = "context_lengths.toml"
_Part = TypeVar("_Part", bound="FamilyHead")


def _known_placement(name: str) -> str:
    return one_of(PLACEMENTS.entries)(name)


class NumberedTokens(Strict):
    """Ordinary tokens that differ in a number."""

    text: str
    """One of them, with ``{n}``, which counts from 0."""
    counts: tuple[Value, ...]
    """How many there are: the sum of these."""


class TokenizerSpec(Strict):
    """The tokenizer of a family: its format, and the pipeline that the engine builds by class."""

    format: Literal["huggingface", "mistral"] = "huggingface"
    """``mistral`` for tokenizers that encode chats themselves."""
    pipelines: Mapping[str, Annotated[str, AfterValidator(one_of((FILE, *PIPELINES)))]] = Field(
        default_factory=dict
    )
    """Tokenizer class -> the class that the engine builds; ``*`` is any class. Without an entry the
    engine's own rule decides."""
    adds: tuple[str, ...] = ()
    """Special tokens that the engine's processor adds to the vocabulary, in that order."""
    adds_before: NumberedTokens | None = None
    """Tokens that the processor adds before those of `adds`."""

    def added(self, files: ModelFiles) -> AddedTokens:
        """The tokens that the engine adds to the vocabulary of a model."""
        if self.adds_before is None:
            return AddedTokens((), self.adds)
        count = sum(_count(files, lookup) for lookup in self.adds_before.counts)
        text = self.adds_before.text
        return AddedTokens(tuple([text.format(n=n) for n in range(count)]), self.adds)

    @property
    def has_chat_encoder(self) -> bool:
        """Whether chats are encoded by the tokenizer itself, without a template."""
        return self.format == "mistral"


def _count(files: ModelFiles, lookup: Lookup) -> int:
    """A number of tokens; the default where a file gives none that could be one."""
    found = [value for given, value in map(files.lookup, lookup.sources) if given]
    count = found[0] if found else lookup.default
    return count if type(count) is int and 0 <= count <= _MOST_ADDED else int(lookup.default)


class KvPageSpec(Strict):
    """The layers whose KV cache has pages of one size."""

    heads: Value
    """The number of key and value heads of these layers, on all ranks together."""
    head_size: Value
    """The number of elements of one key of these layers."""


class ChatSpec(Strict):
    """The rules by which the engine renders chats."""

    renderer: str = "template"
    """The name of a renderer; see `mmroute.engines.vllm.chats`."""
    values: Mapping[str, Any] = Field(default_factory=dict)
    """Further values for this renderer."""


class FamilyHead(BaseModel):
    """The fields by which a family is recognized. Models of other families need only these."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    family: str
    """The name of the family, as in answers and messages."""
    match: Annotated[Mapping[Ref, tuple[str, ...]], Field(min_length=1)]
    """Field -> the values it may have. All must match exactly. ``*`` is any value. With an empty
    list the field must not be there."""
    without: tuple[Ref, ...] = ()
    """Fields that no model of this family has: another family's, or a contradiction."""
    embedded: tuple[str, ...] = ()
    """The names of models that need no configuration file."""
    stands_in: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Part of config.json -> the fields that it has for the engine where it is missing or null. A
    part without a `model_type` gets that field alone."""

    def completed(self, files: ModelFiles) -> ModelFiles:
        """The files, with what stands in for missing parts of config.json."""
        if not self.stands_in or not files.has("config.json"):
            return files
        config = {**files.object("config.json")}
        for name, fields in self.stands_in.items():
            part = config.get(name)
            if part is None:
                config[name] = {**fields}
            elif isinstance(part, dict):
                config[name] = {"model_type": fields["model_type"], **part}
        return replace(files, _json={"config.json": config})

    def matches(self, files: ModelFiles) -> bool:
        """Whether the files are of a model of this family."""
        if files.name in self.embedded and not files.has("config.json"):
            return True
        files = self.completed(files)
        return all(
            self._accepts(files.lookup(field), allowed) for field, allowed in self.match.items()
        )

    @staticmethod
    def _accepts(found: tuple[bool, JsonValue], allowed: tuple[str, ...]) -> bool:
        present, value = found
        if not present:
            return not allowed
        # `architectures` is a list; the engine goes by its entries.
        values = value if isinstance(value, list) else [value]
        return allowed == ("*",) or any(v in allowed for v in values)


class FamilySpec(FamilyHead):
    """One family of models."""

    model_config = ConfigDict(extra="forbid")

    title: str
    """The models that the spec holds for, in words."""
    requires: Mapping[Ref, tuple[bool | int | float | str, ...]] = Field(default_factory=dict)
    """Field -> the values that this spec holds for. A model with another is refused by name."""
    refused: str = ""
    """Why an engine's answers are not covered. It stands in that engine's table (`engine`)."""
    parts: tuple[Literal["image_processor", "video_processor", "feature_extractor"], ...] = ()
    """Further parts of the model's processor without whose configuration the engine does not start,
    beside those of the `processors` of its modalities."""
    checked: Mapping[str, tuple[str, ...]]
    """What the family was proved equal to: engine -> versions."""
    tokenizer: TokenizerSpec = TokenizerSpec()
    """The tokenizer, if the engine's own rule does not decide."""
    tokens: Mapping[str, TokenLookup] = Field(default_factory=dict)
    """Name -> a token, which targets and words may name."""
    chat: Annotated[
        ChatSpec, BeforeValidator(lambda v: {"renderer": v} if isinstance(v, str) else v)
    ] = ChatSpec()
    """How the engine renders chats: a table, or the name of the renderer alone."""
    hybrid: bool = False
    """Whether some layers keep a state, or have blocks of a size of their own. The engine then
    chooses the number of tokens under one block hash itself."""
    kv_pages: tuple[KvPageSpec, ...] = ()
    """The kinds of layers whose pages differ in size. The engine makes their blocks differ in
    tokens."""
    placement: Annotated[str, AfterValidator(_known_placement)] = "targets"
    """The rule by which items take their places; see `mmroute.placement.rules`."""
    image: MediaSpec | None = None
    """The rules for images. Without this table the engine takes none for this family."""
    video: MediaSpec | None = None
    """The same for videos."""
    audio: MediaSpec | None = None
    """The same for audio."""
    uncovered: tuple[Modality, ...] = ()
    """The modalities that the engine takes of some models of this family for which no table
    holds."""
    together: bool = False
    """Whether the engine needs the fields of every modality for an item of any. Where those of one
    are not covered, no item is."""
    text_config: tuple[str, ...] = ("text_config",)
    """Where config.json has the configuration of the language model: the first of these that has a
    field counts. The empty text is config.json itself."""
    text_model_type: str = ""
    """The model type of a language model's configuration that names none, or is missing."""
    context_length: Value
    """The longest prompt. Without `from` it is `max_position_embeddings` of the language model.
    Without `default` that of the language model's class stands in for it."""
    includes_rope_scaling: tuple[str, ...] = ()
    """Model types whose `context_length` already includes the RoPE scaling factor. The length of
    all others is multiplied by it."""
    vocab_size: Value
    """The number of token IDs of the engine's model, which refuses larger ones. Without `from` it
    is `vocab_size` of the language model."""
    engine: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """An engine, or some of its versions (``vllm<0.34``) -> the fields that differ there."""
    package: str = OWN_PACKAGE
    """The installed package that ships it; what a file says here does not count."""

    @property
    def names_ignored_in(self) -> frozenset[str]:
        """The engines whose prefix cache ignores the caller's names of images."""
        images = {key: laid.get("image", {}) for key, laid in self.engine.items()}
        forms = (IdentityForm.UNCONVERTED_FILE, IdentityForm.FEATURES)
        found = [key for key, image in images.items() if image.get("identity") in forms]
        return frozenset(_engine_versions(key)[0] for key in found)

    @property
    def required_parts(self) -> tuple[str, ...]:
        """The parts of the model's processor without whose configuration the engine fails."""
        named = [find_processor(m.processors[0]).part for m in self.media.values() if m.processors]
        return tuple(dict.fromkeys([*self.parts, *named]))

    @property
    def media(self) -> Mapping[Modality, MediaSpec]:
        """The modalities that the engine takes for this family."""
        given = {Modality.IMAGE: self.image, Modality.VIDEO: self.video, Modality.AUDIO: self.audio}
        return {modality: spec for modality, spec in given.items() if spec is not None}

    @model_validator(mode="before")
    @classmethod
    def _of_language_model(cls, table: Any) -> Any:
        """The table with the places of the numbers that the language model's configuration has."""
        if not isinstance(table, Mapping):
            return table
        configs = table.get("text_config", ["text_config"])
        configs = [configs] if isinstance(configs, str) else configs
        filled = {**table, "text_config": configs}
        for name, field in _OF_LANGUAGE_MODEL.items():
            value = table.get(name, {})
            if isinstance(value, Mapping) and not value.get("from") and isinstance(configs, list):
                places = [f"config.json:{config}.{field}".replace(":.", ":") for config in configs]
                filled[name] = {**value, "from": places}
        length = filled["context_length"]
        if isinstance(length, Mapping) and "default" not in length:
            lengths = packaged_table(_CONTEXT_LENGTHS)
            of_type = [n for n, types in lengths.items() if table.get("text_model_type") in types]
            default = {"default": int(of_type[0])} if of_type else {}
            filled["context_length"] = {"by_model_type": lengths, **default, **length}
        return filled

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for modality, spec in self.media.items():
            table = spec.model_dump(exclude_unset=True)
            for place, message in media_problems(
                modality, table, self.tokens, placement=self.placement
            ):
                raise ValueError(f"{modality}.{place}: {message}")
        fields = PLACEMENTS.fields(self.placement)
        for name in fields.keys() - self.tokens.keys() - {"tokenizer"}:
            if fields[name]:
                raise ValueError(f"placement: {self.placement} needs {name!r} in [tokens]")
        for key, laid in self.engine.items():
            _engine_versions(key)
            self._under(laid)
        return self

    def for_engine(self, name: str, version: str) -> FamilySpec:
        """The spec for one version of an engine. Later tables are laid over earlier ones."""
        spec = self
        for key, laid in self.engine.items():
            engine, versions = _engine_versions(key)
            if engine == name and _contain(versions, version):
                spec = spec._under(laid)
        return spec

    def _under(self, laid: Mapping[str, Any]) -> FamilySpec:
        plain = self.model_dump(by_alias=True, exclude={"engine"}, exclude_unset=True)
        return FamilySpec.model_validate(overlaid(plain, laid))


def _engine_versions(key: str) -> tuple[str, str]:
    """The engine of a table, and the versions for which it holds; empty for all of them.

    >>> _engine_versions("vllm<0.34")
    ('vllm', '<0.34')
    """
    found = _ENGINE.fullmatch(key)
    if not found:
        raise ValueError(
            f"engine.{key}: must be an engine, or one with versions: vllm, 'vllm<0.34'"
        )
    return found[1], found[2]


def _contain(versions: str, version: str) -> bool:
    if not versions:
        return True
    from packaging.specifiers import SpecifierSet  # takes 10 ms; few models need it

    return SpecifierSet(versions).contains(version, prereleases=True)


def read_table(kind: type[_Part], text: str, origin: str, files: ModelFiles | None = None) -> _Part:
    """A family spec, or its head, from TOML."""
    try:
        return kind.model_validate(with_processors(tomllib.loads(text), files))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{origin} is not TOML: {error}") from error
    except ValidationError as error:
        raise SpecError(f"{origin}: {'; '.join(map(problem, error.errors()))}") from error


def load_spec(text: str, origin: str) -> FamilySpec:
    """Read one family spec; raises as `read_table`."""
    return read_table(FamilySpec, text, origin)
