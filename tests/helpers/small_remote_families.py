"""Small directories of families whose configuration class vLLM takes from the model's repository.

The class in them is of our own make: it holds the fields of config.json, and makes a configuration
of the text model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, LLAMA, Files
from small_tokenizers import byte_level, special_ids

_CHAT: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NORMALIZED: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_TOKENIZER: Final = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
_QWEN2: Final = {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 16384}
_NESTED: Final = """from transformers import AutoConfig, PretrainedConfig


class SmallConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    has_no_defaults_at_init = True

    def __init__(self, vision_config=None, llm_config=None, **fields):
        super().__init__(**fields)
        if isinstance(vision_config, PretrainedConfig):
            vision_config = vision_config.to_dict()
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        text = dict(llm_config or {"model_type": "qwen2"})
        self.text_config = self.llm_config = AutoConfig.for_model(text.pop("model_type"), **text)
"""
_DOTS: Final = """from transformers import PretrainedConfig, Qwen2Config


class DotsOCRConfig(Qwen2Config):
    model_type = "MODEL_TYPE"

    def __init__(self, vision_config=None, **fields):
        super().__init__(**fields)
        self.vision_config = PretrainedConfig(**(vision_config or {}))
"""


def _files(
    architecture: str, model_type: str, code: str, special: tuple[str, ...], chat_text: str
) -> Files:
    name = "DotsOCRConfig" if code is _DOTS else "SmallConfig"  # vLLM looks at the name of that one
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "auto_map": {"AutoConfig": f"configuration_small.{name}"},
        },
        "configuration_small.py": code.replace("MODEL_TYPE", model_type),
        "tokenizer.json": byte_level((*_CHAT, *special)),
        "tokenizer_config.json": {**_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "chat_template.jinja": CHAT_OPENAI.replace("IMAGE", chat_text),
    }


def _internvl_chat() -> Files:
    special = ("<img>", "</img>", "<IMG_CONTEXT>")
    files = _files("InternVLChatModel", "internvl_chat", _NESTED, special, "<image>\n")
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
        **_NORMALIZED,
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
    files = _files(omni if limits else model_type, model_type, _NESTED, special, "<image>")
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
    files = _files("DotsOCRForCausalLM", "dots_ocr", _DOTS, special, chat_text)
    files["tokenizer_config.json"]["tokenizer_class"] = "Qwen2Tokenizer"
    ids = special_ids(files["tokenizer.json"])
    text: dict[str, Any] = {**_QWEN2}
    del text["model_type"]
    files["config.json"] |= {
        **text,
        "image_token_id": ids["<|imgpad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 1},
    }
    files["preprocessor_config.json"] = {
        **_NORMALIZED,
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
