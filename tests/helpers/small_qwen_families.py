"""Small directories of families that count images and videos as Qwen-VL does.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import Files
from small_parts import NORMALIZED, TEXT, model_files, with_code

_PADS: Final = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
_IMAGE: Final = "<|vision_start|><|image_pad|><|vision_end|>"
_VIDEO: Final = "<|vision_start|><|video_pad|><|vision_end|>"
_IDS: Final = {
    "image_token_id": "{<|image_pad|>}",
    "video_token_id": "{<|video_pad|>}",
    "vision_start_token_id": "{<|vision_start|>}",
    "vision_end_token_id": "{<|vision_end|>}",
}
_MROPE: Final = {"rope_type": "default", "rope_theta": 10000, "mrope_section": [2, 3, 3]}


def _limits(shortest: int, longest: int, **fields: Any) -> dict[str, Any]:
    size = {"shortest_edge": shortest, "longest_edge": longest}
    return {**NORMALIZED, "image_processor_type": "Qwen2VLImageProcessor", "size": size, **fields}


def _exaone() -> Files:
    special = ("<vision>", "</vision>", "<|image_pad|>", "<|video_pad|>")
    return model_files(
        "Exaone4_5_ForConditionalGeneration",
        "exaone4_5",
        special,
        "<vision><|image_pad|></vision>",
        video="<vision><|video_pad|></vision>",
        config={
            "image_token_id": "{<|image_pad|>}",
            "video_token_id": "{<|video_pad|>}",
            "text_config": {**TEXT, "model_type": "exaone4"},
            "vision_config": {"model_type": "exaone4_5_vision", "depth": 2},
        },
        preprocessor_config=_limits(5000, 800000),
        video_preprocessor_config=_limits(6000, 700000)
        | {"video_processor_type": "Qwen2VLVideoProcessor"},
        processor_config={"processor_class": "Exaone4_5_Processor"},
    )


def _qwen3(architecture: str, model_type: str, **config: Any) -> Files:
    return model_files(
        architecture,
        model_type,
        _PADS,
        _IMAGE,
        video=_VIDEO,
        config={**_IDS, **config},
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
        preprocessor_config=_limits(9000, 1000000, patch_size=16),
        video_preprocessor_config=NORMALIZED
        | {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "patch_size": 16,
            "size": {"shortest_edge": 8000, "longest_edge": 900000},
            "max_frames": 20,
        },
        processor_config={"processor_class": "Qwen3VLProcessor"},
    )


_QWEN3_TEXT: Final = {**TEXT, "model_type": "qwen3_vl_text", "rope_scaling": _MROPE}
_QWEN3_VISION: Final = {"model_type": "qwen3_vl_vision", "depth": 2}


def _qwen4() -> Files:
    return _qwen3(
        "Qwen4ExpForConditionalGeneration",
        "qwen4_exp",
        text_config={
            "model_type": "qwen4_exp_text",
            "vocab_size": 640,
            "num_hidden_layers": 4,
            "max_position_embeddings": 8192,
            "eos_token_id": 2,
        },
        vision_config={"model_type": "qwen4_exp_vision", "depth": 2},
    )


def _cosmos3() -> Files:
    return _qwen3(
        "Cosmos3ForConditionalGeneration",
        "cosmos3_omni",
        text_config=_QWEN3_TEXT,
        vision_config=_QWEN3_VISION,
    )


def _cosmos3_edge() -> Files:
    processor = {**NORMALIZED, "merge_size": 2, "patch_size": 16}
    return model_files(
        "Cosmos3EdgeForConditionalGeneration",
        "cosmos3_edge",
        _PADS,
        _IMAGE,
        video=_VIDEO,
        config={
            **_IDS,
            "text_config": {
                **TEXT,
                "model_type": "cosmos3_edge_text",
                "rope_parameters": _MROPE,
            },
            "vision_config": {"model_type": "cosmos3_edge_vision", "num_hidden_layers": 2},
        },
        preprocessor_config={
            **processor,
            "image_processor_type": "Cosmos3EdgeImageProcessor",
            "size": {"shortest_edge": 9000, "longest_edge": 1000000},
        },
        video_preprocessor_config={
            **processor,
            "video_processor_type": "Cosmos3EdgeVideoProcessor",
            "size": {"shortest_edge": 8000, "longest_edge": 900000},
        },
        processor_config={"processor_class": "Cosmos3EdgeProcessor"},
    )


def _opencua() -> Files:
    files = model_files(
        "OpenCUAForConditionalGeneration",
        "opencua",
        ("<|media_begin|>", "<|media_placeholder|>", "<|media_end|>"),
        "<|media_begin|><|media_placeholder|><|media_end|>",
        config={
            "media_placeholder_token_id": "{<|media_placeholder|>}",
            "text_config": {**TEXT, "model_type": "qwen2"},
            "vision_config": {
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "hidden_size": 64,
            },
        },
        preprocessor_config=NORMALIZED
        | {
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": 5000,
            "max_pixels": 800000,
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
        },
    )
    return with_code(files, "text_config")


def _alpamayo() -> Files:
    files = _qwen3("Alpamayo2Super", "alpamayo2_super")
    config = files["config.json"]
    text = {**TEXT, "model_type": "qwen3_vl_text", "vocab_size": 700}
    nested = {name: config.pop(name) for name in [*config] if name.endswith("_token_id")}
    files["config.json"] = {
        **config,
        "future_vocab_size": 12,
        "history_vocab_size": 7,
        "max_pixels": 190000,
        "min_pixels": 20000,
        "vlm_config": {
            **nested,
            "text_config": text,
            "vision_config": {"model_type": "qwen3_vl", "depth": 2, "patch_size": 16},
        },
    }
    return files


def _hyperclovax() -> Files:
    special = tuple(
        f"<|{token}|>"
        for kind in ("image", "video")
        for token in (f"{kind}_start", f"{kind.upper()}_PAD", f"{kind}_end")
    )
    return model_files(
        "HCXVisionV2ForCausalLM",
        "hyperclovax_vision_v2",
        special,
        "<|image_start|><|IMAGE_PAD|><|image_end|>",
        video="<|video_start|><|VIDEO_PAD|><|video_end|>",
        config={
            "image_token_id": "{<|IMAGE_PAD|>}",
            "video_token_id": "{<|VIDEO_PAD|>}",
            "text_config": {**TEXT, "model_type": "hyperclovax"},
            "vision_config": {"model_type": "qwen2_5_vl", "depth": 2, "image_size": 490},
        },
        preprocessor_config=_limits(5000, 800000, patch_size=12),
        video_preprocessor_config=_limits(6000, 700000, patch_size=10)
        | {"video_processor_type": "Qwen2VLVideoProcessor"},
        processor_config={"processor_class": "HyperCLOVAXVisionV2Processor"},
    )


QWEN_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-alpamayo-2-super": _alpamayo,
    "small-exaone-4.5": _exaone,
    "small-hyperclovax-vision-v2": _hyperclovax,
    "small-qwen4-exp": _qwen4,
    "small-cosmos3": _cosmos3,
    "small-cosmos3-edge": _cosmos3_edge,
    "small-opencua": _opencua,
}
"""Name -> its files."""
