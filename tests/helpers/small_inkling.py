"""A small directory of Inkling, which takes images and audio.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import Files
from small_parts import NORMALIZED
from small_tokenizers import byte_level

_FIRST: Final = 199998
_NAMES: Final = {
    199998: "startoftext", 199999: "endoftext", 200000: "message_user", 200001: "message_model",
    200002: "message_system", 200003: "message_tool", 200004: "content_text",
    200005: "content_image", 200006: "content_model_end_sampling", 200008: "content_thinking",
    200010: "end_message", 200020: "content_audio_input", 200022: "content_tool_error",
    200043: "audio_end", 200049: "content_invoke_tool_json", 200057: "content_invoke_tool_text",
}  # fmt: skip


def _tokenizer() -> dict[str, Any]:
    """The IDs of marks are constants of vLLM, so the vocabulary reaches that far."""
    tokenizer = byte_level(())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"<filler {i}>": i for i in range(len(vocabulary), _FIRST)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] = [
        {"id": i, "content": f"<|{_NAMES.get(i, f'unused_{i}')}|>", **flags, "special": True}
        for i in range(_FIRST, max(_NAMES) + 1)
    ]
    return tokenizer


def _inkling() -> Files:
    text = {
        "d_rel": 4,
        "dense_intermediate_size": 64,
        "dense_mlp_idx": 1,
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 32,
        "local_layer_ids": [0],
        "model_max_length": 16384,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rel_extent": 64,
        "sconv_kernel_size": 4,
        "sliding_window_size": 64,
        "swa_head_dim": 16,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "unpadded_vocab_size": 200058,
        "use_sconv": True,
        "vocab_size": 201024,
    }
    mel = {"dmel_max_value": 2.0, "dmel_min_value": -7.0}
    return {
        "config.json": {
            "architectures": ["InklingForConditionalGeneration"],
            "model_type": "inkling_mm_model",
            "eos_token_id": 200006,
            "torch_dtype": "bfloat16",
            "text_config": text,
            "audio_config": {
                **mel,
                "audio_mode": "dmel",
                "decoder_dmodel": 64,
                "mel_vocab_size": 16,
                "n_mel_bins": 80,
                "use_audio_norm": True,
            },
            "vision_config": {
                "decoder_dmodel": 64,
                "n_channels": 3,
                "n_layers": 4,
                "patch_size": 20,
                "temporal_patch_size": 2,
                "use_vision_norm": True,
                "vision_encoder_type": "hmlp",
            },
        },
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "eos_token": "<|content_model_end_sampling|>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "processor_config.json": {
            **mel,
            "processor_class": "InklingProcessor",
            "image_token": "<|unused_200054|>",
            "audio_token": "<|unused_200053|>",
            "image_bos_token": "<|content_image|>",
            "audio_bos_token": "<|content_audio_input|>",
            "num_dmel_bins": 16,
            "feature_extractor": {
                "feature_extractor_type": "InklingFeatureExtractor",
                "audio_token_duration_s": 0.04,
                "feature_size": 80,
                "hop_length": 800,
                "n_fft": 1920,
                "sampling_rate": 24000,
                "window_size_multiplier": 2.0,
            },
            "image_processor": {
                **NORMALIZED,
                "image_processor_type": "InklingImageProcessor",
                "do_convert_rgb": True,
                "rescale_image_frac": 1.5,
                "rescale_image_max_upscaled_long_edge": 700,
                "size": {"height": 28, "width": 28},
            },
        },
    }


INKLING: Final[Mapping[str, Callable[[], Files]]] = {"small-inkling-items": _inkling}
"""Name -> its files."""
