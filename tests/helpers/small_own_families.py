"""Small directories of families whose processor is vLLM's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, CHAT_TOKENIZER, CHAT_TOKENS, LLAMA, SIGLIP, Files
from small_parts import NORMALIZED, QWEN2_TOKENIZER
from small_tokenizers import byte_level, special_ids

_TEXT_SIZES: Final = {
    **{name: value for name, value in LLAMA.items() if name != "model_type"},
    "head_dim": 16,
    "max_position_embeddings": 16384,
}
_QWEN3: Final = {**LLAMA, "head_dim": 16, "model_type": "qwen3", "max_position_embeddings": 16384}


def _chat(image: str, **others: str) -> str:
    """A template for parts; ``others``: the type of a part -> its text."""
    chat = CHAT_OPENAI.replace("IMAGE", image)
    cases = "".join(f"{{%- elif part.type == '{kind}' -%}}{text}" for kind, text in others.items())
    return chat.replace("{%- elif 'text' in part -%}", f"{cases}{{%- elif 'text' in part -%}}")


_OVIS: Final = """from transformers import AutoConfig, PretrainedConfig


class SmallConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    has_no_defaults_at_init = True

    def __init__(self, vit_config=None, llm_config=None, visual_vocab_size=65536, **fields):
        super().__init__(**fields)
        self.visual_vocab_size = visual_vocab_size
        if isinstance(vit_config, PretrainedConfig):
            vit_config = vit_config.to_dict()
        self.vit_config = PretrainedConfig(**(vit_config or {}))
        text = dict(llm_config or {"model_type": "qwen3"})
        self.text_config = self.llm_config = AutoConfig.for_model(text.pop("model_type"), **text)
"""


def _ovis(architecture: str, model_type: str, *, added: bool, **vision: int) -> Files:
    """``added``: whether tokenizer.json has the tokens of Ovis; else the processor adds them."""
    special = ("<image>", "<video>", "<ovis_visual_atom>", "<ovis_image_start>",
               "<ovis_image_end>", "<ovis_video_start>", "<ovis_video_end>")  # fmt: skip
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "auto_map": {"AutoConfig": "configuration_small.SmallConfig"},
            "hidden_size": 64,
            "llm_config": _QWEN3,
            "visual_vocab_size": 512,
            "vit_config": {"model_type": "siglip2_navit", "hidden_size": 64, **vision},
        },
        "configuration_small.py": _OVIS.replace("MODEL_TYPE", model_type),
        "tokenizer.json": byte_level((*CHAT_TOKENS, "<|image_pad|>", *(special if added else ()))),
        "tokenizer_config.json": QWEN2_TOKENIZER,
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 384, "width": 384},
        },
        "chat_template.jinja": _chat("<image>\n", video="<video>\n"),
    }


def _deepseek(architecture: str, model_type: str, **processor: Any) -> Files:
    special = ("<bos>", "<eos>", "<pad>", "<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>",
               "<|grounding|>", "<|User|>", "<|Assistant|>")  # fmt: skip
    text = {
        **LLAMA,
        "model_type": "deepseek_v2",
        "max_position_embeddings": 16384,
        "use_mla": False,
    }
    moe = {"kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0}
    more = {"qk_rope_head_dim": 0, "v_head_dim": 0, "n_routed_experts": 4, "n_shared_experts": 1}
    resolutions = processor.get("candidate_resolutions", [[1024, 1024]])
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "candidate_resolutions": resolutions,
            "language_config": {**text, **moe, **more, "moe_intermediate_size": 32},
            "projector_config": {"input_dim": 64, "n_embed": 64, "projector_type": "linear"},
            "tile_tag": "2D",
            "global_view_pos": "head",
            "vision_config": {"image_size": 384, "model_name": "siglip_large_patch16_384"},
        },
        "tokenizer.json": byte_level(special, bos=special[0]),
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": special[0],
            "eos_token": special[1],
            "pad_token": special[2],
            "tokenizer_class": "LlamaTokenizerFast",
        },
        "processor_config.json": {"processor_class": "DeepseekVLV2Processor", **processor},
    }


def _deepseek_vl2() -> Files:
    sides = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 4), (4, 1), (2, 3), (3, 2))
    return _deepseek(
        "DeepseekVLV2ForCausalLM",
        "deepseek_vl_v2",
        candidate_resolutions=[[224 * width, 224 * height] for width, height in sides],
        downsample_ratio=2,
        patch_size=14,
        image_token="<image>",
        sft_format="deepseek",
    )


def _deepseek_v4(*, nested: bool, **vision: Any) -> Files:
    """The IDs of the tokens of images are constants of vLLM, so the vocabulary reaches that far."""
    last = 129264 if nested else 129261
    names = [f"<|place_holder_mm_span_{number:04}|>" for number in range(431, 436)]
    marks = ("<bos>", "<eos>", "<pad>", "<think>", "</think>")
    image = "<\uff5cdeepseek_image\uff5c>"
    tokenizer = byte_level((*marks, *([] if nested else [image])), bos="<bos>")
    vocabulary, added = tokenizer["model"]["vocab"], tokenizer["added_tokens"]
    tail = [image] if nested else names
    fillers = last + 1 - len(tail) - len(added) - len(vocabulary)
    vocabulary |= {f"<filler {i}>": len(vocabulary) + i for i in range(fillers)}
    first = len(vocabulary)
    added += [{**added[0], "content": text} for text in tail]
    for number, token in enumerate(added):
        token["id"] = first + number
    for bos in tokenizer["post_processor"]["special_tokens"].values():
        bos["ids"] = [first]
    text = {
        "hidden_size": 64,
        "max_position_embeddings": 16384,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "vocab_size": last + 20,
    }
    model_type = "deepseek_v41" if nested else "deepseek_v4"
    if nested:
        fields: dict[str, Any] = {"text_config": text, "vision_config": vision}
    else:
        fields = {**text, **{f"vision_{name}": value for name, value in vision.items()}}
    name = "DeepseekV41ForCausalLM" if nested else "DeepseekV4ForConditionalGeneration"
    return {
        "config.json": {"architectures": [name], "model_type": model_type, **fields},
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }


def _muse_spark() -> Files:
    special = (
        "<|patch|>", "<|image_start|>", "<|image_end|>", "<|video|>", "<|vid_start|>",
        "<|vid_end|>", "<|vid_frame_separator|>", "<|audio|>", "<|soft_audio_start|>",
        "<|soft_audio_end|>",
    )  # fmt: skip
    layers = {"hidden_act": "gelu", "hidden_size": 64, "num_attention_heads": 4}
    return {
        "config.json": {
            "architectures": ["MuseSparkForConditionalGeneration"],
            "model_type": "muse_spark",
            "projector_hidden_size": 64,
            "out_hidden_size": 256,
            "text_config": {
                **_TEXT_SIZES,
                "attention_bias": False,
                "hidden_act": "silu",
                "layer_rope_theta": [10000, 10000],
                "layer_types": ["full_attention"] * 2,
                "mlp_layer_types": ["dense"] * 2,
                "num_shared_experts": 0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000},
            },
            "vision_config": {
                **layers,
                "layer_types": ["full_attention"] * 2,
                "merge_size": 2,
                "num_hidden_layers": 2,
                "patch_size": 14,
                "patch_temporal": 2,
                "rope_parameters": {"rope_type": "axial"},
            },
            "audio_config": {
                "depths": [1, 1],
                "hidden_act": "gelu",
                "hidden_sizes": [32, 64],
                "num_hidden_layers": 2,
                "out_hidden_size": 64,
                "patch_sizes": [40, 24],
            },
        },
        "tokenizer.json": byte_level((*CHAT_TOKENS, *special)),
        "tokenizer_config.json": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "processor_config.json": {
            "processor_class": "MuseSparkProcessor",
            "feature_extractor": {"sampling_rate": 16000},
            "image_processor": {"max_image_tokens": 300},
            "video_processor": {"fps": 1.5, "max_video_frame_tokens": 60, "num_frames": 20},
        },
        "chat_template.jinja": _chat("<|patch|>", video="<|video|>", audio="<|audio|>"),
    }


_PLAIN: Final = """from transformers import PretrainedConfig


class SmallConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    has_no_defaults_at_init = True
"""


def _mimo() -> Files:
    special = (
        "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|video_start|>",
        "<|video_end|>", "<|audio_pad|>", "<|mimo_audio_start|>", "<|mimo_audio_end|>",
    )  # fmt: skip
    tokenizer = byte_level((*CHAT_TOKENS, *special))
    ids = special_ids(tokenizer)
    names = (
        "vision_start", "vision_end", "image", "video", "video_start", "video_end", "audio",
        "audio_start", "audio_end",
    )  # fmt: skip
    tokens = {f"{name}_token_id": ids[text] for name, text in zip(names, special, strict=True)}
    return {
        "config.json": {
            "architectures": ["MiMoV2OmniForCausalLM"],
            "model_type": "mimo_v2",
            "auto_map": {"AutoConfig": "configuration_small.SmallConfig"},
            **_TEXT_SIZES,
            "processor_config": {
                **tokens,
                "image_min_pixels": 9000,
                "image_max_pixels": 500000,
                "video_max_pixels": 90000,
                "video_total_max_pixels": 400000,
            },
            "vision_config": {
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "tokens_per_second": 2,
            },
        },
        "configuration_small.py": _PLAIN.replace("MODEL_TYPE", "mimo_v2"),
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": QWEN2_TOKENIZER,
        "chat_template.jinja": _chat(
            "<|vision_start|><|image_pad|><|vision_end|>",
            video="<|vision_start|><|video_pad|><|vision_end|>",
            audio="<|mimo_audio_start|><|audio_pad|><|mimo_audio_end|>",
        ),
    }


def _dots3() -> Files:
    special = (
        "<|img|>", "<|imgpad|>", "<|endofimg|>", "<|audio_comp_start|>", "<|audio_comp_pad|>",
        "<|audio_comp_end|>", "<|video_pad|>",
    )  # fmt: skip
    experts = {
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
    }
    vision = {
        **NORMALIZED,
        "image_details": {"auto": {"max_pixels": 600000}, "high": {"max_pixels": 900000}},
        "max_pixels": 800000,
        "merge_size": 2,
        "min_pixels": 20000,
        "patch_size": 14,
        "temporal_patch_size": 1,
    }
    sizes = {name: value for name, value in _TEXT_SIZES.items() if name != "head_dim"}
    return {
        "config.json": {
            "architectures": ["Dots3NoteForCausalLM"],
            "model_type": "dots3_note",
            **sizes,
            **experts,
            "audio_config": {"chunk_seconds": 30, "merge_factor": 2, "use_conv2d_stem": True},
            "vision_config": {"hidden_size": 64, "patch_size": 14},
        },
        "tokenizer.json": byte_level((*CHAT_TOKENS, *special)),
        "tokenizer_config.json": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "preprocessor_config.json": {"vision_config": vision},
        "chat_template.jinja": _chat(
            "".join(special[:3]), audio="".join(special[3:6]), video=special[6]
        ),
    }


def _ovis_1() -> Files:
    tokenizer = byte_level((*CHAT_TOKENS, "<|image_pad|>"))
    backbone = {"model_type": "siglip_vision_model", **SIGLIP, "image_size": 112, "patch_size": 14}
    return {
        "config.json": {
            "architectures": ["Ovis"],
            "model_type": "ovis",
            "hidden_size": 64,
            "llm_config": {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 16384},
            "visual_tokenizer_config": {
                "model_type": "siglip_visual_tokenizer",
                "backbone_config": backbone,
                "hidden_stride": 2,
            },
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": QWEN2_TOKENIZER,
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 112, "width": 112},
        },
        "chat_template.jinja": _chat("<image>\n"),
    }


def _compass() -> Files:
    special = ("<|VISION_START|>", "<|IMAGE_PAD|>", "<|VISION_END|>", "<|VIDEO_PAD|>")
    tokenizer = byte_level((*CHAT_TOKENS, *special))
    ids = special_ids(tokenizer)
    return {
        "config.json": {
            "architectures": ["CohereCompassForConditionalGeneration"],
            "model_type": "cohere_compass",
            "image_token_id": ids["<|IMAGE_PAD|>"],
            "video_token_id": ids["<|VIDEO_PAD|>"],
            "vision_start_token_id": ids["<|VISION_START|>"],
            "vision_end_token_id": ids["<|VISION_END|>"],
            "text_config": {**_TEXT_SIZES, "model_type": "cohere_compass_text"},
            "vision_config": {"model_type": "cohere_compass_vision", "patch_size": 14},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "preprocessor_config.json": {
            **NORMALIZED,
            "image_processor_type": "CohereCompassImageProcessor",
            "processor_class": "CohereCompassProcessor",
            "size": {"shortest_edge": 6000, "longest_edge": 600000},
        },
        "chat_template.jinja": _chat("<|VISION_START|><|IMAGE_PAD|><|VISION_END|>"),
    }


OWN_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-ovis-2.5": lambda: _ovis(
        "Ovis2_5", "ovis2_5", added=False, patch_size=16, hidden_stride=2, temporal_patch_size=1
    ),
    "small-ovis-2.6": lambda: _ovis(
        "Ovis2_6ForCausalLM", "ovis2_6", added=True, patch_size=14, hidden_stride=2,
        temporal_patch_size=2,
    ),
    "small-deepseek-vl2": _deepseek_vl2,
    "small-deepseek-v4-vision": lambda: _deepseek_v4(
        nested=False, n_layers=2, dim=64, n_heads=4, inter_dim=64, rope_theta=10000.0,
        patch_size=14, downsample_ratio=3, max_n_token=300, min_pixels=30000, max_wh_ratio=30.0,
    ),
    "small-deepseek-v4.1": lambda: _deepseek_v4(
        nested=True, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, patch_size=14,
        downsample_ratio=3, max_image_tokens=300, min_pixels=30000,
    ),
    "small-muse-spark": _muse_spark,
    "small-mimo-v2-omni": _mimo,
    "small-dots3-note": _dots3,
    "small-ovis": _ovis_1,
    "small-cohere-compass": _compass,
    "small-unlimited-ocr": lambda: _deepseek("UnlimitedOCRForCausalLM", "unlimited-ocr"),
}  # fmt: skip
"""Name -> its files."""
