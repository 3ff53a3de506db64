"""Model files and a family spec to a resolved model, every value with the place it came from."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from mmroute.engines.known import behind_frontend, find_engine
from mmroute.engines.profile import ChatSource, EngineProfile
from mmroute.engines.settings import EngineSettings
from mmroute.errors import InexactError, ModelError, Reason, needs_extra, quoted
from mmroute.families.lookup import Lookup
from mmroute.families.matching import match_family
from mmroute.families.media import MediaSpec
from mmroute.families.spec import FamilySpec
from mmroute.geometry import AnyGeometry, CachePlan, Geometry
from mmroute.geometry.grid import AnyGrid
from mmroute.geometry.registry import GRIDS, LAYOUTS
from mmroute.model.configured import (
    check_covered,
    check_template_kwargs,
    check_tokenizer_mode,
    configured_chat,
    configured_context,
    configured_geometry,
    configured_hashing,
    overriding,
)
from mmroute.model.resolved import MediaRules, ResolvedModel
from mmroute.model.tokens import resolve_tokens
from mmroute.model.values import Values
from mmroute.model.words import resolve_words
from mmroute.model_directory import FieldRef, ModelFiles, find_model
from mmroute.placement.rules import placement_rules
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import EncoderChoice, FastPaths
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.engine_classes import FILE
from mmroute.tokenizers.formats.as_written import load_as_written
from mmroute.tokenizers.formats.tokenizer_json import built_class, load_hf_model

_DO_RESIZE: Final = FieldRef.parse("preprocessor_config.json:do_resize")


def resolve_model(
    model: str,
    *,
    backend: str = "vllm",
    model_id: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    fast_paths: FastPaths | None = None,
    engine_settings: EngineSettings | None = None,
) -> ResolvedModel:
    """Find, read and check a model.

    Args:
        model: directory, hub name, or the embedded model.
        backend: the name of an engine profile.
        model_id: the engine's model string; default: that of the settings, else `model`.
        revision: hub branch, tag or commit.
        token: hub access token.
        fast_paths: the ways it may be made fast.
        engine_settings: the settings that the engine was started with.

    Raises:
        ModelError: with the reason, the file and field, and the remedy.
        SpecError: the family spec is not usable.
    """
    settings = engine_settings or EngineSettings()
    engine = behind_frontend(find_engine(backend), settings.frontend)
    files = find_model(model, revision=revision or settings.revision, token=token)
    family = match_family(files, engine.why_refused)
    model_string = model_id or settings.model_string
    return resolve_files(
        files, family, engine, model_string, fast_paths=fast_paths, settings=settings
    )


def with_same_prompts(
    model: ResolvedModel, backend: str, model_id: str | None, settings: EngineSettings
) -> ResolvedModel | None:
    """The model for other workers whose prompts are the same; None if they may differ.

    Args:
        model: the loaded model.
        backend: the name of an engine profile.
        model_id: the engine's model string; default: that of the settings, else of `model`.
        settings: the settings that the engine was started with.

    Raises:
        ModelError: `unknown_backend`.
    """
    engine = behind_frontend(find_engine(backend), settings.frontend)
    same = engine.prompts == model.engine.prompts
    if not same or settings.of_prompts() != model.settings.of_prompts():
        return None
    model_string = model_id or settings.model_string
    return dataclasses.replace(
        model,
        engine=engine.under(settings),
        settings=settings,
        model_id=model_string or model.model_id,
        hashing=configured_hashing(
            engine.hashing,
            settings,
            model.family,
            lambda: find_model(model.name, revision=model.commit),
            model_string or model.model_id,
            guessed=model_string is None and model.hashing.settings.model_id_guessed,
        ),
    )


def resolve_files(
    files: ModelFiles,
    family: FamilySpec,
    engine: EngineProfile,
    model_id: str | None,
    *,
    fast_paths: FastPaths | None = None,
    settings: EngineSettings | None = None,
) -> ResolvedModel:
    """Work out everything a spec says of a model's files, as `resolve_model` does.

    Raises:
        ModelError: with the reason, the file and field, and the remedy.
    """
    family = family.for_engine(engine.name, engine.version)
    settings = settings or EngineSettings()
    check_covered(family, engine, settings)
    engine = engine.under(settings)
    if engine.as_served is not None:
        family = engine.as_served(family, files, engine.version, model_id or files.name)
    values = Values(files, family.family)
    resolver = _Resolver(files, family, engine, fast_paths or FastPaths(), settings, values)
    return resolver.resolve(model_id)


@dataclasses.dataclass(frozen=True, slots=True)
class _Resolver:
    """Works through one spec."""

    files: ModelFiles
    family: FamilySpec
    engine: EngineProfile
    fast_paths: FastPaths
    settings: EngineSettings
    values: Values

    def resolve(self, model_id: str | None) -> ResolvedModel:
        engine = self.engine
        check_template_kwargs(self.settings)
        self._check_requirements()
        check_tokenizer_mode(self.settings, self.family)
        tokenizer = self._tokenizer()
        tokens = resolve_tokens(self.family.tokens, tokenizer, self.values)
        max_model_len = self._max_model_len()
        media = self._media(tokenizer, tokens, max_model_len)
        if self.family.media:
            self.values.note("placement", self.family.placement, "family spec")
        placement = placement_rules()[self.family.placement].build(tokenizer, tokens)
        named = dataclasses.replace(self.settings, model=model_id or self.files.name)
        geometries = {modality: rules.geometry for modality, rules in media.items()}
        chat = engine.load_chat(ChatSource(self.files, self.family, tokenizer, geometries, named))
        chat = configured_chat(chat, self.settings, self.files.name)
        for name, origin in chat.origins.items():
            value = chat.content_format if name == "content_format" else None
            self.values.note(name, value, origin)
        self._note_bos(tokenizer)
        vocab_size = self.values.integer("vocab_size", self.family.vocab_size, default=0)
        max_token_id = max(tokenizer.max_token_id, vocab_size - 1)
        self.values.note("max_token_id", max_token_id, "the larger of tokenizer and vocab_size")
        planned = [rules.max_embeds for rules in media.values() if rules.max_items]
        if self.settings.planned_sizes:  # the geometries tell of their largest items alone
            planned = []
        return ResolvedModel(
            name=self.files.name,
            model_id=model_id or self.files.name,
            commit=self.files.commit,
            family=self.family,
            engine=engine,
            hashing=configured_hashing(
                engine.hashing,
                self.settings,
                self.family,
                lambda: self.files,
                model_id or self.files.name,
                # A name of the hub may be the engine's, too.
                guessed=model_id is None and self.files.commit is None,
            ),
            encoder_cache=max([engine.min_encoder_cache, *planned]),
            settings=self.settings,
            tokenizer=tokenizer,
            chat=chat,
            media=media,
            placement=placement,
            max_model_len=max_model_len,
            max_token_id=max_token_id,
            origins=tuple(self.values.origins),
        )

    def _max_model_len(self) -> int:
        context = self.family.context
        own = self.engine.longest_context(
            self.files,
            self.values.integer("max_position_embeddings", context.length),
            scale=self.files.object("config.json").get("model_type")
            not in context.includes_rope_scaling,
        )
        self.values.note("max_model_len", own, "after other limits and RoPE scaling")
        if self.settings.max_model_len is None:
            return own
        length = configured_context(self.settings, own)
        self.values.note("max_model_len", length, "the engine's settings")
        return length

    def _check_requirements(self) -> None:
        for ref, allowed in self.family.requires.items():
            _, value = self.files.lookup(ref)
            self.values.note(str(ref), value, str(ref))
            if value not in allowed:
                raise self.values.invalid(str(ref), value, " or ".join(map(quoted, allowed)))
        for part in self.family.parts:
            if not self.files.has_part(part):
                raise ModelError(
                    Reason.MISSING_FILE,
                    f"{self.files.name}: {self.files.root} has no preprocessor_config.json, and no "
                    f"{part} in processor_config.json. Without the {part} the engine does not "
                    f"start a model of the family {self.family.family}; copy it from the model's "
                    "repository.",
                )

    def _note_bos(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.encode("", add_special_tokens=True).tolist()
        rule = {"bos_token_id": tokenizer.bos_token_id, "added_to_text_prompts": added}
        self.values.note(
            "bos", rule, "what the tokenizer puts around an empty text; chats get none"
        )

    def _tokenizer(self) -> Tokenizer:
        spec, files = self.family.tokenizer, self.files
        if self.engine.tokenizer_as_written:
            self.values.note("tokenizer", "tokenizer.json as it is written", "the frontend")
            return load_as_written(files, self.fast_paths)
        if not spec.has_chat_encoder:
            tokenizer = load_hf_model(files, spec.pipelines, self.fast_paths, spec.adds)
            built = built_class(files, spec.pipelines)
            what = "tokenizer.json as it is written" if built == FILE else f"built as {built}"
            by = "family spec" if spec.pipelines else "config.json:model_type"
            self.values.note("tokenizer", what, f"{by} and tokenizer_config.json:tokenizer_class")
            return tokenizer
        if self.fast_paths.encoder == EncoderChoice.FASTOKENS:
            raise ModelError(
                Reason.FAST_ENCODER_UNAVAILABLE,
                f"{files.name}: chats of this family are encoded by mistral-common alone.",
            )
        # mistral-common is an extra, and slow to import.
        what = f"{files.name} is a model in Mistral's format. It"
        with needs_extra("mistral", "mistral_common", what):
            from mmroute.tokenizers.formats.mistral import load_mistral_model

        return load_mistral_model(files)

    def _media(
        self, tokenizer: Tokenizer, tokens: Mapping[str, int], max_model_len: int
    ) -> Mapping[Modality, MediaRules]:
        if not self.family.media:
            why = self.engine.without_media or "the engine takes only text for this family"
            self.values.note("images", "refused", why)
        media: dict[Modality, MediaRules] = {}
        for modality, spec in self.family.media.items():
            if self._taken(spec):
                images = media.get(Modality.IMAGE)  # which come first, if there are any
                planned = (images.max_embeds, images.max_items > 0) if images else (0, False)
                plan = CachePlan(max_model_len, *planned)
                media[modality] = self._media_rules(modality, spec, tokenizer, tokens, plan)
        return media

    def _taken(self, spec: MediaSpec) -> bool:
        """Whether a model has what the rules of a modality hold for."""
        if spec.needs is not None and not self.files.lookup(spec.needs)[0]:
            return False
        read_by = self.files.video_processor
        if spec.processor is None or read_by in (None, spec.processor):
            return True
        self.values.note("videos", "refused", f"read by {read_by} and not {spec.processor}")
        return False

    def _media_rules(
        self,
        modality: Modality,
        spec: MediaSpec,
        tokenizer: Tokenizer,
        tokens: Mapping[str, int],
        plan: CachePlan,
    ) -> MediaRules:
        self.values.within = "" if modality is Modality.IMAGE else f"{modality}."
        if modality is Modality.IMAGE and "resize" not in spec.values:
            self._check_resized()
        own = self._geometry(modality, spec, tokenizer, tokens)
        overridden = overriding(own, self.engine, self.settings)
        target: tuple[int, ...] = ()
        if spec.target is not None:
            target = (tokens[spec.target],)
            self.values.note("chat_placeholder_id", tokens[spec.target], f"the {spec.target} token")
        elif spec.target_text is not None:
            text = self.values.required("chat_placeholder_text", spec.target_text)
            if not isinstance(text, str) or not text:
                raise self.values.invalid("chat_placeholder_text", text, "a text")
            target = tuple(tokenizer.encode(text, add_special_tokens=False).tolist())
            self.values.note("chat_placeholder_ids", list(target), f"encoded {text!r}")
        else:
            target_word = spec.words.get("target", Lookup()).default
            self.values.note("chat_placeholder", target_word, "family spec")
        geometry = configured_geometry(overridden, modality, self.settings)
        max_embeds = self._max_embeds(modality, geometry, plan)
        self.values.within = ""
        most = self.engine.most(modality)
        return MediaRules(
            geometry,
            overridden,
            target,
            max_embeds,
            max_items=most if spec.max_items is None else min(most, spec.max_items),
            only_in_chats=spec.only_in_chats,
            identity=spec.identity,
            unnamed=own.accepts.unnamed,
            identity_flag=spec.identity_flag,
        )

    def _check_resized(self) -> None:
        """Most processors fail, or count otherwise, where images are to keep their size."""
        ref = self.files.effective(_DO_RESIZE)
        if self.files.lookup(ref)[1] is False:
            raise ModelError(
                Reason.INVALID_CONFIG_FIELD,
                f"{self.files.name}: {ref} is false, which is not covered for the family "
                f"{self.family.family}.",
            )

    def _max_embeds(self, modality: Modality, geometry: AnyGeometry, plan: CachePlan) -> int:
        """Count the largest item once: values that make no sense together fail here."""
        try:
            count = geometry.max_embeds(plan)
        except (InexactError, ArithmeticError, ValueError) as error:
            raise self._senseless(modality, geometry, str(error)) from error
        if count < 1:
            raise self._senseless(modality, geometry, f"no {modality} has a token")
        self.values.note(f"max_features_per_{modality}", count, "the grid")
        return count

    def _senseless(self, modality: Modality, geometry: AnyGeometry, why: str) -> ModelError:
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: its {modality} values make no sense together: {why}: {geometry}.",
        )

    def _geometry(
        self,
        modality: Modality,
        spec: MediaSpec,
        tokenizer: Tokenizer,
        tokens: Mapping[str, int],
    ) -> Geometry:
        self.values.note("grid", spec.grid, "family spec")
        self.values.note("layout", spec.layout, "family spec")
        grid = self._grid(spec)
        words = resolve_words(spec, tokenizer, tokens, self.values, modality)
        return Geometry(grid, LAYOUTS.find(spec.layout)(**words), spec.arguments(modality))

    def _grid(self, spec: MediaSpec) -> AnyGrid:
        values: dict[str, Any] = {}
        needed = GRIDS.fields(spec.grid)
        for name, lookup in spec.values.items():
            has_fallback = (
                lookup.default is not None or bool(lookup.by_model_type) or lookup.optional
            )
            read = self.values.find if has_fallback and not needed[name] else self.values.required
            value: Any = read(name, lookup)
            if value is None:
                continue  # the grid's own default
            if lookup.sources and type(value) in (int, float) and value <= 0:
                raise self.values.invalid(name, value, "positive")
            values[name] = value
        try:
            # As JSON, so that a list may become a tuple, and strictly otherwise.
            adapter = _adapter(GRIDS.find(spec.grid))
            return adapter.validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            wanted = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            if not first["loc"]:
                raise ModelError(
                    Reason.INVALID_CONFIG_FIELD,
                    f"{self.files.name}: {spec.grid} needs {wanted}, found {quoted(values)}.",
                ) from error
            name = str(first["loc"][0])
            raise self.values.invalid(name, values.get(name), wanted) from error


@functools.cache
def _adapter(grid: type[AnyGrid]) -> TypeAdapter[AnyGrid]:
    """What checks its values; to make one takes as long as all else of a model's rules."""
    return TypeAdapter(grid)
