"""Small directories of further families, read by vLLM for ``conformance/vectors/families``.

They are of the same make as `small_models`, which has those that every other test runs on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from small_audio_families import AUDIO_FAMILIES
from small_backend_families import BACKEND_FAMILIES
from small_code_families import CODE_FAMILIES
from small_inkling import INKLING
from small_inserted_families import INSERTED_FAMILIES
from small_models import (
    CHAT_OPENAI,
    CHAT_TOKENIZER,
    CHAT_TOKENS,
    LLAMA,
    SIGLIP,
    SMALL_MODELS,
    Files,
)
from small_native_families import NATIVE_FAMILIES
from small_own_families import OWN_FAMILIES
from small_parts import NORMALIZED
from small_qwen_families import QWEN_FAMILIES
from small_remote_families import REMOTE_FAMILIES
from small_text_families import TEXT_FAMILIES
from small_tile_families import TILE_FAMILIES
from small_tokenizers import byte_level, special_ids
from small_vllm_families import VLLM_FAMILIES

from mmroute.model.resolved import ResolvedModel

_NEWLINE: Final = "\u010a"  # a line break, as byte-level vocabularies write it
_IMAGE: Final = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
}


def _files(
    architecture: str, model_type: str, special: tuple[str, ...], image: str, **parts: Any
) -> Files:
    """A model directory: ``parts`` are added to its files, by the names without ``.json``."""
    tokenizer = byte_level((*CHAT_TOKENS, *special), words=parts.pop("words", ()))
    processor = parts.pop("processor")
    files: Files = {
        "config": {
            "architectures": [architecture],
            "model_type": model_type,
            "image_token_id": special_ids(tokenizer)[image],
            "torch_dtype": "bfloat16",
            "text_config": LLAMA,
        },
        "tokenizer": tokenizer,
        "tokenizer_config": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "preprocessor_config": {
            **_IMAGE,
            **NORMALIZED,
            "image_processor_type": f"{processor}ImageProcessor",
        },
        "processor_config": {"processor_class": f"{processor}Processor"},
    }
    template = CHAT_OPENAI.replace("IMAGE", parts.pop("chat_text", image))
    for name, part in parts.items():
        files[name] = {**files.get(name, {}), **part}
    return {f"{name}.json": content for name, content in files.items()} | {
        "chat_template.jinja": template
    }


def _idefics(architecture: str, model_type: str, processor: str, **parts: Any) -> Files:
    """With some tags that are tokens, and others that are text."""
    tags = tuple(f"<row_{row}_col_{col}>" for row in (1, 2) for col in (1, 2))
    special = ("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *tags)
    vision = {**SIGLIP, "model_type": f"{model_type}_vision", "image_size": 128, "patch_size": 16}
    return _files(
        architecture,
        model_type,
        special,
        "<image>",
        processor=processor,
        preprocessor_config={
            "do_image_splitting": True,
            "do_pad": True,
            "max_image_size": {"longest_edge": 128},
            "size": {"longest_edge": 384},
        },
        processor_config={"image_seq_len": 16},
        config={"scale_factor": 2, "vision_config": vision},
        **parts,
    )


def _granite() -> Files:
    pinpoints = [[96, 96], [96, 192], [192, 96], [192, 192], [96, 384], [384, 96]]
    vision = {**SIGLIP, "image_size": 96, "patch_size": 8}
    files = _files(
        "Granite4VisionForConditionalGeneration",
        "granite4_vision",
        ("<image>",),
        "<image>",
        processor="LlavaNext",
        preprocessor_config={
            "crop_size": {"height": 96, "width": 96},
            "do_pad": True,
            "image_grid_pinpoints": pinpoints,
            "size": {"height": 96, "width": 96},
        },
        processor_config={
            "processor_class": "Granite4VisionProcessor",
            "patch_size": 8,
            "downsample_rate": "2/3",
            "vision_feature_select_strategy": "full",
        },
        config={
            "downsample_rate": "2/3",
            "image_grid_pinpoints": pinpoints,
            "text_config": {**LLAMA, "model_type": "granite4_vision_text"},
            "vision_config": vision,
        },
    )
    config = files["config.json"]
    config["image_token_index"] = config.pop("image_token_id")
    return files


def _lfm2() -> Files:
    text = {
        **LLAMA,
        "model_type": "lfm2",
        "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3,
    }
    return _files(
        "Lfm2VlForConditionalGeneration",
        "lfm2_vl",
        ("<image>", "<|image_start|>", "<|image_end|>", "<|img_row_1_col_1|>"),
        "<image>",
        processor="Lfm2Vl",
        preprocessor_config={
            "tile_size": 128,
            "max_tiles": 6,
            "min_image_tokens": 4,
            "max_image_tokens": 16,
            "size": {"height": 128, "width": 128},
        },
        config={"text_config": text, "vision_config": {"model_type": "siglip2_vision_model"}},
    )


def _hunyuan() -> Files:
    special = ("<image>", "<image_start>", "<image_end>")
    named = dict(zip(("image_token", "image_start_token", "image_end_token"), special, strict=True))
    return _files(
        "HunYuanVLForConditionalGeneration",
        "hunyuan_vl",
        special,
        "<image>",
        processor="HunYuanVL",
        chat_text="<image_start><image><image_end>",
        tokenizer_config={**named, "extra_special_tokens": named},
        preprocessor_config={"size": {"shortest_edge": 16384, "longest_edge": 262144}},
        config={
            "text_config": {
                **LLAMA,
                "model_type": "hunyuan_vl_text",
                "head_dim": 16,
                "pad_token_id": 0,
                "rope_parameters": {
                    "rope_type": "xdrope",
                    "rope_theta": 10000.0,
                    "alpha": 1000.0,
                    "xdrope_section": [2, 2, 2, 2],
                    "factor": 1.0,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                },
            },
            "vision_config": {"model_type": "hunyuan_vl_vision", "hidden_size": 64},
        },
    )


def _muse() -> Files:
    special = (
        "<|patch|>", "<|image_start|>", "<|image_end|>", "<|video|>", "<|vid_start|>",
        "<|vid_end|>", "<|vid_frame_separator|>",
    )  # fmt: skip
    return _files(
        "MuseGlimmerForConditionalGeneration",
        "muse_glimmer",
        special,
        "<|patch|>",
        processor="MuseGlimmer",
        preprocessor_config={"max_image_tokens": 300},
        config={
            "text_config": {"model_type": "muse_glimmer_text", "vocab_size": 640},
            "vision_config": {"model_type": "muse_glimmer_vision"},
        },
    )


def _minicpm(version: str, **config: Any) -> Files:
    special = (
        "<|image_pad|>", "<|video_pad|>", "<image>", "</image>", "<slice>", "</slice>",
        "<image_id>", "</image_id>",
    )  # fmt: skip
    names = (
        "image_token", "video_token", "image_start_token", "image_end_token",
        "slice_start_token", "slice_end_token", "image_id_start_token", "image_id_end_token",
    )  # fmt: skip
    named = dict(zip(names, special, strict=True))
    text = {
        **LLAMA,
        "model_type": "qwen3_5_text",
        "head_dim": 16,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "linear_key_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 16,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    return _files(
        f"MiniCPMV{version}ForConditionalGeneration",
        f"minicpmv{version}",
        special,
        "<|image_pad|>",
        processor="MiniCPMV4_6",
        tokenizer_config={**named, "extra_special_tokens": named},
        preprocessor_config={"max_slice_nums": 6, "scale_resolution": 224},
        processor_config={"processor_class": f"MiniCPMV{version}Processor"},
        config={
            "text_config": text,
            "vision_config": {"patch_size": 14, "image_size": 448},
            **config,
        },
        video_preprocessor_config={"video_processor_type": "MiniCPMV4_6VideoProcessor"},
    )


def _glm() -> Files:
    special = ("<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|video|>",
               "<|begin_of_video|>", "<|end_of_video|>")  # fmt: skip
    files = _files(
        "Glm4vForConditionalGeneration",
        "glm4v",
        special,
        "<|image|>",
        processor="Glm4v",
        chat_text="<|begin_of_image|><|image|><|end_of_image|>",
        preprocessor_config={"size": {"shortest_edge": 20000, "longest_edge": 900000}},
        config={
            "text_config": {
                **LLAMA,
                "model_type": "glm4v_text",
                "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]},
            },
            "vision_config": {"model_type": "glm4v_vision", "depth": 2},
        },
    )
    ids = special_ids(files["tokenizer.json"])
    files["config.json"] |= {
        "video_token_id": ids["<|video|>"],
        "image_start_token_id": ids["<|begin_of_image|>"],
        "image_end_token_id": ids["<|end_of_image|>"],
        "video_start_token_id": ids["<|begin_of_video|>"],
        "video_end_token_id": ids["<|end_of_video|>"],
    }
    return files


def _minimax() -> Files:
    special = ("]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>[")
    files = _files(
        "MiniMaxM3SparseForConditionalGeneration",
        "minimax_m3_vl",
        special,
        "]<]image[>[",
        processor="MiniMaxM3VL",
        preprocessor_config={"max_pixels": 100000},
        processor_config={"processor_class": "MiniMaxVLProcessor"},
        config={"text_config": {"vocab_size": 640, "max_position_embeddings": 8192}},
    )
    ids = special_ids(files["tokenizer.json"])
    files["config.json"] |= {
        "image_token_index": ids["]<]image[>["],
        "video_token_index": ids["]<]video[>["],
    }
    return files


def _qwen3_5() -> Files:
    special = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
    return _files(
        "Qwen3_5ForConditionalGeneration",
        "qwen3_5",
        special,
        "<|image_pad|>",
        processor="Qwen3VL",
        chat_text="<|vision_start|><|image_pad|><|vision_end|>",
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
        preprocessor_config={
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": 16,
            "size": {"shortest_edge": 9000, "longest_edge": 1000000},
        },
        config={
            "text_config": {
                "model_type": "qwen3_5_text",
                "vocab_size": 640,
                "num_hidden_layers": 4,
                "max_position_embeddings": 8192,
            },
            "vision_config": {"model_type": "qwen3_5", "depth": 2},
        },
    )


FAMILY_MODELS: Final[Mapping[str, Callable[[], Files]]] = {
    "small-idefics3": lambda: _idefics(
        "Idefics3ForConditionalGeneration", "idefics3", "Idefics3", words=(_NEWLINE * 2,)
    ),
    "small-smolvlm": lambda: _idefics("SmolVLMForConditionalGeneration", "smolvlm", "SmolVLM"),
    "small-granite4-vision": _granite,
    "small-lfm2-vl": _lfm2,
    "small-hunyuan-vl": _hunyuan,
    "small-minicpm-v-4.6": lambda: _minicpm("4_6"),
    "small-minicpm-v-4.7": lambda: _minicpm("4_7", max_slice_nums=5, image_size=224),
    "small-muse-glimmer": _muse,
    "small-glm-4.1v": _glm,
    "small-minimax-m3": _minimax,
    "small-qwen3.5": _qwen3_5,
    **TILE_FAMILIES,
    **NATIVE_FAMILIES,
    **AUDIO_FAMILIES,
    **BACKEND_FAMILIES,
    **CODE_FAMILIES,
    **OWN_FAMILIES,
    **REMOTE_FAMILIES,
    **QWEN_FAMILIES,
    **VLLM_FAMILIES,
    **INSERTED_FAMILIES,
    **INKLING,
    **TEXT_FAMILIES,
}
"""Name -> its files: JSON values, or text for a template."""

# What the chat templates of these get for items that they do not write by themselves.
_VIDEO: Final = "<|vision_start|><|video_pad|><|vision_end|>"
MEDIA: Final[Mapping[str, Mapping[str, str]]] = {
    "small-qwen2-vl": {"video": _VIDEO},
    "small-qwen2.5-vl": {"video": _VIDEO},
    "small-qwen3-vl": {"video": _VIDEO},
    "small-qwen3.5": {"video": _VIDEO},
    "small-llava-onevision": {"video": "<video>"},
    "small-internvl": {"video": "<video>"},
    "small-minimax-m3": {"video": "]<]video[>["},
    "small-glm-4.1v": {"video": "<|begin_of_video|><|video|><|end_of_video|>"},
    "small-gemma-3n": {"audio": "<audio_soft_token>"},
    "small-gemma-4": {"video": "<|video|>", "audio": "<|audio|>"},
    "small-qwen2.5-omni": {
        "video": "<|vision_start|><|VIDEO|><|vision_end|>",
        "audio": "<|audio_bos|><|AUDIO|><|audio_eos|>",
    },
    "small-qwen3-omni": {"video": _VIDEO, "audio": "<|audio_start|><|audio_pad|><|audio_end|>"},
}
MEDIA_ANSWERED: Final = [model for model in MEDIA if model != "small-glm-4.1v"]
"""Without GLM-4.1V, whose files have no processor of videos: mmroute refuses them."""
_TEXT: Final = "{%- elif 'text' in part -%}"
# Models of these are published with a video processor of their own; the limits are none of theirs.
_WITH_VIDEO_PROCESSOR: Final = ("small-qwen3-vl", "small-qwen3.5")
_VIDEO_PROCESSOR: Final = {
    "video_processor_type": "Qwen3VLVideoProcessor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "size": {"shortest_edge": 20000, "longest_edge": 3000000},
}


ALL_MODELS: Final[Mapping[str, Callable[[], Files]]] = {**SMALL_MODELS, **FAMILY_MODELS}
"""Every small model: name -> its files."""


def media_model(name: str) -> Files:
    """The files of a small model that takes all its items.

    Its template writes them, and its videos have a processor and a token.
    """
    files = ALL_MODELS[name]()
    if name in _WITH_VIDEO_PROCESSOR:
        ids = special_ids(files["tokenizer.json"])
        files["config.json"] = files["config.json"] | {
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|vision_start|>"],
            "vision_end_token_id": ids["<|vision_end|>"],
        }
        files["video_preprocessor_config.json"] = _VIDEO_PROCESSOR
    for modality, written in MEDIA.get(name, {}).items():
        branch = f"{{%- elif part.type == '{modality}' -%}}{written}"
        for file in ("chat_template.json", "chat_template.jinja"):
            if file in files:
                text = json.dumps(files[file]) if file.endswith("json") else files[file]
                assert _TEXT in text, name
                text = text.replace(_TEXT, branch + _TEXT)
                files[file] = json.loads(text) if file.endswith("json") else text
    return files


def write_items(model: ResolvedModel, template: Path) -> None:
    """Let a small model's template write videos and audio as well."""
    branch = "{%- elif 'text' in part -%}"
    text = template.read_text(encoding="utf-8") if template.is_file() else ""
    for modality, rules in model.media.items():
        if branch in text and f"part.type == '{modality}'" not in text:
            spec = getattr(model.family, str(modality))
            written = spec.chat_text or model.tokenizer.decode([*rules.target])
            text = text.replace(
                branch, f"{{%- elif part.type == '{modality}' -%}}{written}{branch}"
            )
    if text:
        template.write_text(text, encoding="utf-8")
