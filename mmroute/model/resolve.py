"""Makes a resolved model of model files and a family spec; each value has its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mmroute.engines.known import behind_frontend, find_engine
from mmroute.engines.profile import ChatSource, EngineProfile
from mmroute.engines.settings import EngineSettings
from mmroute.engines.vllm.overrides import check_overrides
from mmroute.errors import ModelError, Reason, needs_extra, quoted
from mmroute.families.matching import check_generates, known_families, match_family
from mmroute.families.spec import FamilySpec
from mmroute.model.configured import (
    check_covered,
    check_template_kwargs,
    check_tokenizer_mode,
    configured_chat,
    configured_context,
    configured_hashing,
)
from mmroute.model.context_length import longest_context
from mmroute.model.media import MediaResolver
from mmroute.model.resolved import ResolvedModel
from mmroute.model.tokens import resolve_tokens
from mmroute.model.values import Values
from mmroute.model_directory import ModelFiles, find_model, is_local
from mmroute.placement.rules import placement_of
from mmroute.reuse.fast_paths import EncoderChoice, FastPaths
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.engine_classes import FILE
from mmroute.tokenizers.formats.tokenizer_json import built_class, load_hf_model


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

    The arguments are those of `mmroute.Normalizer.from_pretrained`.

    Raises:
        ModelError: with the reason, the file and field, and the remedy.
        SpecError: the family spec is not usable.
    """
    settings = engine_settings or EngineSettings()
    engine = behind_frontend(find_engine(backend), settings.frontend)
    own = None if is_local(model) else settings.revision  # which the engine's model has
    files = find_model(model, revision=revision or own, token=token)
    if settings.from_modelscope and files.commit is not None:
        raise ModelError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"VLLM_USE_MODELSCOPE: the engine has the files of ModelScope, and {model} would be "
            "read from Hugging Face; give the directory of the engine's files",
        )
    if settings.hf_overrides:
        check_overrides(settings.hf_overrides)
        files, family = _as_overridden(files, engine, settings.hf_overrides)
    else:
        family = match_family(files, engine.why_refused)
    if not settings.generates:
        check_generates(files)
    model_string = model_id or settings.model_string
    return resolve_files(
        files, family, engine, model_string, fast_paths=fast_paths, settings=settings
    )


def _as_overridden(
    files: ModelFiles, engine: EngineProfile, overrides: Mapping[str, Any]
) -> tuple[ModelFiles, FamilySpec]:
    """The files with the class of the model that overrides name, and the spec of its family.

    Raises:
        ModelError: as `match_family`; `unsupported_engine_setting`: no spec is of such a class.
    """
    named = overrides.get("architectures")
    if named is None:
        return files, match_family(files, engine.why_refused)
    config: dict[str, Any] = {**files.object("config.json"), "architectures": named}
    files = dataclasses.replace(files, _json={"config.json": config})
    try:
        return files, match_family(files, engine.why_refused)
    except ModelError as error:
        raise ModelError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"--hf-overrides: architectures {quoted(named)}: {error}",
        ) from error


def with_same_prompts(
    model: ResolvedModel, backend: str, model_id: str | None, settings: EngineSettings
) -> ResolvedModel | None:
    """The model for other workers whose prompts are the same; None if they may differ.

    Args:
        model: the loaded model.
        backend: the name of an engine profile.
        model_id: the engine's model string; None for the one in the settings, or else the one of
            `model`.
        settings: the options with which the engine was started.

    Raises:
        ModelError: `unknown_backend`.
    """
    engine = behind_frontend(find_engine(backend), settings.frontend)
    same = engine.prompts == model.engine.prompts and _has_one_spec(model, engine)
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


def _has_one_spec(model: ResolvedModel, engine: EngineProfile) -> bool:
    """Whether the spec of a model's family says the same for another engine or version."""
    of_name = [spec for spec in known_families() if spec.family == model.family.family]
    return all(
        spec.for_engine(model.engine.name, model.engine.version)
        == spec.for_engine(engine.name, engine.version)
        for spec in of_name
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
        resolver = MediaResolver(
            files=self.files,
            family=self.family,
            engine=engine,
            settings=self.settings,
            values=self.values,
            tokenizer=tokenizer,
            tokens=tokens,
        )
        media = resolver.resolve(max_model_len)
        if self.family.media:
            self.values.note("placement", self.family.placement, "family spec")
        placement = placement_of(self.family.placement, tokenizer, tokens)
        named = dataclasses.replace(self.settings, model=model_id or self.files.name)
        geometries = {modality: rules.geometry for modality, rules in media.items()}
        chat = engine.load_chat(ChatSource(self.files, self.family, tokenizer, geometries, named))
        chat = configured_chat(chat, self.settings, self.files.name)
        for name, origin in chat.origins.items():
            value = chat.content_format if name == "content_format" else None
            self.values.note(name, value, origin)
        self._note_bos(tokenizer)
        vocab_size = self.values.integer("vocab_size", self.family.vocab_size, default=0)
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
                # Overrides do not reach a drafter that is read from the same files.
                lambda: dataclasses.replace(self.files, _json={}),
                model_id or self.files.name,
                # A name of the hub may be the engine's, too.
                guessed=model_id is None and self.files.commit is None,
            ),
            encoder_cache=max([engine.min_encoder_cache, *planned]),
            settings=self.settings,
            tokenizer=tokenizer,
            chat=chat,
            media=media,
            uncovered=resolver.uncovered(media),
            placement=placement,
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            values=tuple(self.values.origins),
        )

    def _max_model_len(self) -> int:
        positions = self.values.integer("max_position_embeddings", self.family.context_length)
        own = longest_context(self.files, self.family, self.settings, positions)
        self.values.note("max_model_len", own.default, "after other limits and RoPE scaling")
        if self.settings.max_model_len is None:
            return own.default
        of_newest = self.engine.version == find_engine(self.engine.name).version
        if self.settings.hf_overrides and not of_newest:  # which had other rules for them
            length = self.settings.max_model_len
        else:
            length = configured_context(self.settings, own.most)
        self.values.note("max_model_len", length, "the engine's settings")
        return length

    def _check_requirements(self) -> None:
        for ref, allowed in self.family.requires.items():
            place = self.files.effective(ref)
            _, value = self.files.lookup(place)
            self.values.note(str(ref), value, str(place))
            if value not in allowed:
                raise self.values.invalid(str(ref), value, " or ".join(map(quoted, allowed)))
        for part in self.family.required_parts:
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
        if self.engine.load_tokenizer is not None:
            file = "tekken.json" if files.has("tekken.json") else "tokenizer.json"
            self.values.note("tokenizer", f"{file} as it is written", "the frontend")
            return self.engine.load_tokenizer(files, self.fast_paths)
        if not spec.has_chat_encoder:
            tokenizer = load_hf_model(files, spec.pipelines, self.fast_paths, spec.added(files))
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

        return load_mistral_model(files, self.fast_paths.text_cache_bytes)
