"""Small directories of families whose configuration class vLLM takes from the model's repository.

The class in them is of our own make: it holds the fields of config.json, and makes a configuration
of the text model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import LLAMA, Files, chat_files
from small_parts import NORMALIZED, with_code
from small_tokenizers import special_ids

_QWEN2: Final = {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 16384}
_DOTS: Final = """from transformers import PretrainedConfig, Qwen2Config


class DotsOCRConfig(Qwen2Config):
    model_type = "dots_ocr"

    def __init__(self, vision_config=None, **fields):
        super().__init__(**fields)
        self.vision_config = PretrainedConfig(**(vision_config or {}))
"""


def _internvl_chat() -> Files:
    special = ("<img>", "</img>", "<IMG_CONTEXT>")
    files = with_code(chat_files("InternVLChatModel", "internvl_chat", special, "<image>\n"))
    files["tokenizer_config.json"]["tokenizer_class"] = "Qwen2Tokenizer"
    files["config.json"] |= {
        "downsample_ratio": 0.5,
        "dynamic_image_size": True,
        "force_image_size": 112,
        "llm_config": _QWEN2,
        "max_dynamic_patch": 7,
        "min_dynamic_patch": 1,
        "ps_version": "v2",
        "select_layer": -1,
        "use_thumbnail": True,
        "vision_config": {"image_size": 112, "patch_size": 14, "hidden_size": 64},
    }
    files["preprocessor_config.json"] = {
        **NORMALIZED,
        "crop_size": 112,
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 112,
    }
    return files


def _nemotron(**limits: int) -> Files:
    """With ``limits`` of patches images share a budget, without they are cut into tiles."""
    special = ("<image>", "<img>", "</img>", "<video>", "<so_embedding>")
    model_type = "NemotronH_Nano_VL_V2"
    omni = "NemotronH_Nano_Omni_Reasoning_V3"
    architecture = omni if limits else model_type
    files = with_code(chat_files(architecture, model_type, special, "<image>"))
    files["config.json"] |= {
        "downsample_ratio": 0.5,
        "force_image_size": 128,
        "img_context_token_id": special_ids(files["tokenizer.json"])["<image>"],
        "llm_config": {
            **LLAMA,
            "model_type": "nemotron_h",
            "head_dim": 16,
            "hybrid_override_pattern": "M*-",
            "mamba_head_dim": 16,
            "mamba_num_heads": 8,
            "n_groups": 2,
            "num_hidden_layers": 3,
            "ssm_state_size": 16,
        },
        "norm_mean": [0.5, 0.5, 0.5],
        "norm_std": [0.5, 0.5, 0.5],
        "patch_size": 16,
        "projector_hidden_size": 64,
        "ps_version": "v2",
        "use_thumbnail": True,
        "vision_config": {
            "patch_size": 16,
            "image_size": 128,
            "args": {"model": "vit_huge_patch16_224", "teachers": [], **limits},
        },
        "vit_hidden_size": 64,
    }
    files["preprocessor_config.json"] = {"image_processor_type": "CLIPImageProcessor", "size": 128}
    return files


def _dots() -> Files:
    special = ("<|img|>", "<|imgpad|>", "<|endofimg|>", "<|image_pad|>", "<|video_pad|>")
    chat_text = "<|img|><|imgpad|><|endofimg|>"
    files = chat_files("DotsOCRForCausalLM", "dots_ocr", special, chat_text)
    files["configuration_small.py"] = _DOTS
    files["tokenizer_config.json"]["tokenizer_class"] = "Qwen2Tokenizer"
    ids = special_ids(files["tokenizer.json"])
    text: dict[str, Any] = {**_QWEN2}
    del text["model_type"]
    files["config.json"] |= {
        "auto_map": {"AutoConfig": "configuration_small.DotsOCRConfig"},  # vLLM asks for it
        **text,
        "image_token_id": ids["<|imgpad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 1},
    }
    files["preprocessor_config.json"] = {
        **NORMALIZED,
        "image_processor_type": "Qwen2VLImageProcessor",
        "max_pixels": 800000,
        "min_pixels": 5000,
        "processor_class": "DotsVLProcessor",
    }
    return files


REMOTE_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-internvl-chat": _internvl_chat,
    "small-nemotron-nano-vl": _nemotron,
    "small-nemotron-omni": lambda: _nemotron(min_num_patches=64, max_num_patches=1024),
    "small-dots-ocr": _dots,
}
"""Name -> its files."""
