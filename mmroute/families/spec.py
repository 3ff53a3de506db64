"""Family specs: how one family of models is read. Data, in ``model_specs/*.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from mmroute.errors import SpecError, did_you_mean, problem
from mmroute.families.overlays import overlaid
from mmroute.geometry.arguments import Argument, Arguments, Others
from mmroute.geometry.registry import GRIDS, LAYOUTS, Registry
from mmroute.model_directory import FieldRef, JsonValue, ModelFiles
from mmroute.placement.rules import placement_rules
from mmroute.requests.items import IdentityFlag, IdentityForm, Modality
from mmroute.tokenizers.engine_classes import FILE
from mmroute.tokenizers.pipelines import PIPELINES

OWN_PACKAGE: Final = "mmroute"
_ENGINE: Final = re.compile(r"([a-z][a-z0-9_-]*)(.*)")
_Part = TypeVar("_Part", bound="FamilyHead")

_Ref = Annotated[
    FieldRef,
    BeforeValidator(lambda v: FieldRef.parse(v) if isinstance(v, str) else v),
    PlainSerializer(str),
]


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{name!r} is not one of {', '.join(sorted(known))}{hint}")
        return name

    return check


def _known_placement(name: str) -> str:
    return _one_of(placement_rules())(name)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Lookup(_Strict):
    """Where a value is read: the first place that has it, else the default."""

    sources: tuple[_Ref, ...] = Field(default=(), alias="from")
    default: Any = None
    by_model_type: Mapping[int, tuple[str, ...]] = Field(default_factory=dict)
    """Instead of one default: default -> the model types of config.json that have it."""
    note: str = ""
    names: Mapping[str, Any] = Field(default_factory=dict)
    """What each text that may stand there, or in a list there, means; empty if it means itself."""
    floats: bool = False
    """Whether a whole number may be written with a decimal point: with most the engine does not
    start."""
    equals: tuple[_Ref, ...] = ()
    """Places that, where present, must hold the same."""
    optional: bool = False
    """Whether it may be missing without a default."""

    def default_for(self, model_type: JsonValue) -> Any:
        """The default for a model of this type."""
        for default, types in self.by_model_type.items():
            if model_type in types:
                return default
        return self.default


_Value = Annotated[
    Lookup, BeforeValidator(lambda v: v if isinstance(v, dict | Lookup) else {"default": v})
]
"""A lookup, or a constant written as it is."""


class TokenLookup(_Strict):
    """A token: read as an ID, or as a text whose ID the vocabulary gives."""

    id: _Value | None = None
    text: _Value | None = None
    equals: tuple[_Ref, ...] = ()
    """Places that, where present, must give the same ID."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.id is None) == (self.text is None):
            raise ValueError("give exactly one of id and text")
        return self


class TokenizerSpec(_Strict):
    """Which tokenizer files the family has, and how the engine builds each class."""

    format: Literal["huggingface", "mistral"] = "huggingface"
    pipelines: Mapping[str, Annotated[str, AfterValidator(_one_of((FILE, *PIPELINES)))]] = Field(
        default_factory=dict
    )
    """Tokenizer class -> the one that is built; ``*`` is any class. None: the engine's own rule."""
    adds: tuple[str, ...] = ()
    """Special tokens that the engine's processor adds to the vocabulary, in its order."""

    @property
    def has_chat_encoder(self) -> bool:
        """Whether chats are encoded by the tokenizer itself, without a template."""
        return self.format == "mistral"


def _as_argument(accepted: object) -> object:
    """An argument that is written shortly: what it changes, or false for one that is refused.

    >>> _as_argument("max_tiles")
    {'sets': ('max_tiles',)}
    """
    if isinstance(accepted, str | list):
        accepted = {"sets": accepted}
    if isinstance(accepted, Mapping) and isinstance(accepted.get("sets"), str):
        accepted = {**accepted, "sets": (accepted["sets"],)}
    return {"where": "nowhere"} if accepted is False else accepted


class MediaSpec(_Strict):
    """How items of one modality are counted, and where they stand in a prompt."""

    target: str | None = None
    """A token of the spec whose place an item takes."""
    target_text: _Value | None = None
    """Instead: a text of several tokens, encoded when the model is loaded."""
    chat_text: str | None = None
    """What a chat gets for an item if its template takes texts; ``{n}`` is the item's number."""
    needs: _Ref | None = None
    """A place that must have something, or else the engine takes no such items for a model."""
    processor: str | None = None
    """The class of video processors that it holds for; with another one videos are refused."""
    grid: str
    """How many tokens an item has; see `mmroute.geometry.registry`."""
    layout: str = "fill"
    """What stands in its place."""
    values: Mapping[str, _Value] = Field(default_factory=dict)
    """The grid's numbers."""
    words: Mapping[str, _Value] = Field(default_factory=dict)
    """The layout's tokens and texts; see `mmroute.model.words`."""
    accepts: Mapping[str, Annotated[Argument, BeforeValidator(_as_argument)]] = Field(
        default_factory=dict
    )
    """The arguments of requests that the engine's processor takes, and what each changes."""
    other_arguments: Others = Others.IGNORED
    """What becomes of other arguments."""
    checked_for_videos: tuple[str, ...] = ()
    """Counts that the model's video processor checks in requests with images alone, too."""
    max_items: int | None = None
    """The most items in one prompt, where the engine takes fewer than of other families."""
    only_in_chats: bool = False
    """Whether the engine refuses items beside a prompt that is no chat."""
    identity: IdentityForm = IdentityForm.FILE
    """What the engine hashes of an item that has no name."""
    identity_flag: IdentityFlag | None = None
    """What it hashes beside every identity."""

    def arguments(self, modality: Modality) -> Arguments:
        """What requests may say of how such items are processed."""
        types = GRIDS.types(self.grid)
        named = {name: argument.of_type(types) for name, argument in self.accepts.items()}
        return Arguments(modality, named, self.other_arguments, self.checked_for_videos)


def media_problems(
    modality: str, media: Mapping[str, Any], tokens: Collection[str], *, rendered: bool
) -> Iterator[tuple[str, str]]:
    """What a table of one modality lacks, or gives and its grid or layout does not know.

    Args:
        modality: the name of the table.
        media: the table as TOML has it, so that a mistake elsewhere does not hide these.
        tokens: names of the spec's tokens.
        rendered: whether prompts hold their items already, so that nothing is searched for.

    Yields:
        The place in the table, and what is wrong there.
    """
    grid, layout = media.get("grid"), media.get("layout", "fill")
    unknown = [*_unknown(grid, GRIDS), *_unknown(layout, LAYOUTS)]
    if unknown:
        yield from unknown
        return
    values, words = media.get("values") or {}, media.get("words") or {}
    yield from _target_problems(media, words, tokens, rendered=rendered)
    numbers = GRIDS.fields(str(grid))
    yield from _field_problems("values", values, numbers, f"the grid {grid}")
    own_words = {**LAYOUTS.fields(str(layout))}
    if modality in tokens and LAYOUTS.types(str(layout))["fill"] is int:
        own_words["fill"] = False
    written = " ".join(map(str, words.values()))
    named = [word for word in words if word in own_words or f"{{{word}}}" not in written]
    yield from _field_problems("words", named, own_words, f"the layout {layout}")
    for name, accepted in (media.get("accepts") or {}).items():
        try:
            argument = _ARGUMENT.validate_python(_as_argument(accepted))
        except ValidationError:
            continue  # which is told of the field itself
        for changed in argument.changed_fields - numbers.keys():
            hint = did_you_mean(changed, numbers) or f"; it has {', '.join(numbers)}"
            yield f"accepts.{name}", f"the grid {grid} has no {changed}{hint}"


_ARGUMENT: Final = TypeAdapter(Argument)


def _unknown(name: object, registry: Registry) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str) or name not in registry.entries:
        known = registry.entries
        hint = did_you_mean(str(name), known)
        yield registry.kind, f"must be one of {', '.join(sorted(known))}{hint}"


def _field_problems(
    table: str, given: Collection[str], fields: Mapping[str, bool], whose: str
) -> Iterator[tuple[str, str]]:
    for name in given:
        if name not in fields:
            near = did_you_mean(name, fields) or f"; it has {', '.join(fields)}"
            yield f"{table}.{name}", f"{whose} has no such value{near}"
    for name, needed in fields.items():
        if needed and name not in given:
            yield f"{table}.{name}", f"{whose} needs it"


def _target_problems(
    media: Mapping[str, Any],
    words: Mapping[str, Any],
    tokens: Collection[str],
    *,
    rendered: bool,
) -> Iterator[tuple[str, str]]:
    target, chat_text = media.get("target"), media.get("chat_text")
    given = [target, media.get("target_text"), words.get("target")]
    count = sum(one is not None for one in given)
    if rendered and count:
        yield "target", "must be absent: the renderer puts items in, and nothing is searched for"
    elif not rendered and count != 1:
        yield "target", "must be given, or else one of target_text and words.target"
    if isinstance(target, str) and target not in tokens:
        hint = did_you_mean(target, tokens)
        yield "target", f"must be one of the tokens {', '.join(tokens)}{hint}"
    numbered = "{n}" in str(words.get("target"))
    if numbered and isinstance(chat_text, str) and "{n}" not in chat_text:
        yield "chat_text", "must have {n}, the item's number"


class ContextSpec(_Strict):
    """The longest prompt of the model."""

    length: _Value
    includes_rope_scaling: tuple[str, ...] = ()
    """Model types whose length includes a RoPE scaling factor; that of all others it multiplies."""


class KvPageSpec(_Strict):
    """The layers whose KV cache has pages of one size."""

    heads: _Value
    """The number of their key and value heads, on all ranks together."""
    head_size: _Value


class FamilyHead(BaseModel):
    """What tells a family from the others. Models of other families need no more of a spec."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    family: str
    match: Annotated[Mapping[_Ref, tuple[str, ...]], Field(min_length=1)]
    """Field -> the values it may have; all must match, and exactly. ``*``: any value; an empty
    list: the field must not be there."""
    without: tuple[_Ref, ...] = ()
    """Fields that no model of this family has: another family's, or a contradiction."""
    embedded: tuple[str, ...] = ()
    """Models that need no configuration file, by name."""

    def matches(self, files: ModelFiles) -> bool:
        """Whether the family is the one of these files."""
        if files.name in self.embedded and not files.has("config.json"):
            return True
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
    requires: Mapping[_Ref, tuple[bool | int | str, ...]] = Field(default_factory=dict)
    """Field -> the values that this spec holds for; a model with another is refused by name."""
    refused: str = ""
    """Why the answers of an engine are not covered for this family; in that engine's own table."""
    parts: tuple[Literal["image_processor", "video_processor", "feature_extractor"], ...] = ()
    """The parts of the model's processor without whose configuration the engine does not start."""
    checked: Mapping[str, tuple[str, ...]]
    """What the family was proved equal to: engine -> versions."""
    tokenizer: TokenizerSpec = TokenizerSpec()
    tokens: Mapping[str, TokenLookup] = Field(default_factory=dict)
    chat: str = "template"
    """How the engine renders chats; see `mmroute.engines`."""
    """Whether the engine leaves out the items of chats, and says nothing."""
    hybrid: bool = False
    """Whether layers with a state stand among those with attention: the engine then chooses the
    number of tokens under one block hash itself."""
    kv_pages: tuple[KvPageSpec, ...] = ()
    """The kinds of layers whose pages differ in size, so that the engine makes their blocks differ
    in tokens."""
    size_is_pixel_limits: bool = False
    """Whether a request's `size` is pixel limits, too, before the engine's own are put in."""
    unnamed_kwargs: frozenset[str] = frozenset()
    """The `mm_processor_kwargs` that the engine takes out of a request before it names items."""
    fallback_template: str | None = None
    """The chat template that the engine falls back to if the model's files have none."""
    placement: Annotated[str, AfterValidator(_known_placement)] = "targets"
    """The rule by which items take their places; see `mmroute.placement.rules`."""
    image: MediaSpec | None = None
    """None: the engine takes no images for this family."""
    video: MediaSpec | None = None
    audio: MediaSpec | None = None
    context: ContextSpec
    vocab_size: _Value = Lookup()
    engine: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Engine, or some of its versions (``vllm<0.34``) -> what is otherwise, laid over this spec."""
    package: str = OWN_PACKAGE
    """The installed package that ships it; what a file says here does not count."""

    @property
    def unnamed_in(self) -> frozenset[str]:
        """Engines whose prefix cache knows images by their features, whatever a request says."""
        images = {key: laid.get("image", {}) for key, laid in self.engine.items()}
        form = IdentityForm.FEATURES
        found = [key for key, image in images.items() if image.get("identity") == form]
        return frozenset(_engine_versions(key)[0] for key in found)

    @property
    def media(self) -> Mapping[Modality, MediaSpec]:
        """The modalities that the engine takes for this family."""
        given = {Modality.IMAGE: self.image, Modality.VIDEO: self.video, Modality.AUDIO: self.audio}
        return {modality: spec for modality, spec in given.items() if spec is not None}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        rendered = self.placement == "rendered"
        for modality, spec in self.media.items():
            table = spec.model_dump(exclude_unset=True)
            for place, message in media_problems(modality, table, self.tokens, rendered=rendered):
                raise ValueError(f"{modality}.{place}: {message}")
        for key, laid in self.engine.items():
            _engine_versions(key)
            self._under(laid)
        return self

    def for_engine(self, name: str, version: str) -> FamilySpec:
        """The spec as it holds for one version of an engine.

        Later tables of the spec are laid over earlier ones.

        Raises:
            ValueError: what is laid over it does not fit.
        """
        spec = self
        for key, laid in self.engine.items():
            engine, versions = _engine_versions(key)
            if engine == name and versions.contains(version, prereleases=True):
                spec = spec._under(laid)
        return spec

    def _under(self, laid: Mapping[str, Any]) -> FamilySpec:
        plain = self.model_dump(by_alias=True, exclude={"engine"}, exclude_unset=True)
        return FamilySpec.model_validate(overlaid(plain, laid))


def _engine_versions(key: str) -> tuple[str, SpecifierSet]:
    """The engine of a table, and the versions for which it holds.

    >>> _engine_versions("vllm<0.34")
    ('vllm', <SpecifierSet('<0.34')>)

    Raises:
        ValueError: it names no engine, or no versions.
    """
    found = _ENGINE.fullmatch(key)
    try:
        versions = SpecifierSet(found[2]) if found else None
    except InvalidSpecifier:
        versions = None
    if found is None or versions is None:
        raise ValueError(
            f"engine.{key}: must be an engine, or one with versions: vllm, 'vllm<0.34'"
        )
    return found[1], versions


def read_spec(text: str, origin: str) -> Mapping[str, Any]:
    """The tables of one family spec.

    Raises:
        SpecError: naming the file.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{origin} is not TOML: {error}") from error


def check_spec(kind: type[_Part], tables: Mapping[str, Any], origin: str) -> _Part:
    """A family spec, or its head, from its tables.

    Raises:
        SpecError: naming the file, the field, and what was found there.
    """
    try:
        return kind.model_validate(tables)
    except ValidationError as error:
        raise SpecError(f"{origin}: {'; '.join(map(problem, error.errors()))}") from error


def load_spec(text: str, origin: str) -> FamilySpec:
    """Read one family spec.

    Raises:
        SpecError: as `read_spec` and `check_spec`.
    """
    return check_spec(FamilySpec, read_spec(text, origin), origin)
