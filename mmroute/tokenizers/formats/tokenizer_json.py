"""``tokenizer.json``: as the engine builds it where the family is known, else as it is written."""

from __future__ import annotations

import msgspec
import tokenizers

from mmroute.errors import ModelError, Reason
from mmroute.family import FamilySpec
from mmroute.fast_paths import EncoderChoice, FastPaths
from mmroute.model_files import ModelFiles
from mmroute.tokenizers.codec import Loaded
from mmroute.tokenizers.formats.fast import FastCodec, add_configured_tokens, apply_bos_rule
from mmroute.tokenizers.hf import load_hf_tokenizer, pieces_of

__all__ = ["load_tokenizer_json"]

_FORMAT = "tokenizer.json"
# The choice of a faster encoder takes seconds, which one text is not worth.
_REFERENCE = FastPaths(encoder=EncoderChoice.TOKENIZERS, text_cache_bytes=0)
# These classes of transformers keep the file's own pipeline.
_KEEP_THE_FILE = ("None", "TokenizersBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast")


def load_tokenizer_json(files: ModelFiles, family: FamilySpec | None) -> Loaded:
    """Load ``tokenizer.json`` and what tokenizer_config.json adds to it.

    Args:
        files: the model.
        family: how the engine reads it, if that is known.

    Raises:
        ModelError: `malformed_file`, `special_token_split`.
    """
    doubts = []
    if family is not None and family.tokenizer.format == "huggingface":
        try:
            loaded = load_hf_tokenizer(files, family.tokenizer.pipelines, _REFERENCE)
        except ModelError as error:
            if error.reason != Reason.TOKENIZER_UNVERIFIED:
                raise
            doubts.append(str(error))
        else:
            codec = FastCodec(loaded.backend, loaded.encoder)
            return Loaded(_FORMAT, codec, pieces=loaded.pieces)
    backend = _as_written(files)
    doubts += add_configured_tokens(backend, files)
    apply_bos_rule(backend, files)
    declared = str(files.object("tokenizer_config.json").get("tokenizer_class"))
    if declared not in _KEEP_THE_FILE:
        doubts.append(
            f"the IDs of tokenizer.json as it is written; its tokenizer_class {declared} may build "
            "the pipeline anew in the engine, which was not checked for this model"
        )
    codec = FastCodec.of(backend)
    pieces = pieces_of(backend, files.object(_FORMAT).get("decoder"), codec.vocab_size - 1)
    return Loaded(_FORMAT, codec, tuple(doubts), pieces=pieces)


def _as_written(files: ModelFiles) -> tokenizers.Tokenizer:
    path = files.path(_FORMAT)
    declared = files.json(_FORMAT)
    try:
        backend = tokenizers.Tokenizer.from_str(msgspec.json.encode(declared).decode())
    except Exception as error:  # `tokenizers` raises bare Exception
        raise ModelError(
            Reason.MALFORMED_FILE,
            f"{path} is not a tokenizer that `tokenizers` {tokenizers.__version__} can load: "
            f"{error}",
        ) from error
    backend.no_truncation()
    backend.no_padding()
    return backend
