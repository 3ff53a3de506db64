"""Small directories of families whose image is put in at the start of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import LLAMA, SIGLIP, Files
from small_parts import NORMALIZED
from small_tokenizers import byte_level, piece_level, special_ids

_IMAGE: Final = {**NORMALIZED, "size": {"height": 56, "width": 56}}
_VISION: Final = {**SIGLIP, "image_size": 56, "patch_size": 14}


def _paligemma() -> Files:
    head = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer = piece_level(head, ("<image>", "<loc0001>"), gemma=True)
    return {
        "config.json": {
            "architectures": ["PaliGemmaForConditionalGeneration"],
            "model_type": "paligemma",
            "image_token_index": special_ids(tokenizer)["<image>"],
            "bos_token_id": 2,
            "eos_token_id": 1,
            "projection_dim": 64,
            "text_config": {**LLAMA, "model_type": "gemma", "head_dim": 16},
            "vision_config": _VISION,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "extra_special_tokens": {"image_token": "<image>"},
            "image_token": "<image>",
            "tokenizer_class": "GemmaTokenizer",
        },
        "preprocessor_config.json": {
            **_IMAGE,
            "image_processor_type": "SiglipImageProcessor",
            "image_seq_length": 16,
        },
        "processor_config.json": {"processor_class": "PaliGemmaProcessor"},
    }


def _blip2() -> Files:
    tokenizer = byte_level(("<pad>", "</s>", "<image>"), bos="</s>")
    return {
        "config.json": {
            "architectures": ["Blip2ForConditionalGeneration"],
            "model_type": "blip-2",
            "image_token_index": special_ids(tokenizer)["<image>"],
            "num_query_tokens": 7,
            "text_config": {
                "model_type": "opt",
                "ffn_dim": 128,
                "hidden_size": 64,
                "max_position_embeddings": 2048,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "vocab_size": 640,
                "word_embed_proj_dim": 64,
            },
            "qformer_config": {"model_type": "blip_2_qformer", "num_hidden_layers": 2},
            "vision_config": {"model_type": "blip_2_vision_model", "image_size": 56},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "</s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "preprocessor_config.json": {**_IMAGE, "image_processor_type": "BlipImageProcessor"},
        "processor_config.json": {"num_query_tokens": 7, "processor_class": "Blip2Processor"},
    }


def _openvla() -> Files:
    tokenizer = piece_level(("<unk>", "<s>", "</s>"), ("<PAD>",))
    text: dict[str, Any] = {**LLAMA, "model_type": "llama"}
    return {
        "config.json": {
            "architectures": ["OpenVLAForActionPrediction"],
            "model_type": "openvla",
            "image_sizes": [70, 70],
            "image_token_index": special_ids(tokenizer)["<PAD>"],
            "text_config": text,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<PAD>",
            "unk_token": "<unk>",
            "tokenizer_class": "LlamaTokenizer",
        },
    }


INSERTED_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-paligemma": _paligemma,
    "small-blip-2": _blip2,
    "small-openvla": _openvla,
}
"""Name -> its files."""
