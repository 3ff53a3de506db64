"""Makes a resolved model of model files and a family spec; each value has its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mmroute.engine import ChatSource, Engine, EngineSettings, engine_under
from mmroute.errors import ModelError, Reason, quoted
from mmroute.families.lookup import Lookup, TokenLookup
from mmroute.families.matching import known_families
from mmroute.families.spec import FamilySpec
from mmroute.model.media import MediaResolver
from mmroute.model.resolved import ResolvedModel
from mmroute.model.values import Values
from mmroute.model_directory import ModelFiles, find_model, is_local
from mmroute.placement.rules import placement_of
from mmroute.reuse.fast_paths import FastPaths
from mmroute.tokenizers import Tokenizer


def resolve_tokens(
    lookups: Mapping[str, TokenLookup], tokenizer: Tokenizer, values: Values
) -> dict[str, int]:
    """The IDs of the spec's tokens, by name."""
    return {
        name: _token(f"{name}_token", lookup, tokenizer, values) for name, lookup in lookups.items()
    }


def _token(name: str, lookup: TokenLookup, tokenizer: Tokenizer, values: Values) -> int:
    """Resolve one token, and prove that its text is this one token and nothing else."""
    model = values.files.name
    if lookup.text is not None:
        text = values.required(f"{name}_text", lookup.text)
        if not isinstance(text, str):
            raise values.invalid(f"{name}_text", text, "a string")
        vocabulary_id = tokenizer.token_id(text)
        if vocabulary_id is None:
            raise _split(model, name, text, tokenizer)
        token_id = vocabulary_id
        present = [str(ref) for ref in lookup.equals if values.files.lookup(ref)[0]]
        agreeing = f"{', '.join(present)} and " if present else ""
        values.note(f"{name}_id", token_id, f"{agreeing}the vocabulary, {text!r}")
    else:
        token_id = values.integer(f"{name}_id", lookup.id or Lookup())
        # Of a vocabulary that was not read as a whole, the largest ID is slow to find.
        if tokenizer.token(token_id) is None and token_id > tokenizer.max_token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{model}: {name}_id is {token_id}, but the tokenizer's IDs end at "
                f"{tokenizer.max_token_id}.",
            )
        text = tokenizer.decode([token_id])
        values.note(f"{name}_text", text, f"the vocabulary's text of {token_id}")
    if tokenizer.reads_special_tokens:
        encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
        if encoded != [token_id]:
            raise _split(model, name, text, tokenizer)
    values.agree(f"{name} is {token_id} ({text!r}) in the tokenizer", token_id, lookup.equals)
    return token_id


def _split(model: str, name: str, text: str, tokenizer: Tokenizer) -> ModelError:
    encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
    return ModelError(
        Reason.SPECIAL_TOKEN_SPLIT,
        f"{model}: {name} {text!r} must be one token, but the tokenizer makes "
        f"{encoded} of it. Is it missing from added_tokens of tokenizer.json and from "
        "added_tokens_decoder of tokenizer_config.json?",
    )


def resolve_model(
    model: str,
    *,
    backend: str = "vllm",
    model_id: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    fast_paths: FastPaths | None = None,
    engine_settings: EngineSettings | None = None,
    accept_version: str | None = None,
) -> ResolvedModel:
    """Find, read and check a model. See `mmroute.Normalizer.from_pretrained`."""
    engine = engine_under(backend, engine_settings, accept_version)
    # A directory has no revisions.
    own = None if is_local(model) else engine.settings.revision
    found = find_model(model, revision=revision or own, token=token)
    files, family = engine.match(found)
    model_string = model_id or engine.settings.model_string
    return resolve_files(files, family, engine, model_string, fast_paths=fast_paths)


def with_same_prompts(
    model: ResolvedModel,
    backend: str,
    model_id: str | None,
    settings: EngineSettings | None,
    accept_version: str | None = None,
) -> ResolvedModel | None:
    """The model for other workers whose prompts are the same; None if they may differ."""
    engine = engine_under(backend, settings, accept_version)
    same = engine.release.prompts == model.engine.release.prompts and _has_one_spec(model, engine)
    if not same or engine.settings.prompt_settings() != model.settings.prompt_settings():
        return None
    model_string = model_id or engine.settings.model_string
    hashing = engine.hashes_of(
        model.family,
        lambda: find_model(model.name, revision=model.commit),
        model_string or model.model_id,
        guessed=model_string is None and model.hashing.settings.model_id_guessed,
    )
    return dataclasses.replace(
        model, engine=engine, model_id=model_string or model.model_id, hashing=hashing
    )


def _has_one_spec(model: ResolvedModel, engine: Engine) -> bool:
    """Whether the spec of a model's family says the same for another engine or version."""
    ours, theirs = model.engine.release, engine.release
    return all(
        spec.for_engine(ours.name, ours.version) == spec.for_engine(theirs.name, theirs.version)
        for spec in known_families()
        if spec.family == model.family.family
    )


def resolve_files(
    files: ModelFiles,
    family: FamilySpec,
    engine: Engine,
    model_id: str | None,
    *,
    fast_paths: FastPaths | None = None,
) -> ResolvedModel:
    """Work out everything a spec says of a model's files, as `resolve_model` does."""
    files = family.completed(files)
    family = engine.settle(family, files, model_id or files.name)
    values = Values(files, family.family)
    return _Resolver(files, family, engine, fast_paths or FastPaths(), values).resolve(model_id)


@dataclasses.dataclass(frozen=True, slots=True)
class _Resolver:
    """Works through one spec."""

    files: ModelFiles
    family: FamilySpec
    engine: Engine
    fast_paths: FastPaths
    values: Values

    def resolve(self, model_id: str | None) -> ResolvedModel:
        engine = self.engine
        self._check_requirements()
        note = self.values.note
        tokenizer = engine.load_tokenizer(self.files, self.family, self.fast_paths, note)
        tokens = resolve_tokens(self.family.tokens, tokenizer, self.values)
        max_model_len = self._max_model_len()
        resolver = MediaResolver(
            files=self.files,
            family=self.family,
            engine=engine,
            values=self.values,
            tokenizer=tokenizer,
            tokens=tokens,
        )
        media = resolver.resolve(max_model_len)
        if self.family.media:
            self.values.note("placement", self.family.placement, "family spec")
        placement = placement_of(self.family.placement, tokenizer, tokens)
        geometries = {modality: rules.geometry for modality, rules in media.items()}
        name = model_id or self.files.name
        source = ChatSource(self.files, self.family, tokenizer, geometries, name, engine.settings)
        chat = engine.load_chat(source)
        for part, origin in chat.origins.items():
            value = chat.content_format if part == "content_format" else None
            self.values.note(part, value, origin)
        self._note_bos(tokenizer)
        vocab_size = self.values.integer("vocab_size", self.family.vocab_size, default=0)
        planned = [rules.max_embeds for rules in media.values() if rules.max_items]
        if not engine.limits.plans_largest:
            planned = []
        return ResolvedModel(
            name=self.files.name,
            model_id=name,
            commit=self.files.commit,
            family=self.family,
            engine=engine,
            hashing=engine.hashes_of(
                self.family,
                # Overrides do not reach a drafter that is read from the same files.
                lambda: dataclasses.replace(self.files, _json={}),
                name,
                # A name of the hub may be the engine's, too.
                guessed=model_id is None and self.files.commit is None,
            ),
            encoder_cache=max([engine.limits.min_encoder_cache, *planned]),
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
        context = self.engine.context(self.files, self.family, positions)
        self.values.note("max_model_len", context.own, "after other limits and RoPE scaling")
        if context.configured is None:
            return context.own
        self.values.note("max_model_len", context.configured, "the engine's settings")
        return context.configured

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
