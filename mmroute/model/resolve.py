"""Model files and a family spec to a resolved model, every value with the place it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from mmroute.chat import Chat
from mmroute.chat.template_files import chat_templates
from mmroute.engines.profile import BackendProfile, find_backend
from mmroute.engines.vllm.context import longest_context
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.errors import InexactError, ModelError, Reason, SpecError, shown
from mmroute.fast_paths import FastPaths
from mmroute.geometry import Geometry
from mmroute.geometry.algorithms import GEOMETRIES
from mmroute.model.files import JsonValue, ModelFiles, find_model
from mmroute.model.resolved import ImageRules, Origin, ResolvedModel
from mmroute.model.spec import (
    FamilySpec,
    GeometrySpec,
    Lookup,
    PlaceholderSpec,
    TokenLookup,
    match_family,
)
from mmroute.placement import Placement
from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.placement.numbered_tags import NumberedTags
from mmroute.placement.rendered import RenderedByTokenizer
from mmroute.placement.single_token import SingleToken
from mmroute.request import ImageSize
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.formats.huggingface import named_special_tokens
from mmroute.tokenizers.model import load_model_tokenizer

if TYPE_CHECKING:
    from mmroute.tokenizers.formats.mistral_chat import MistralChatEncoder

__all__ = ["resolve_files", "resolve_model"]


def resolve_model(  # noqa: PLR0913 - where a model comes from, and how it is served
    model: str,
    *,
    backend: str = "vllm",
    model_id: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    fast_paths: FastPaths | None = None,
) -> ResolvedModel:
    """Find, read and check a model.

    Args:
        model: directory, hub name, or the embedded model.
        backend: name of a backend profile.
        model_id: the engine's model string; default: `model`.
        revision: hub branch, tag or commit.
        token: hub access token.
        fast_paths: how it may be made fast.

    Raises:
        ModelError: with the reason, the file and field, and the remedy.
        SpecError: the family spec is not usable.
    """
    profile = find_backend(backend)
    files = find_model(model, revision=revision, token=token)
    family = match_family(files)
    return resolve_files(files, family, profile, model_id or model, fast_paths)


def resolve_files(
    files: ModelFiles,
    family: FamilySpec,
    backend: BackendProfile,
    model_id: str,
    fast_paths: FastPaths | None = None,
) -> ResolvedModel:
    """Work out everything a spec says of a model's files.

    Raises:
        ModelError: with the reason, the file and field, and the remedy.
    """
    return _Resolver(files, family, fast_paths or FastPaths()).resolve(backend, model_id)


class _Resolver:
    """Works through one spec, and notes every value it finds."""

    def __init__(self, files: ModelFiles, family: FamilySpec, fast_paths: FastPaths) -> None:
        self.files = files
        self.family = family
        self.fast_paths = fast_paths
        self.origins: list[Origin] = []

    def resolve(self, backend: BackendProfile, model_id: str) -> ResolvedModel:
        tokenizer = self._tokenizer()
        tokens = self._tokens(tokenizer)
        images = self._images(tokenizer, tokens)
        chat = self._chat(tokenizer, images)
        by_template = tokenizer.chat_encoder is None
        read_from = "the chat template's syntax tree" if by_template else "mistral-common's encoder"
        self._note("content_format", chat.content_format, read_from)
        self._note_bos(tokenizer)
        context = self.family.context
        max_model_len = longest_context(
            self.files,
            self._integer("max_position_embeddings", context.length),
            scale=context.rope_scaling == "applied",
        )
        self._note("max_model_len", max_model_len, "after other limits and RoPE scaling")
        vocab_size = self._integer("vocab_size", self.family.vocab_size, default=0)
        max_token_id = max(tokenizer.max_token_id, vocab_size - 1)
        self._note("max_token_id", max_token_id, "the larger of tokenizer and vocab_size")
        return ResolvedModel(
            name=self.files.name,
            model_id=model_id,
            commit=self.files.commit,
            family=self.family,
            backend=backend,
            tokenizer=tokenizer,
            chat=chat,
            images=images,
            max_model_len=max_model_len,
            max_token_id=max_token_id,
            origins=tuple(self.origins),
        )

    def _note(self, name: str, value: Any, source: str) -> None:  # noqa: ANN401 - JSON of any kind
        self.origins.append(Origin(name, value, source))

    def _note_bos(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.encode("", add_special_tokens=True).tolist()
        rule = {"bos_token_id": tokenizer.bos_token_id, "added_to_text_prompts": added}
        self._note("bos", rule, "what the tokenizer puts around an empty text; chats get none")

    def _tokenizer(self) -> Tokenizer:
        return load_model_tokenizer(self.files, self.family.tokenizer, self.fast_paths)

    def _find(self, name: str, lookup: Lookup) -> JsonValue:
        for ref in map(self.files.effective, lookup.sources):
            present, value = self.files.lookup(ref)
            if present:
                self._note(name, value, str(ref))
                return value
        default: JsonValue = lookup.default
        if default is not None:
            note = f": {lookup.note}" if lookup.note else ""
            self._note(name, default, f"default{note}")
        return default

    def _required(self, name: str, lookup: Lookup) -> JsonValue:
        value = self._find(name, lookup)
        if value is None:
            places = " or ".join(map(str, lookup.sources))
            raise ModelError(
                Reason.MISSING_CONFIG_FIELD,
                f"{self.files.name}: {name} of family {self.family.family} is not in {places} "
                f"(files in {self.files.root}: {', '.join(self.files.names())}).",
            )
        return value

    def _integer(self, name: str, lookup: Lookup, *, default: int | None = None) -> int:
        value = self._find(name, lookup) if default is not None else self._required(name, lookup)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._invalid(name, value, "a non-negative integer")
        return value

    def _invalid(self, name: str, value: object, wanted: str) -> ModelError:
        source = next((o.source for o in reversed(self.origins) if o.name == name), "?")
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: {name} (from {source}) must be {wanted}, found {shown(value)}.",
        )

    def _tokens(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {
            name: self._token(f"{name}_token", lookup, tokenizer)
            for name, lookup in self.family.tokens.items()
        }

    def _token(self, name: str, lookup: TokenLookup, tokenizer: Tokenizer) -> int:
        """Resolve one token, and prove that its text is this one token and nothing else."""
        if lookup.text is not None:
            text = self._required(f"{name}_text", lookup.text)
            if not isinstance(text, str):
                raise self._invalid(f"{name}_text", text, "a string")
            found = tokenizer.token_id(text)
            if found is None:
                raise self._split(name, text, tokenizer)
            token_id = found
            self._note(f"{name}_id", token_id, self._agreeing(lookup) + f"the vocabulary, {text!r}")
        else:
            token_id = self._integer(f"{name}_id", lookup.id or Lookup())
            if token_id > tokenizer.max_token_id:
                raise ModelError(
                    Reason.SPECIAL_TOKEN_SPLIT,
                    f"{self.files.name}: {name}_id is {token_id}, but the tokenizer's IDs end at "
                    f"{tokenizer.max_token_id}.",
                )
            text = tokenizer.decode([token_id])
            self._note(f"{name}_text", text, f"the vocabulary's text of {token_id}")
        if tokenizer.reads_special_tokens:
            encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
            if encoded != [token_id]:
                raise self._split(name, text, tokenizer)
        for ref in lookup.equals:
            present, other = self.files.lookup(ref)
            if present and other != token_id:
                raise ModelError(
                    Reason.CONTRADICTORY_CONFIG,
                    f"{self.files.name}: {name} is {token_id} ({text!r}) in the tokenizer, "
                    f"but {ref} says {other!r}.",
                )
        return token_id

    def _agreeing(self, lookup: TokenLookup) -> str:
        present = [str(ref) for ref in lookup.equals if self.files.lookup(ref)[0]]
        return f"{', '.join(present)} and " if present else ""

    def _split(self, name: str, text: str, tokenizer: Tokenizer) -> ModelError:
        encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
        return ModelError(
            Reason.SPECIAL_TOKEN_SPLIT,
            f"{self.files.name}: {name} {text!r} must be one token, but the tokenizer makes "
            f"{encoded} of it. Is it missing from added_tokens of tokenizer.json and from "
            "added_tokens_decoder of tokenizer_config.json?",
        )

    def _images(self, tokenizer: Tokenizer, tokens: Mapping[str, int]) -> ImageRules | None:
        if self.family.geometry is None or self.family.placeholder is None:
            self._note("images", "refused", "the engine takes only text for this family")
            return None
        geometry = self._geometry(self.family.geometry, tokenizer, tokens)
        placement = self._placement(self.family.placeholder, tokenizer, tokens)
        target = self.family.placeholder.target
        if target in tokens:
            self._note("chat_placeholder_id", tokens[target], f"the {target} token")
        else:
            self._note("chat_placeholder", self.family.placeholder.chat_text, "family spec")
        return ImageRules(geometry, placement, self._max_embeds(geometry))

    def _max_embeds(self, geometry: Geometry) -> int:
        """Count the largest image once: values that make no sense together fail here."""
        try:
            found = geometry.max_embeds
        except (InexactError, ArithmeticError, ValueError) as error:
            raise self._senseless(geometry, str(error)) from error
        if found < 1:
            raise self._senseless(geometry, "no image has a token")
        self._note("max_features_per_image", found, "the geometry")
        return found

    def _senseless(self, geometry: Geometry, why: str) -> ModelError:
        return ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{self.files.name}: its image values make no sense together: {why}: {geometry}.",
        )

    def _geometry(
        self, spec: GeometrySpec, tokenizer: Tokenizer, tokens: Mapping[str, int]
    ) -> Geometry:
        self._note("geometry", spec.name, "family spec")
        values: dict[str, Any] = {f"{name}_token_id": token for name, token in tokens.items()}
        for name, lookup in spec.values.items():
            values[name] = self._required(name, lookup)
            if type(values[name]) in (int, float) and values[name] <= 0:
                raise self._invalid(name, values[name], "positive")
        for name, text in spec.texts.items():
            values[name] = tokenizer.encode(text, add_special_tokens=False).tolist()
        try:
            # As JSON, so that a list may become a tuple, and strictly otherwise.
            return TypeAdapter(GEOMETRIES[spec.name]).validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else spec.name
            wanted = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            raise self._invalid(name, values.get(name), wanted) from error

    def _placement(
        self, spec: PlaceholderSpec, tokenizer: Tokenizer, tokens: Mapping[str, int]
    ) -> Placement:
        self._note("placement", spec.rule, "family spec")
        match spec.rule:
            case "single_token":
                return SingleToken(tokens[spec.target], tokenizer)
            case "merged_blank_lines":
                newlines = tuple(self._newline(tokenizer, "\n" * n) for n in range(1, 5))
                return MergedBlankLines(tokens[spec.target], newlines, tokenizer)  # type: ignore[arg-type]  # four of them
            case "numbered_tags":
                return NumberedTags.build(tokenizer, tokenizer.decode([tokens["image"]]))
            case "rendered":
                return RenderedByTokenizer()

    def _newline(self, tokenizer: Tokenizer, text: str) -> int:
        token_id = tokenizer.token_id(text)
        if token_id is None:
            raise self._split("newline", text, tokenizer)
        return token_id

    def _chat(self, tokenizer: Tokenizer, images: ImageRules | None) -> Chat:
        if tokenizer.chat_encoder is not None:
            return _encoded_chat(tokenizer.chat_encoder, images)
        template, tool_template = chat_templates(self.files)
        for name, found in (("chat_template", template), ("tool_chat_template", tool_template)):
            self._note(name, None, found.origin if found else "none")
        placeholder = self.family.placeholder
        return HfChat(
            template=template,
            tool_template=tool_template,
            special_tokens=named_special_tokens(self.files.object("tokenizer_config.json")),
            chat_placeholder=placeholder.chat_text if placeholder else None,
        )


def _encoded_chat(encoder: MistralChatEncoder, images: ImageRules | None) -> Chat:
    from mmroute.engines.vllm.mistral_chat import MistralChat  # noqa: PLC0415 - imports mistral-common

    if images is None:
        raise SpecError("a family in Mistral format needs a geometry")
    geometry = images.geometry

    def tokens_of(size: ImageSize) -> list[int]:
        (replacement,) = geometry.replacements([size])
        ids: list[int] = replacement.token_ids.tolist()
        return ids

    encoder.answer_images_with(tokens_of)
    return MistralChat(encoder)
