"""Small directories of families whose processor is vLLM's own, or made of its InternVL and Step 3.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import Files
from small_parts import NORMALIZED, TEXT, model_files, with_code

_TILES: Final = ("<img>", "</img>", "<IMG_CONTEXT>")
_QWEN2: Final = {**TEXT, "model_type": "qwen2"}
_DYNAMIC: Final = {
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "max_dynamic_patch": 7,
    "min_dynamic_patch": 1,
    "ps_version": "v2",
    "select_layer": -1,
    "use_thumbnail": True,
    "vision_config": {"image_size": 112, "patch_size": 14, "hidden_size": 64},
}
_IMAGE_PROCESSOR: Final = """from transformers import BatchFeature
from transformers.image_processing_utils import BaseImageProcessor


class SmallImageProcessor(BaseImageProcessor):
    def __init__(self, image_size=512, max_num_tiles=12, use_thumbnail=True, **fields):
        super().__init__(**fields)
        self.image_size = image_size
        self.max_num_tiles = max_num_tiles
        self.use_thumbnail = use_thumbnail
"""


def _qianfan() -> Files:
    return model_files(
        "QianfanOCRForConditionalGeneration",
        "qianfan_ocr",
        _TILES,
        "<image>\n",
        config={
            **_DYNAMIC,
            "image_token_id": "{<IMG_CONTEXT>}",
            "text_config": {**TEXT, "model_type": "qwen3"},
            "vision_config": {"image_size": [112, 112], "patch_size": [14, 14], "hidden_size": 64},
        },
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
        preprocessor_config=NORMALIZED | {"crop_size": 112, "size": 112},
    )


def _skywork() -> Files:
    files = model_files(
        "SkyworkR1VChatModel",
        "skywork_chat",
        _TILES,
        "<image>\n",
        config={**_DYNAMIC, "force_image_size": 140, "llm_config": _QWEN2},
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
    )
    return with_code(files)


def _h2ovl() -> Files:
    files = model_files(
        "H2OVLChatModel",
        "h2ovl_chat",
        _TILES,
        "<image>\n",
        config={**_DYNAMIC, "use_msac": True, "llm_config": _QWEN2},
    )
    return with_code(files)


def _eagle(**config: Any) -> Files:
    files = model_files(
        "Eagle2_5_VLForConditionalGeneration",
        "eagle_2_5_vl",
        _TILES,
        "<image>\n",
        config={**_DYNAMIC, "force_image_size": 140, "text_config": _QWEN2, **config},
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
    )
    return with_code(files, "text_config")


def _nemotron() -> Files:
    files = model_files(
        "Llama_Nemotron_Nano_VL",
        "Llama_Nemotron_Nano_VL",
        ("<img>", "</img>", "<image>"),
        "<image>\n",
        config={
            "downsample_ratio": 0.5,
            "force_image_size": 128,
            "img_context_token_id": "{<image>}",
            "llm_config": {**TEXT, "model_type": "llama"},
            "projector_hidden_size": 64,
            "ps_version": "v2",
            "vision_config": {"image_size": 64, "patch_size": 16, "hidden_size": 64},
            "vit_hidden_size": 64,
        },
        preprocessor_config={
            "auto_map": {"AutoImageProcessor": "image_processing_small.SmallImageProcessor"},
            "image_processor_type": "SmallImageProcessor",
            "image_size": 128,
            "max_num_tiles": 9,
            "use_thumbnail": True,
        },
    )
    return {**with_code(files), "image_processing_small.py": _IMAGE_PROCESSOR}


_STEP: Final = ("<im_patch>", "<im_start>", "<im_end>", "<patch_start>", "<patch_end>",
                "<patch_newline>")  # fmt: skip


def _step_vl() -> Files:
    files = model_files(
        "StepVLForConditionalGeneration",
        "step_robotics",
        _STEP,
        "<im_patch>",
        config={
            "image_token_len": 169,
            "patch_token_len": 81,
            "image_token_id": "{<im_patch>}",
            "text_config": {**TEXT, "model_type": "qwen3"},
            "vision_config": {"width": 64, "layers": 2, "image_size": 728},
        },
    )
    return with_code(files, "text_config")


def _lighton() -> Files:
    return model_files(
        "LightOnOCRForConditionalGeneration",
        "mistral3",
        ("<|image_pad|>", "<|vision_pad|>", "<|vision_end|>"),
        "<|image_pad|>",
        config={
            "image_token_index": "{<|image_pad|>}",
            "multimodal_projector_bias": False,
            "projector_hidden_act": "gelu",
            "spatial_merge_size": 2,
            "text_config": {**TEXT, "model_type": "qwen3"},
            "vision_config": {
                "model_type": "pixtral",
                "head_dim": 16,
                "hidden_size": 64,
                "image_size": 700,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "patch_size": 14,
            },
            "vision_feature_layer": -1,
        },
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
        preprocessor_config=NORMALIZED
        | {
            "do_pad": None,
            "image_processor_type": "PixtralImageProcessor",
            "patch_size": 14,
            "size": {"longest_edge": 840},
        },
        processor_config={
            "image_break_token": "<|vision_pad|>",
            "image_end_token": "<|vision_end|>",
            "image_token": "<|image_pad|>",
            "patch_size": 14,
            "processor_class": "PixtralProcessor",
            "spatial_merge_size": 2,
        },
    )


def _aria() -> Files:
    return model_files(
        "AriaForConditionalGeneration",
        "aria",
        ("<|img|>", "<|fim_prefix|>", "<|fim_suffix|>"),
        "<|fim_prefix|><|img|><|fim_suffix|>",
        config={
            "image_token_index": "{<|img|>}",
            "projector_patch_to_query_dict": {"1225": 40, "4900": 70},
            "text_config": {
                **TEXT,
                "model_type": "aria_text",
                "moe_num_experts": 2,
                "moe_topk": 1,
                "moe_num_shared_experts": 1,
            },
            "vision_config": {
                "model_type": "idefics3_vision",
                "hidden_size": 64,
                "image_size": 980,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "patch_size": 14,
            },
        },
        tokenizer_config={
            "image_token": "<|img|>",
            "extra_special_tokens": {"image_token": "<|img|>"},
        },
        preprocessor_config=NORMALIZED
        | {"image_processor_type": "AriaImageProcessor", "max_image_size": 490},
        processor_config={"processor_class": "AriaProcessor"},
    )


def _glm4v() -> Files:
    return model_files(
        "GLM4VForCausalLM",
        "chatglm",
        ("<|begin_of_image|>", "<|end_of_image|>"),
        "<|begin_of_image|><|endoftext|><|end_of_image|>",
        config={
            "boi_token_id": "{<|begin_of_image|>}",
            "eoi_token_id": "{<|end_of_image|>}",
            "pad_token_id": "{<|endoftext|>}",
            "ffn_hidden_size": 128,
            "hidden_size": 64,
            "kv_channels": 16,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "num_attention_heads": 4,
            "num_layers": 2,
            "padded_vocab_size": 640,
            "seq_length": 8192,
            "vision_config": {"image_size": 280, "patch_size": 14, "hidden_size": 64},
        },
    )


def _bagel() -> Files:
    return model_files(
        "BagelForConditionalGeneration",
        "bagel",
        ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"),
        "<|image_pad|>",
        config={
            "llm_config": _QWEN2,
            "vit_config": {"hidden_size": 64, "image_size": 280, "patch_size": 14},
            "vit_max_num_patch_per_side": 9,
            "visual_gen": True,
            "visual_und": True,
        },
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
        preprocessor_config=NORMALIZED
        | {
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 280, "width": 280},
        },
    )


def _nvlm() -> Files:
    tiles = ("<tile_1>", "<tile_2>", "<tile_global_thumbnail>")
    files = model_files(
        "NVLM_D",
        "NVLM_D",
        ("<Image>", "</Image>", "<|vision_pad|>", *tiles),
        "<image>{{ '\\n' }}",
        config={**_DYNAMIC, "llm_config": _QWEN2},
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
    )
    return with_code(files)


def _isaac() -> Files:
    return model_files(
        "IsaacForConditionalGeneration",
        "isaac",
        ("<|image_pad|>", "<image>"),
        "<image>",
        config={
            **TEXT,
            "model_type": "isaac",
            "max_sequence_length": 16384,
            "pixel_shuffle_scale": 2,
            "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]},
            "video_patch_size": 16,
            "vision_max_num_patches": 6144,
            "vision_min_num_patches": 256,
            "vision_config": {"hidden_size": 64, "patch_size": 16, "num_hidden_layers": 2},
            "vision_token": "<image>",
        },
        tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"},
    )


def _moondream3() -> Files:
    return model_files(
        "HfMoondream",
        "moondream3",
        ("<|md_reserved_0|>", "<|md_reserved_1|>", "<|md_reserved_2|>"),
        "<|endoftext|><image>",
        config={
            "config": {
                "text": {"dim": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 640},
                "vision": {"enc_dim": 64, "enc_n_layers": 2},
            },
        },
        tokenizer_config={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    )


VLLM_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-qianfan-ocr": _qianfan,
    "small-skywork-r1v": _skywork,
    "small-h2ovl": _h2ovl,
    "small-eagle-2.5": _eagle,
    "small-llama-nemotron-nano-vl": _nemotron,
    "small-step-vl": _step_vl,
    "small-lighton-ocr": _lighton,
    "small-aria": _aria,
    "small-glm-4v": _glm4v,
    "small-bagel": _bagel,
    "small-nvlm-d": _nvlm,
    "small-isaac": _isaac,
    "small-moondream3": _moondream3,
}
"""Name -> its files."""
