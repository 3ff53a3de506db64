"""A model under the settings of its engine: what they change, worked out before any request."""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from mmroute.chat import Chat
from mmroute.engines.frontends import OWN_TOKENIZER_MODES, Frontend
from mmroute.engines.hashes import Hashes
from mmroute.engines.profile import EngineProfile
from mmroute.engines.settings import EngineSettings
from mmroute.errors import InexactError, ModelError, Reason, malformed, shortened
from mmroute.families.spec import FamilySpec
from mmroute.geometry import Overrides
from mmroute.geometry.geometry import Geometry, RefusedItems
from mmroute.model.values import Values
from mmroute.model_directory import ModelFiles
from mmroute.requests.items import Modality

# What a template's defaults must not set: the engine has its own of these, or fails.
_NOT_DEFAULTS: Final = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "model_config", "padding", "reasoning_effort",
    "return_assistant_tokens_mask", "return_dict", "return_tensors", "sanitize_control_tokens",
    "self", "tokenize", "tokenizer", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
# A text with one of these is a template; any other names a file.
_OF_TEMPLATES: Final = frozenset("{}\n")
_MOST_OVERRIDES: Final = 16
_LONGEST_OVERRIDES: Final = 1024  # bytes
_WITHOUT_REFERENCES: Final = 2  # a version of marshal's format: equal values are equal bytes


def check_covered(family: FamilySpec, engine: EngineProfile, settings: EngineSettings) -> None:
    """Refuse a family that was not checked on the engine, and settings that are not covered.

    Raises:
        ModelError: `unknown_family`, `unsupported_engine_setting`.
    """
    if engine.frontend is Frontend.RUST and settings.tokenizer_mode == "mistral":
        raise _unsupported(
            "--tokenizer-mode mistral", "vLLM's Rust frontend does not start with it"
        )
    if engine.frontend is Frontend.RUST and (
        settings.mm_processor_kwargs
        or settings.media_io_kwargs
        or settings.lora_in_identities
        or settings.identity_algorithm != "blake3"
    ):
        raise _unsupported(
            "--mm-processor-kwargs, --media-io-kwargs, --mm-hasher-algorithm or "
            "--enable-tower-connector-lora",
            "vLLM's Rust frontend does not start with it",
        )
    if engine.only_checked_families and settings != EngineSettings():
        raise ModelError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"settings of an engine are read from vLLM's options; {engine.name} has others.",
        )
    if settings.system_instructions and family.chat.renderer == "harmony":
        raise _unsupported(
            "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS", "its effect on chats is not covered"
        )
    unchecked = engine.only_checked_families and engine.name not in family.checked
    if unchecked or family.refused:
        raise ModelError(
            Reason.UNKNOWN_FAMILY,
            f"The family {family.family} is not covered for {engine.label}: "
            f"{family.refused or 'it was not checked on it'}.",
        )


def check_tokenizer_mode(settings: EngineSettings, family: FamilySpec) -> None:
    """Refuse a tokenizer or chat renderer that is not the one the family is read with.

    The Rust frontend has one tokenizer, and any renderer for any model.

    Raises:
        ModelError: `unsupported_engine_setting`.
    """
    own = "mistral" if family.tokenizer.has_chat_encoder else family.chat.renderer
    named = ("auto", own if own in OWN_TOKENIZER_MODES else "hf")
    if settings.frontend is not Frontend.RUST and settings.tokenizer_mode not in named:
        raise _unsupported(
            f"--tokenizer-mode {settings.tokenizer_mode}",
            f"the family {family.family} is read with another tokenizer or chat renderer",
        )


def check_template_kwargs(settings: EngineSettings) -> None:
    """Refuse variables that the engine's own replace, or that make it fail.

    Raises:
        ModelError: `unsupported_engine_setting`.
    """
    wrong = [
        name
        for name, value in settings.chat_template_kwargs.items()
        if name in _NOT_DEFAULTS or value in (None, "auto")
    ]
    if wrong:
        raise _unsupported(
            "--default-chat-template-kwargs", f"{', '.join(wrong)}: its effect is not covered"
        )


def configured_chat(chat: Chat, settings: EngineSettings, model: str) -> Chat:
    """The chat renderer with the engine's own template, and form of contents.

    Raises:
        ModelError: `missing_file`, `malformed_file`; `unsupported_engine_setting` for a model that
            is rendered without a template.
    """
    template = settings.chat_template
    if template is not None:
        if chat.templates is None:
            raise _unsupported("--chat-template", f"{model} is rendered without a template")
        chat = chat.with_template(*_template(template))
    if settings.content_format is not None:
        chat = chat.with_content_format(settings.content_format)
    return chat


def _template(text: str) -> tuple[str, str]:
    """The text of a template, and where it comes from."""
    if _OF_TEMPLATES & set(text):
        return text, "--chat-template"
    try:
        return Path(text).read_text(encoding="utf-8"), text
    except OSError as error:
        raise ModelError(
            Reason.MISSING_FILE,
            f"--chat-template {text}: {error.strerror}. A template that comes with the engine "
            "must be given as a file.",
        ) from error
    except UnicodeDecodeError as error:
        raise malformed(f"{text} is not UTF-8: {error}") from error


def configured_context(settings: EngineSettings, longest: int) -> int:
    """The longest context of the engine with its settings.

    Raises:
        ModelError: `invalid_engine_setting`: the model has none so long.
    """
    length = settings.max_model_len or longest
    if length > longest and not settings.allow_long_context:
        raise ModelError(
            Reason.INVALID_ENGINE_SETTING,
            f"--max-model-len {length}: the model's own longest context has {longest} tokens, and "
            "the engine takes more with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 only",
        )
    return length


def overriding(
    own: Geometry, engine: EngineProfile, settings: EngineSettings
) -> Callable[[Overrides], Geometry]:
    """A model's geometry under the overrides of requests to an engine with these settings."""

    def changed(overrides: Overrides) -> Geometry:
        processor_kwargs = own.accepts.with_edges(overrides.processor)
        processor = engine.processor_kwargs(settings.mm_processor_kwargs, processor_kwargs)
        if not processor and not overrides.media_io:
            return own
        return own.with_overrides(Overrides(processor, overrides.media_io))

    @lru_cache(maxsize=_MOST_OVERRIDES)
    def known(written: bytes) -> Geometry:
        return changed(Overrides(*marshal.loads(written)))  # noqa: S302  # written below

    def overridden(overrides: Overrides) -> Geometry:
        """Most requests repeat the overrides of others. Written down, true differs from 1."""
        pair: Any = overrides.processor, overrides.media_io
        try:
            written = marshal.dumps(pair, _WITHOUT_REFERENCES)
        except ValueError:  # nested too deeply, or of types that JSON has not
            return changed(overrides)
        return known(written) if len(written) <= _LONGEST_OVERRIDES else changed(overrides)

    return overridden


def configured_geometry(
    own: Geometry, overridden: Callable[[Overrides], Geometry], settings: EngineSettings
) -> Geometry:
    """The geometry of requests without overrides of their own.

    Settings that were not observed with videos or audio leave a model that answers without them.

    Args:
        own: the model's geometry.
        overridden: the same under the overrides of requests.
        settings: the settings that the engine was started with.

    Raises:
        ModelError: `unsupported_engine_setting`: what they change of images was not observed.
    """
    modality = own.accepts.modality
    media_io = settings.media_io_kwargs.get(modality, {})
    try:
        overridden(Overrides({}, media_io))  # chats have these, and prompts have not
        return overridden(Overrides({}, {}))
    except InexactError as inexact:
        options = "--mm-processor-kwargs or --media-io-kwargs"
        if modality is Modality.IMAGE:
            raise _unsupported(options, str(inexact)) from inexact
        return replace(own, grid=RefusedItems(f"{options}: {inexact}"))


def configured_hashing(
    default: Hashes,
    settings: EngineSettings,
    family: FamilySpec,
    target: Callable[[], ModelFiles],
    model_id: str,
    *,
    guessed: bool,
) -> Hashes:
    """The functions by which an engine with these settings hashes the prompts of a model.

    Args:
        default: the engine's hashing by its defaults.
        settings: the settings that the engine was started with.
        family: the model's family.
        target: finds the model's files.
        model_id: the engine's model string.
        guessed: whether that is only the path from which the model was loaded here.

    Raises:
        ModelError: `invalid_engine_setting`.
    """
    known, size = default.settings, settings.hash_block_size
    chosen = family.hybrid or settings.context_parallel
    if size is None and not chosen:
        size = settings.block_size
    known = replace(
        known,
        algorithm=settings.hash_algorithm or known.algorithm,
        block_size=size or (None if chosen else known.block_size),
        block_size_guessed=size is None and not chosen and known.block_size is not None,
        kept_multiple=_kept_multiple(family, settings, target),
        chosen_by_engine=chosen,
        seed=settings.hash_seed,
        model_id=model_id,
        model_id_guessed=guessed,
        unnamed_in=family.unnamed_in,
    )
    return default.under(known, settings, target)


def _unsupported(setting: str, why: str) -> ModelError:
    return ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, f"{shortened(setting)}: {why}")


def _kept_multiple(
    family: FamilySpec, settings: EngineSettings, target: Callable[[], ModelFiles]
) -> int:
    """The multiples in which blocks are kept, where layers have pages of different sizes.

    The layers with the smaller pages get blocks of more tokens, and a prefix is kept where a block
    of each kind ends.

    Source: vLLM ``v1/core/kv_cache_utils.py`` (`unify_kv_cache_spec_page_size`),
    ``v1/core/kv_cache_coordinator.py`` (`HybridKVCacheCoordinator`).
    """
    if not family.kv_pages or not settings.hybrid_groups:
        return 1
    values = Values(target(), family.family)
    pages = [
        max(1, values.integer("heads", page.heads, default=0) // max(1, settings.tensor_parallel))
        * values.integer("head_size", page.head_size, default=0)
        for page in family.kv_pages
    ]
    if not all(pages):  # the files do not tell them
        return 1
    return math.lcm(*(max(pages) // page for page in pages if not max(pages) % page))
