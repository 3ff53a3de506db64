"""Small directories of families whose images are tiles, crops or a budget of soft tokens.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, SIGLIP, Files
from small_parts import NORMALIZED, QWEN2_TOKENIZER
from small_tokenizers import byte_level, piece_level, special_ids

_TEXT: Final = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16384,
    "vocab_size": 640,
}


def _chat(image: str, bos: str = "") -> str:
    return bos + CHAT_OPENAI.replace("IMAGE", image)


def _gemma(architecture: str, model_type: str, vision: dict[str, Any]) -> Files:
    special = ("<|im_start|>", "<|im_end|>", "<|image>", "<|image|>", "<image|>", "<|audio>",
               "<|audio|>", "<audio|>", "<|video|>")  # fmt: skip
    tokenizer = piece_level(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), special, gemma=True)
    ids = special_ids(tokenizer)
    name = architecture.replace("ForConditionalGeneration", "")
    image = {"image_processor_type": f"{name}ImageProcessor", "max_soft_tokens": 140}
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "audio_config": None,
            "audio_token_id": ids["<|audio|>"],
            "boi_token_id": ids["<|image>"],
            "eoi_token_id": ids["<image|>"],
            "image_token_id": ids["<|image|>"],
            "video_token_id": ids["<|video|>"],
            "text_config": {**_TEXT, "model_type": f"{model_type}_text"},
            "vision_config": {"patch_size": 8, "pooling_kernel_size": 2, **vision},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
            "boi_token": "<|image>",
            "image_token": "<|image|>",
            "eoi_token": "<image|>",
            "boa_token": "<|audio>",
            "audio_token": "<|audio|>",
            "eoa_token": "<audio|>",
            "extra_special_tokens": ["<|video|>"],
            "tokenizer_class": "GemmaTokenizer",
        },
        "processor_config.json": {
            "processor_class": f"{name}Processor",
            "image_processor": image,
            "video_processor": {"video_processor_type": f"{name}VideoProcessor"},
            "feature_extractor": {"feature_extractor_type": f"{name}AudioFeatureExtractor"},
        },
        "chat_template.jinja": _chat("<|image|>", "{{ bos_token }}"),
    }


def _gemma3n() -> Files:
    special = ("<|im_start|>", "<|im_end|>", "<start_of_image>", "<image_soft_token>",
               "<end_of_image>", "<start_of_audio>", "<audio_soft_token>",
               "<end_of_audio>")  # fmt: skip
    tokenizer = piece_level(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), special, gemma=True)
    ids = special_ids(tokenizer)
    named = {
        "boi_token": "<start_of_image>",
        "image_token": "<image_soft_token>",
        "eoi_token": "<end_of_image>",
        "boa_token": "<start_of_audio>",
        "audio_token": "<audio_soft_token>",
        "eoa_token": "<end_of_audio>",
    }
    return {
        "config.json": {
            "architectures": ["Gemma3nForConditionalGeneration"],
            "model_type": "gemma3n",
            **{f"{name}_id": ids[text] for name, text in named.items()},
            "text_config": {"model_type": "gemma3n_text", "vocab_size": 640},
            "vision_config": {"model_type": "gemma3n_vision"},
            "audio_config": {"model_type": "gemma3n_audio"},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
            **named,
            "extra_special_tokens": named,
            "tokenizer_class": "GemmaTokenizer",
        },
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "SiglipImageProcessor",
            "feature_extractor_type": "Gemma3nAudioFeatureExtractor",
            "processor_class": "Gemma3nProcessor",
            "size": {"height": 64, "width": 64},
        },
        "processor_config.json": {"image_seq_length": 20, "processor_class": "Gemma3nProcessor"},
        "chat_template.jinja": _chat("<image_soft_token>", "{{ bos_token }}"),
    }


_QWEN2: Final = {**_TEXT, "model_type": "qwen2"}


def _internvl() -> Files:
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>",
               "<video>")  # fmt: skip
    tokenizer = byte_level(special)
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    return {
        "config.json": {
            "architectures": ["InternVLForConditionalGeneration"],
            "model_type": "internvl",
            "image_token_id": special_ids(tokenizer)["<IMG_CONTEXT>"],
            "text_config": _QWEN2,
            "vision_config": {
                "model_type": "internvl_vision",
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "image_size": [56, 56],
                "patch_size": [14, 14],
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {**QWEN2_TOKENIZER, **named, "extra_special_tokens": named},
        "preprocessor_config.json": {
            **NORMALIZED,
            "crop_to_patches": False,
            "image_processor_type": "GotOcr2ImageProcessor",
            "max_patches": 9,
            "min_patches": 1,
            "processor_class": "InternVLProcessor",
            "size": {"height": 56, "width": 56},
        },
        "processor_config.json": {"image_seq_length": 5, "processor_class": "InternVLProcessor"},
        "chat_template.jinja": _chat("<IMG_CONTEXT>\n"),
    }


def _llama4() -> Files:
    special = ("<|begin_of_text|>", "<|eot|>", "<|image_start|>", "<|image_end|>",
               "<|tile_x_separator|>", "<|tile_y_separator|>", "<|image|>", "<|patch|>",
               "<|im_start|>", "<|im_end|>")  # fmt: skip
    tokenizer = byte_level(special, bos="<|begin_of_text|>")
    ids = special_ids(tokenizer)
    return {
        "config.json": {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "image_token_index": ids["<|patch|>"],
            "boi_token_index": ids["<|image_start|>"],
            "eoi_token_index": ids["<|image_end|>"],
            "text_config": {**_TEXT, "model_type": "llama4_text", "num_local_experts": 2},
            "vision_config": {
                "model_type": "llama4_vision_model",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "image_size": 56,
                "patch_size": 14,
                "pixel_shuffle_ratio": 0.5,
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "Llama4ImageProcessor",
            "max_patches": 12,
            "processor_class": "Llama4Processor",
            "size": {"height": 56, "width": 56},
        },
        "processor_config.json": {"patch_size": 14, "processor_class": "Llama4Processor"},
        # It asks for the date, and does not write it.
        "chat_template.jinja": "{%- set date = strftime_now('%d %b %Y') -%}"
        + _chat("<|image|>", "{{ bos_token }}"),
    }


def _deepseek_ocr(architecture: str) -> Files:
    special = ("<bos>", "<eos>", "<pad>", "<image>")
    tokenizer = byte_level(special, bos=special[0])
    text = {**_TEXT, "model_type": "deepseek_v2", "num_key_value_heads": 4, "use_mla": False}
    moe = {"kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0}
    more = {"qk_rope_head_dim": 0, "v_head_dim": 0, "n_routed_experts": 4, "n_shared_experts": 1}
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": "deepseek_vl_v2",
            "language_config": {**text, **moe, **more, "moe_intermediate_size": 32},
            "projector_config": {"input_dim": 64, "n_embed": 64, "projector_type": "linear"},
            "tile_tag": "2D",
            "global_view_pos": "head",
            "vision_config": {"image_size": 1024, "model_name": "deeplip_b_l", "width": {}},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": special[0],
            "eos_token": special[1],
            "pad_token": special[2],
            "tokenizer_class": "LlamaTokenizerFast",
        },
        "processor_config.json": {"processor_class": "DeepseekVLV2Processor"},
    }


def _step3() -> Files:
    special = ("<bos>", "<eos>", "<im_patch>", "<im_start>", "<im_end>", "<patch_start>",
               "<patch_end>", "<patch_newline>", "<|im_start|>", "<|im_end|>")  # fmt: skip
    tokenizer = byte_level(special, bos="<bos>")
    text = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_attention_groups": 1,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16384,
        "vocab_size": 640,
        "head_dim": 16,
        "share_q_dim": 64,
        "moe_num_experts": 2,
        "moe_layers_enum": [1],
    }
    return {
        "config.json": {
            "architectures": ["Step3VLForConditionalGeneration"],
            "model_type": "step3_vl",
            "image_token_id": special_ids(tokenizer)["<im_patch>"],
            "text_config": text,
            "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "image_size": 728},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "tokenizer_class": "LlamaTokenizerFast",
        },
        "preprocessor_config.json": {"image_processor_type": "Step3VLImageProcessor"},
        "chat_template.jinja": _chat("<im_patch>", "{{ bos_token }}"),
    }


def _cohere() -> Files:
    special = ("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<EOS_TOKEN>",
               "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>",
               "<|im_start|>", "<|im_end|>")  # fmt: skip
    tokenizer = byte_level(special, bos="<BOS_TOKEN>")
    named = {
        "boi_token": "<|START_OF_IMG|>",
        "eoi_token": "<|END_OF_IMG|>",
        "image_token": "<|IMG_PATCH|>",
        "img_line_break_token": "<|IMG_LINE_BREAK|>",
    }
    return {
        "config.json": {
            "architectures": ["Cohere2VisionForConditionalGeneration"],
            "model_type": "cohere2_vision",
            "image_token_id": special_ids(tokenizer)["<|IMG_PATCH|>"],
            "text_config": {**_TEXT, "model_type": "cohere2"},
            "vision_config": {**SIGLIP, "image_size": 64, "patch_size": 8},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<BOS_TOKEN>",
            "eos_token": "<EOS_TOKEN>",
            "pad_token": "<PAD>",
            "unk_token": "<UNK>",
            "cls_token": "<CLS>",
            "sep_token": "<SEP>",
            "mask_token": "<MASK_TOKEN>",
            **named,
            "extra_special_tokens": named,
            "tokenizer_class": "CohereTokenizerFast",
        },
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "Cohere2VisionImageProcessor",
            "max_patches": 7,
            "patch_size": 3,
            "processor_class": "Cohere2VisionProcessor",
            "size": {"height": 64, "width": 64},
        },
        "processor_config.json": {"processor_class": "Cohere2VisionProcessor"},
        "chat_template.jinja": _chat("<|IMG_PATCH|>", "{{ bos_token }}"),
    }


TILE_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-gemma-4": lambda: _gemma(
        "Gemma4ForConditionalGeneration", "gemma4", {"default_output_length": 140}
    ),
    "small-gemma-4-unified": lambda: _gemma(
        "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", {"num_soft_tokens": 70}
    ),
    "small-gemma-3n": _gemma3n,
    "small-internvl": _internvl,
    "small-llama-4": _llama4,
    "small-deepseek-ocr": lambda: _deepseek_ocr("DeepseekOCRForCausalLM"),
    "small-deepseek-ocr-2": lambda: _deepseek_ocr("DeepseekOCR2ForCausalLM"),
    "small-step-3-vl": _step3,
    "small-command-a-vision": _cohere,
}
"""Name -> its files."""
