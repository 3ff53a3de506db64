"""The tokenizer of a model, as the classes of the Hugging Face libraries read it."""

from __future__ import annotations

from collections.abc import Callable

from mmroute.errors import ModelError, Reason, needs_extra
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.reuse.fast_paths import EncoderChoice, FastPaths
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.engine_classes import FILE
from mmroute.tokenizers.formats.tokenizer_json import built_class, load_hf_model


def load_tokenizer(
    files: ModelFiles,
    family: FamilySpec,
    fast_paths: FastPaths,
    note: Callable[[str, JsonValue, str], None],
) -> Tokenizer:
    """See `mmroute.engine.Chats`."""
    spec = family.tokenizer
    if not spec.has_chat_encoder:
        tokenizer = load_hf_model(files, spec.pipelines, fast_paths, spec.added(files))
        built = built_class(files, spec.pipelines)
        what = "tokenizer.json as it is written" if built == FILE else f"built as {built}"
        by = "family spec" if spec.pipelines else "config.json:model_type"
        note("tokenizer", what, f"{by} and tokenizer_config.json:tokenizer_class")
        return tokenizer
    if fast_paths.encoder == EncoderChoice.FASTOKENS:
        raise ModelError(
            Reason.FAST_ENCODER_UNAVAILABLE,
            f"{files.name}: chats of this family are encoded by mistral-common alone.",
        )
    # mistral-common is an extra, and slow to import.
    with needs_extra(
        "mistral", "mistral_common", f"{files.name} is a model in Mistral's format. It"
    ):
        from mmroute.tokenizers.formats.mistral import load_mistral_model

    return load_mistral_model(files, fast_paths.text_cache_bytes)
