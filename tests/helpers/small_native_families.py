"""Small directories of families whose images keep their aspect ratio, in patches.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, CHAT_TOKENS, LLAMA, Files
from small_parts import NORMALIZED, QWEN2_TOKENIZER, TEXT
from small_tokenizers import byte_level, piece_level, special_ids

_MROPE: Final = {"rope_type": "default", "rope_theta": 10000, "mrope_section": [2, 3, 3]}


def _chat(image: str) -> str:
    return CHAT_OPENAI.replace("IMAGE", image)


def _omni(
    architecture: str, model_type: str, special: Mapping[str, str], limits: dict[str, Any]
) -> Files:
    """``special``: the name of a token in tokenizer_config.json -> its text."""
    tokenizer = byte_level((*CHAT_TOKENS, *special.values()))
    ids = {name: special_ids(tokenizer)[text] for name, text in special.items()}
    suffix = "index" if model_type == "qwen2_5_omni" else "id"
    media = {f"{m}_token_{suffix}": ids[f"{m}_token"] for m in ("image", "video", "audio")}
    name = "Qwen2_5Omni" if model_type == "qwen2_5_omni" else "Qwen3OmniMoe"
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "enable_audio_output": False,
            "thinker_config": {
                "model_type": f"{model_type}_thinker",
                "text_config": {
                    **TEXT,
                    "model_type": f"{model_type}_text",
                    "rope_scaling": _MROPE,
                },
                "vision_config": {"model_type": f"{model_type}_vision_encoder"},
                "audio_config": {"model_type": f"{model_type}_audio_encoder"},
                **media,
                "vision_start_token_id": ids["vision_bos_token"],
                "vision_end_token_id": ids["vision_eos_token"],
                "audio_start_token_id": ids["audio_bos_token"],
                "audio_end_token_id": ids["audio_eos_token"],
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            **QWEN2_TOKENIZER,
            **special,
            "extra_special_tokens": {**special},
        },
        "preprocessor_config.json": {
            **NORMALIZED,
            **limits,
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 128,
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": f"{name}Processor",
        },
        "chat_template.jinja": _chat(
            special["vision_bos_token"] + special["image_token"] + special["vision_eos_token"]
        ),
    }


def _qwen2_5_omni() -> Files:
    special = {
        "image_token": "<|IMAGE|>",
        "audio_token": "<|AUDIO|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    limits = {"patch_size": 14, "min_pixels": 7000, "max_pixels": 900000}
    return _omni("Qwen2_5OmniModel", "qwen2_5_omni", special, limits)


def _qwen3_omni() -> Files:
    special = {
        "image_token": "<|image_pad|>",
        "audio_token": "<|audio_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
    }
    limits = {"patch_size": 16, "size": {"shortest_edge": 9000, "longest_edge": 1000000}}
    return _omni("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", special, limits)


_KIMI_MEDIA: Final = {
    "fixed_output_tokens": None,
    "in_patch_limit": 900,
    "in_patch_limit_each_frame": 400,
    "in_patch_limit_video": None,
    "max_num_frames_each_video": None,
    "merge_kernel_size": 2,
    "patch_limit_on_one_side": 90,
    "patch_size": 14,
    "sample_fps": 2.0,
    "temporal_merge_kernel_size": 4,
    "timestamp_mode": "hh:mm:ss.fff",
    **NORMALIZED,
}
_KIMI_SPECIAL: Final = ("[BOS]", "[EOS]", "<|media_begin|>", "<|media_content|>",
                        "<|media_pad|>", "<|media_end|>")  # fmt: skip


def _kimi(
    architecture: str, model_type: str, special: tuple[str, ...], text: Any, **config: Any
) -> Files:
    tokenizer = byte_level((*CHAT_TOKENS, *_KIMI_SPECIAL, *special))
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "media_placeholder_token_id": special_ids(tokenizer)["<|media_pad|>"],
            "text_config": text,
            **config,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "[BOS]",
            "eos_token": "[EOS]",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "preprocessor_config.json": {"media_proc_cfg": _KIMI_MEDIA},
        "chat_template.jinja": _chat(
            "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"
        ),
    }


def _kimi_k25() -> Files:
    text = {
        **LLAMA,
        "model_type": "deepseek_v3",
        "max_position_embeddings": 16384,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
    }
    return _kimi(
        "KimiK25ForConditionalGeneration",
        "kimi_k25",
        (),
        text,
        use_unified_vision_chunk=True,
        vision_config={"patch_size": 14, "merge_kernel_size": [2, 2]},
    )


def _kimi_k3() -> Files:
    special = ("<|kimi_image_placeholder|>", "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
    text = {
        **TEXT,
        "model_type": "kimi_linear",
        "num_hidden_layers": 4,
        "num_experts": 4,
        "num_experts_per_token": 2,
        "moe_intermediate_size": 32,
        "linear_attn_config": {
            "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
            "head_dim": 16,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
    }
    return _kimi(
        "KimiK3ForConditionalGeneration",
        "kimi_k3",
        special,
        text,
        vision_config={"patch_size": 14, "merge_kernel_size": [2, 2]},
    )


def _paddleocr() -> Files:
    special = ("<|im_start|>", "<|im_end|>", "<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>",
               "<|IMAGE_END|>", "<|video_pad|>")  # fmt: skip
    tokenizer = piece_level(("<unk>", "<s>", "</s>"), special)
    ids = special_ids(tokenizer)
    image = "<|IMAGE_PLACEHOLDER|>"
    return {
        "config.json": {
            "architectures": ["PaddleOCRVLForConditionalGeneration"],
            "model_type": "paddleocr_vl",
            "image_token_id": ids[image],
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|IMAGE_START|>"],
            "vision_end_token_id": ids["<|IMAGE_END|>"],
            "text_config": {
                **TEXT,
                "model_type": "paddleocr_vl_text",
                "rope_parameters": _MROPE,
            },
            "vision_config": {
                "model_type": "paddleocr_vl_vision",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "patch_size": 14,
                "spatial_merge_size": 2,
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": False,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<unk>",
            "unk_token": "<unk>",
            "image_token": image,
            "extra_special_tokens": {"image_token": image},
            "tokenizer_class": "LlamaTokenizerFast",
        },
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "PaddleOCRVLImageProcessor",
            "merge_size": 2,
            "patch_size": 14,
            "processor_class": "PaddleOCRVLProcessor",
            "size": {"shortest_edge": 20000, "longest_edge": 700000},
            "temporal_patch_size": 1,
        },
        "chat_template.jinja": _chat(f"<|IMAGE_START|>{image}<|IMAGE_END|>"),
    }


# In the order of mistral-common's tokenizers of version 13.
_TEKKEN_SPECIAL: Final = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]",
)  # fmt: skip
_TEKKEN_WORDS: Final = (" t", "he", "in", " the", " i", "\n\n", "an", "image", "er", " a")


def _mistral_large_3() -> Files:
    """Mistral's own format: latent attention and experts, and vision as Pixtral has it."""
    pieces = [bytes([byte]) for byte in range(256)] + [word.encode() for word in _TEKKEN_WORDS]
    size = len(_TEKKEN_SPECIAL) + len(pieces)
    return {
        "params.json": {
            "dim": 64,
            "n_layers": 2,
            "head_dim": 16,
            "hidden_dim": 128,
            "n_heads": 4,
            "n_kv_heads": 4,
            "rope_theta": 10000,
            "norm_eps": 1e-6,
            "vocab_size": size,
            "max_position_embeddings": 9000,
            "q_lora_rank": 32,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 16,
            "kv_lora_rank": 32,
            "v_head_dim": 16,
            "llama_4_scaling": {"original_max_position_embeddings": 4096, "beta": 0.1},
            "moe": {
                "expert_hidden_dim": 64,
                "first_k_dense_replace": 1,
                "num_expert_groups": 1,
                "num_expert_groups_per_tok": 1,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "num_shared_experts": 1,
                "route_every_n": 1,
                "routed_scale": 1.0,
            },
            "vision_encoder": {
                "add_pre_mm_projector_layer_norm": True,
                "hidden_size": 64,
                "image_break_token_id": 12,
                "image_end_token_id": 13,
                "image_size": 700,
                "image_token_id": 10,
                "intermediate_size": 128,
                "max_image_size": 700,
                "mm_projector_id": "patch_merge",
                "num_attention_heads": 4,
                "num_channels": 3,
                "num_hidden_layers": 2,
                "patch_size": 14,
                "rope_theta": 10000.0,
                "spatial_merge_size": 2,
            },
        },
        "tekken.json": {
            "config": {
                "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+",
                "num_vocab_tokens": len(pieces),
                "default_vocab_size": size,
                "default_num_special_tokens": len(_TEKKEN_SPECIAL),
                "version": "v13",
            },
            "vocab": [
                {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
                for rank, piece in enumerate(pieces)
            ],
            "special_tokens": [
                {"rank": rank, "token_str": text, "is_control": True}
                for rank, text in enumerate(_TEKKEN_SPECIAL)
            ],
            "image": {"image_patch_size": 14, "max_image_size": 700, "spatial_merge_size": 2},
        },
    }


def _molmo2() -> Files:
    special = (
        "<|image|>", "<|video|>", "<im_start>", "<im_end>", "<im_patch>", "<im_col>",
        "<low_res_im_start>", "<im_low>", "<frame_start>", "<frame_end>",
    )  # fmt: skip
    tokenizer = byte_level((*CHAT_TOKENS, *special))
    ids = special_ids(tokenizer)
    return {
        "config.json": {
            "architectures": ["Molmo2ForConditionalGeneration"],
            "model_type": "molmo2",
            "image_start_token_id": ids["<im_start>"],
            "image_end_token_id": ids["<im_end>"],
            "image_patch_id": ids["<im_patch>"],
            "image_col_id": ids["<im_col>"],
            "low_res_image_start_token_id": ids["<low_res_im_start>"],
            "image_low_res_id": ids["<im_low>"],
            "frame_start_token_id": ids["<frame_start>"],
            "frame_end_token_id": ids["<frame_end>"],
            "text_config": {
                **{name: value for name, value in LLAMA.items() if name != "model_type"},
                "head_dim": 16,
                "max_position_embeddings": 16384,
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
        },
        "preprocessor_config.json": {
            "image_processor_type": "Molmo2ImageProcessor",
            "max_crops": 6,
            "overlap_margins": [3, 2],
            "patch_size": 14,
            "pooling_size": [2, 2],
            "processor_class": "Molmo2Processor",
            "size": {"height": 196, "width": 196},
        },
        "processor_config.json": {
            "processor_class": "Molmo2Processor",
            "use_single_crop_col_tokens": False,
        },
        "video_preprocessor_config.json": {
            "max_fps": 2,
            "num_frames": 12,
            "pooling_size": [3, 3],
            "size": {"height": 196, "width": 196},
            "video_processor_type": "Molmo2VideoProcessor",
        },
        "chat_template.jinja": CHAT_OPENAI.replace("IMAGE", "<|image|>"),
    }


NATIVE_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-molmo2": _molmo2,
    "small-qwen3-omni": _qwen3_omni,
    "small-qwen2.5-omni": _qwen2_5_omni,
    "small-kimi-k2.5": _kimi_k25,
    "small-kimi-k3": _kimi_k3,
    "small-paddleocr-vl": _paddleocr,
    "small-mistral-large-3": _mistral_large_3,
}
"""Name -> its files."""
