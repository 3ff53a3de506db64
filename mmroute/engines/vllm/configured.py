"""What vLLM's settings change of a model, worked out before any request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mmroute.chat import Chat
from mmroute.engine import Context
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.overrides import check_overrides, overridden_text
from mmroute.engines.vllm.serve_command import OWN_TOKENIZER_MODES
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import ModelError, Reason, malformed, quoted, shortened
from mmroute.families.matching import check_generates, match_family
from mmroute.families.spec import FamilySpec
from mmroute.hashing.hashes import Hashes
from mmroute.model.context_length import longest_context
from mmroute.model.values import Values
from mmroute.model_directory import ModelFiles
from mmroute.requests.request import Request

# What a template's defaults must not set: the engine has its own of these, or fails.
_NOT_DEFAULTS: Final = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "model_config", "padding", "reasoning_effort",
    "return_assistant_tokens_mask", "return_dict", "return_tensors", "sanitize_control_tokens",
    "self", "tokenize", "tokenizer", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
# A text with one of these is a template; any other names a file.
_OF_TEMPLATES: Final = frozenset("{}\n")


def matched(files: ModelFiles, settings: VllmSettings) -> tuple[ModelFiles, FamilySpec]:
    """The files with the class of the model that overrides name, and the spec of its family."""
    if settings.from_modelscope and files.commit is not None:
        raise unsupported(
            "VLLM_USE_MODELSCOPE",
            f"the engine has the files of ModelScope, and {files.name} would be read from Hugging "
            "Face; give the directory of the engine's files",
        )
    overrides = settings.hf_overrides
    if overrides:
        check_overrides(overrides)
    named = overrides.get("architectures")
    if named is None:
        family = match_family(files, _why_refused)
    else:
        config: dict[str, Any] = {**files.object("config.json"), "architectures": named}
        files = replace(files, _json={"config.json": config})
        try:
            family = match_family(files, _why_refused)
        except ModelError as error:
            why = f"architectures {quoted(named)}: {error}"
            raise unsupported("--hf-overrides", why) from error
    check_generates(files)
    return files, family


def _why_refused(architectures: Sequence[object]) -> str:
    from mmroute.engines.vllm.architectures import register  # pydantic

    refusal = register().refusal(architectures)
    return "" if refusal is None else f"{refusal.why}; {refusal.remedy}"


def check_tokenizer_mode(settings: VllmSettings, family: FamilySpec) -> None:
    """Refuse a tokenizer or chat renderer that is not the one the family is read with."""
    own = "mistral" if family.tokenizer.has_chat_encoder else family.chat.renderer
    named = ("auto", own if own in OWN_TOKENIZER_MODES else "hf")
    if settings.tokenizer_mode not in named:
        raise unsupported(
            f"--tokenizer-mode {settings.tokenizer_mode}",
            f"the family {family.family} is read with another tokenizer or chat renderer",
        )


def check_template_kwargs(settings: VllmSettings) -> None:
    """Refuse variables that the engine's own replace, or that make it fail."""
    wrong = [
        name
        for name, value in settings.chat_template_kwargs.items()
        if name in _NOT_DEFAULTS or value in (None, "auto")
    ]
    if wrong:
        raise unsupported(
            "--default-chat-template-kwargs", f"{', '.join(wrong)}: its effect is not covered"
        )


def configured_chat(chat: Chat, settings: VllmSettings, model: str) -> Chat:
    """The chat renderer with the engine's own template, and form of contents."""
    template = settings.chat_template
    if template is not None:
        if chat.templates is None:
            raise unsupported("--chat-template", f"{model} is rendered without a template")
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


def configured_context(
    settings: VllmSettings,
    files: ModelFiles,
    family: FamilySpec,
    positions: int,
    *,
    is_newest: bool,
) -> Context:
    """The longest context of the engine, by the model's files and by its settings."""
    overrides, length = settings.hf_overrides, settings.max_model_len
    longest = longest_context(
        files,
        family,
        positions,
        overridden=lambda text, parents: overridden_text(text, overrides, parents),
        whole_window=not settings.disable_sliding_window,
    )
    # Earlier versions had other rules for overrides.
    checked = is_newest or not overrides
    if length and checked and length > longest.most and not settings.allow_long_context:
        raise ModelError(
            Reason.INVALID_ENGINE_SETTING,
            f"--max-model-len {length}: the model's own longest context has {longest.most} tokens, "
            "and the engine takes more with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 only",
        )
    return Context(longest.default, length)


def configured_hashing(
    default: VllmHashes,
    settings: VllmSettings,
    family: FamilySpec,
    target: Callable[[], ModelFiles],
    model_id: str,
    *,
    guessed: bool,
) -> Hashes:
    """How this engine, started with these settings, hashes this model's prompts."""
    known, size = default.settings, settings.hash_block_size
    chosen = family.hybrid or settings.context_parallel
    if size is None and not chosen:
        size = settings.block_size
    known = replace(
        known,
        algorithm=settings.hash_algorithm or known.algorithm,
        block_size=size or (None if chosen else known.block_size),
        block_size_guessed=size is None and not chosen and known.block_size is not None,
        prefix_step=_prefix_step(family, settings, target),
        of_units=settings.hash_block_size is not None,
        chosen_by_engine=chosen,
        seed=settings.hash_seed,
        model_id=model_id,
        model_id_guessed=guessed,
        names_ignored_in=family.names_ignored_in,
        keeps_blocks=settings.prefix_caching,
    )
    return default.under(known, settings, target)


def unsupported(setting: str, why: str) -> ModelError:
    """The refusal of an option whose effect is not covered."""
    return ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, f"{shortened(setting)}: {why}")


def _prefix_step(
    family: FamilySpec, settings: VllmSettings, target: Callable[[], ModelFiles]
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


def adapter_of_parts(loras: Mapping[str, str], request: Request) -> str:
    """Why a request has no hashes: the engine may take an adapter that nobody names.

    Source: vLLM ``entrypoints/serve/engine/serving.py`` (`_get_active_default_mm_loras`).
    """
    if request.lora is not None or not request.messages:
        return ""
    kinds = {
        str(part.get("type")).partition("_")[0]
        for message in request.messages
        if isinstance(parts := message.get("content"), list)
        for part in parts
        if isinstance(part, Mapping)
    }
    taken = sorted(loras.keys() & kinds)
    if not taken:
        return ""
    return (
        f"--lora-modules: vLLM may take the adapter {taken[0]!r} for a chat with parts of a type "
        "of this name, which is not covered; give the adapter another name, or name it as `model`"
    )
