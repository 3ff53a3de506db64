"""``tokenizer.json``: as the engine builds it where the family is known, else as it is written."""

from __future__ import annotations

from typing import Final

import msgspec
import tokenizers

from mmroute.errors import ModelError, Reason
from mmroute.fast_paths import EncoderChoice, FastPaths
from mmroute.model.files import ModelFiles
from mmroute.model.spec import FamilySpec
from mmroute.tokenizers.codec import Loaded
from mmroute.tokenizers.formats.configured import add_configured_tokens, apply_bos_rule
from mmroute.tokenizers.formats.fast import HfTokenizer
from mmroute.tokenizers.formats.huggingface import load_hf_tokenizer, pieces_of

__all__ = ["KEEPING_MODEL_TYPES", "load_tokenizer_json"]

_FORMAT = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
# The choice of a faster encoder takes seconds, which one text is not worth.
_REFERENCE = FastPaths(encoder=EncoderChoice.TOKENIZERS, text_cache_bytes=0)
# These classes of transformers keep the file's own pipeline, where there is no config.json.
_KEEP_THE_FILE = ("None", "TokenizersBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast")
KEEPING_MODEL_TYPES: Final = frozenset(
    ("EvollaModel", "arctic", "aria", "beam", "bigbird_pegasus", "camembertv2-base", "canary",
     "chameleon", "chatlm", "cohere_asr", "deepseek_ocr", "deepseek_ocr2", "deepseek_v2",
     "deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_vl", "deepseek_vl_hybrid",
     "deepseek_vl_v2", "ernie4_5", "ernie4_5_moe", "flex_olmo", "fuyu", "glm", "glm4",
     "glm4_moe", "glm4_moe_lite", "glm4v", "glm4v_moe", "glm_image", "glmasr", "got_ocr2",
     "gpt_bigcode", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared",
     "h2ovl_chat", "hyperclovax", "hyperclovax_vlm", "internlm2", "jamba", "janus", "kimi_k25",
     "kimi_linear", "kosmos-2", "llava", "llava_next", "mimo_v2_flash", "minicpm3", "minicpmv",
     "minicpmv4_6", "minicpmv4_7", "minimax_m2", "modernbert", "modernbert-decoder", "molmo",
     "molmo2", "nemotron", "nvfp4", "nystromformer", "olmo2", "olmo3", "olmo_hybrid", "opencua",
     "openvla", "paddleocr_vl", "pegasus_x", "persimmon", "phi3", "phi3_v", "phimoe",
     "pix2struct", "smolvlm", "stablelm", "step3_vl", "step3p5", "umt5", "unlimited_ocr",
     "vipllava", "xlm-roberta-xl")
)  # fmt: skip
"""The `model_type`s for which transformers 5.20.2 keeps the file, whatever class is declared.

Those of ``models/auto/tokenization_auto.py`` that it was seen to do so for.
"""


def load_tokenizer_json(files: ModelFiles, family: FamilySpec | None) -> Loaded:
    """Load ``tokenizer.json`` and what tokenizer_config.json adds to it.

    Args:
        files: the model.
        family: how the engine reads it, if that is known.

    Raises:
        ModelError: `malformed_file`, `special_token_split`.
    """
    doubts = []
    if family is not None and not family.tokenizer.has_chat_encoder:
        try:
            loaded = load_hf_tokenizer(files, family.tokenizer.pipelines, _REFERENCE)
        except ModelError as error:
            if error.reason != Reason.TOKENIZER_UNVERIFIED:
                raise
            doubts.append(str(error))
        else:
            return Loaded(_FORMAT, loaded, pieces=loaded.pieces)
    backend = _as_written(files)
    doubts += add_configured_tokens(backend, files)
    apply_bos_rule(backend, files)
    chooser = _chooser_of_a_class(files)
    if chooser is not None:
        doubts.append(
            f"the IDs of tokenizer.json as it is written; by its {chooser} the engine may build "
            "the pipeline anew, which was not checked for this model"
        )
    pieces = pieces_of(backend, files.object(_FORMAT).get("decoder"))
    return Loaded(_FORMAT, HfTokenizer.of(backend), tuple(doubts), pieces=pieces)


def _chooser_of_a_class(files: ModelFiles) -> str | None:
    """What may have the engine take a class that does not keep the file; None if nothing may.

    Where there is a config.json, its `model_type` decides, also over a class that would keep the
    file and over none. Source: transformers 5.20.2 ``models/auto/tokenization_auto.py``
    (`AutoTokenizer.from_pretrained`).
    """
    config = files.object(_CONFIG)
    declared = str(config.get("tokenizer_class"))
    if "auto_map" in config:
        return "auto_map"
    if not files.has("config.json"):
        return None if declared in _KEEP_THE_FILE else f"tokenizer_class {declared}"
    model_type = files.object("config.json").get("model_type")
    return None if model_type in KEEPING_MODEL_TYPES else f"model_type {model_type}"


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
