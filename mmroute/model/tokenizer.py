"""The tokenizer of a model whose requests are answered, in the format that its family has."""

from __future__ import annotations

from mmroute.errors import ModelError, Reason, needs_extra
from mmroute.fast_paths import EncoderChoice, FastPaths
from mmroute.model.spec import TokenizerSpec
from mmroute.model_directory import ModelFiles
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.formats.tokenizer_json import load_hf_model

__all__ = ["load_model_tokenizer"]


def load_model_tokenizer(
    files: ModelFiles, spec: TokenizerSpec, fast_paths: FastPaths
) -> Tokenizer:
    """Load a model's tokenizer as the engine builds it.

    Raises:
        ModelError: `missing_file`, `malformed_file`, `tokenizer_unverified`,
            `special_token_split`, `fast_encoder_unavailable`.
    """
    if not spec.has_chat_encoder:
        return load_hf_model(files, spec.pipelines, fast_paths)
    if fast_paths.encoder == EncoderChoice.FASTOKENS:
        raise ModelError(
            Reason.FAST_ENCODER_UNAVAILABLE,
            f"{files.name}: chats of this family are encoded by mistral-common alone.",
        )
    # mistral-common is an extra, and slow to import.
    with needs_extra("mistral", f"{files.name} is a model in Mistral's format. It"):
        from mmroute.tokenizers.formats.mistral import load_mistral_model

    return load_mistral_model(files)
