"""Small directories of families whose processor is code that comes with the model.

The code is not here: ``tools/generate.py --code DIRECTORY`` lays that of DIRECTORY/MODEL beside
the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import (
    CHAT_TOKENIZER,
    LLAMA,
    Files,
    chat_files,
    of_audio,
    whisper,
)
from small_parts import NORMALIZED, with_code
from small_qwen_families import QWEN_FAMILIES


def _kimi_vl() -> Files:
    special = ("<|media_start|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")
    experts = {
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
    }
    text = {**LLAMA, **experts, "model_type": "deepseek_v2", "max_position_embeddings": 16384}
    files = chat_files(
        "KimiVLForConditionalGeneration",
        "kimi_vl",
        special,
        "<|media_start|>image<|media_content|><|media_pad|><|media_end|>",
        media_placeholder_token_id="<|media_pad|>",
        text_config=text,
        vision_config={"model_type": "moonvit", "patch_size": 14, "merge_kernel_size": [2, 2]},
    )
    files["preprocessor_config.json"] = {
        **NORMALIZED,
        "auto_map": {
            "AutoImageProcessor": "image_processing_kimi_vl.KimiVLImageProcessor",
            "AutoProcessor": "processing_kimi_vl.KimiVLProcessor",
        },
        "in_token_limit": 1000,
        "pad_input": True,
        "patch_size": 14,
    }
    return files


def _moss_diarize() -> Files:
    special = ("<|audio_start|>", "<|audio_pad|>", "<|audio_end|>")
    files = chat_files(
        "MossTranscribeDiarizeForConditionalGeneration",
        "moss_transcribe_diarize",
        special,
        "".join(special),
        audio_token_id="<|audio_pad|>",
        audio_config={"model_type": "whisper", "d_model": 64, "encoder_layers": 2},
        text_config={
            **LLAMA,
            "model_type": "qwen3",
            "head_dim": 16,
            "layer_types": ["full_attention"] * 2,
        },
    )
    processor = "MossTranscribeDiarizeProcessor"
    code = {"AutoProcessor": f"processing_moss_transcribe_diarize.{processor}"}
    files["preprocessor_config.json"] = whisper(
        auto_map=code, feature_size=80, processor_class=processor
    )
    files["processor_config.json"] = {
        "audio_merge_size": 4,
        "audio_tokens_per_second": 12.5,
        "auto_map": code,
        "processor_class": processor,
        "time_marker_every_seconds": 2,
    }
    return of_audio(files)


def _dasheng() -> Files:
    special = ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")
    files = chat_files(
        "MiDashengLMModel",
        "midashenglm",
        special,
        "".join(special),
        audio_token_id="<|AUDIO|>",
        audio_encoder_config={"model_type": "midashenglm_dasheng_encoder", "embed_dim": 64},
        subsample_factor=5,
        text_config={**LLAMA, "model_type": "qwen2_5_omni_text", "max_position_embeddings": 16384},
    )
    names = ("audio_bos_token", "audio_token", "audio_eos_token")
    files["tokenizer_config.json"] = {
        **CHAT_TOKENIZER,
        "extra_special_tokens": dict(zip(names, special, strict=True)),
        "tokenizer_class": "Qwen2Tokenizer",
    }
    auto_map = {"AutoProcessor": "processing_midashenglm.MiDashengLMProcessor"}
    files["preprocessor_config.json"] = {
        "auto_map": auto_map,
        "do_normalize": False,
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "feature_size": 1,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "MiDashengLMProcessor",
        "return_attention_mask": True,
        "sampling_rate": 16000,
    }
    files["processor_config.json"] = {
        "auto_map": auto_map,
        "processor_class": "MiDashengLMProcessor",
    }
    return of_audio(files)


_STRING: Final = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
_QWEN2: Final = """from transformers import PretrainedConfig, Qwen2Config


class SmallConfig(Qwen2Config):
    model_type = "MODEL_TYPE"

    def __init__(self, slice_config=None, vision_config=None, audio_config=None, **fields):
        self.slice_config = PretrainedConfig(**(slice_config or {}))
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        self.audio_config = PretrainedConfig(**(audio_config or {}))
        super().__init__(**fields)
"""


def _keye() -> Files:
    special = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>")
    files = chat_files(
        "KeyeForConditionalGeneration",
        "Keye",
        special,
        "<|vision_start|><|image_pad|><|vision_end|>",
        image_token_id="<|image_pad|>",
        video_token_id="<|video_pad|>",
        vision_config={"patch_size": 14, "spatial_merge_size": 2, "hidden_size": 64},
    )
    files["config.json"] |= {
        **LLAMA,
        "auto_map": {"AutoConfig": "configuration_small.SmallConfig"},
        "max_position_embeddings": 16384,
        "model_type": "Keye",
        "rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"},
    }
    files["configuration_small.py"] = _QWEN2.replace("MODEL_TYPE", "Keye")
    auto_map = {
        "AutoImageProcessor": "image_processing_keye.SiglipImageProcessor",
        "AutoProcessor": "processing_keye.KeyeProcessor",
    }
    files["preprocessor_config.json"] = {
        **NORMALIZED,
        "auto_map": auto_map,
        "max_pixels": 600000,
        "merge_size": 2,
        "min_pixels": 6000,
        "patch_size": 14,
        "processor_class": "KeyeProcessor",
        "temporal_patch_size": 1,
    }
    return files


_PHI3: Final = """from transformers import Phi3Config


class SmallConfig(Phi3Config):
    model_type = "phi4mm"

    def __init__(self, embd_layer=None, img_processor=None, **fields):
        self.embd_layer = embd_layer
        self.img_processor = img_processor
        super().__init__(**fields)
"""


def _phi4() -> Files:
    files = chat_files("Phi4MMForCausalLM", "phi4mm", ("<|user|>", "<|end|>", "<|assistant|>"), "")
    tokenizer = files["tokenizer.json"]
    added = tokenizer["added_tokens"]
    # The engine has their IDs as constants.
    images = ({**added[0], "content": f"<|endoftext{n}|>", "id": 200000 + n} for n in (10, 11))
    tokenizer["added_tokens"] = [*added, *images]
    tokenizer["model"]["vocab"] |= {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    files["config.json"] |= {
        **LLAMA,
        "auto_map": {"AutoConfig": "configuration_small.SmallConfig"},
        "embd_layer": {"audio_embd_layer": {"compression_rate": 8}},
        "max_position_embeddings": 16384,
        "model_type": "phi4mm",
        "pad_token_id": 0,
        "vocab_size": 200064,
    }
    files["configuration_small.py"] = _PHI3
    files["preprocessor_config.json"] = {
        "audio_compression_rate": 8,
        "audio_downsample_rate": 1,
        "audio_feat_stride": 1,
        "auto_map": {
            "AutoFeatureExtractor": "processing_phi4mm.Phi4MMAudioFeatureExtractor",
            "AutoImageProcessor": "processing_phi4mm.Phi4MMImageProcessor",
            "AutoProcessor": "processing_phi4mm.Phi4MMProcessor",
        },
        "dynamic_hd": 7,
        "feature_extractor_type": "Phi4MMAudioFeatureExtractor",
        "image_processor_type": "Phi4MMImageProcessor",
        "processor_class": "Phi4MMProcessor",
    }
    files["chat_template.jinja"] = _STRING
    return files


def _minicpm(letter: str, version: float, *, tokenizer: str = "O", **processor: Any) -> Files:
    """``letter``: V for images and videos, O for audio as well."""
    special = (
        "<unk>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>",
        "<|audio_start|>", "<|audio_end|>", "<|spk_bos|>", "<|spk_eos|>",
    )  # fmt: skip
    of_tokenizer = f"MiniCPM{tokenizer}TokenizerFast"
    name, model_type = f"MiniCPM{letter}", f"minicpm{letter.lower()}"
    files = chat_files(name, model_type, special, "(<image>./</image>)")
    files["config.json"] |= {
        **LLAMA,
        "auto_map": {"AutoConfig": "configuration_small.SmallConfig"},
        "max_position_embeddings": 16384,
        "model_type": model_type,
        "audio_pool_step": 2,
        "query_num": 9,
        "version": version,
    }
    files["configuration_small.py"] = _QWEN2.replace("MODEL_TYPE", model_type)
    files["tokenizer_config.json"] = {
        **CHAT_TOKENIZER,
        "bos_token": "<|im_start|>",
        "auto_map": {
            "AutoTokenizer": [f"tokenization_minicpm{tokenizer.lower()}_fast.{of_tokenizer}", None]
        },
        "tokenizer_class": of_tokenizer,
        "unk_token": "<unk>",
    }
    files["preprocessor_config.json"] = {
        "auto_map": {
            "AutoImageProcessor": "image_processing_minicpmv.MiniCPMVImageProcessor",
            "AutoProcessor": f"processing_{model_type}.{name}Processor",
        },
        "image_feature_size": 9,
        "image_processor_type": "MiniCPMVImageProcessor",
        "norm_mean": [0.5, 0.5, 0.5],
        "norm_std": [0.5, 0.5, 0.5],
        "patch_size": 14,
        "processor_class": f"{name}Processor",
        "scale_resolution": 200,
        "use_image_id": True,
        "version": version,
        **processor,
    }
    files["chat_template.jinja"] = _STRING
    return files


def _hyperclovax() -> Files:
    """Without a file for its video processor, so that vLLM has no sampler of its own for it."""
    files = QWEN_FAMILIES["small-hyperclovax-vision-v2"]()
    del files["processor_config.json"], files["video_preprocessor_config.json"]
    files["config.json"] |= {
        "model_type": "vlm",
        "vision_config": {"hidden_size": 64, "patch_size": 14, "spatial_merge_size": 2},
    }
    files["preprocessor_config.json"] |= {
        "auto_map": {"AutoProcessor": "processing_vlm.HCXVisionV2Processor"},
        "max_pixels": 600000,
        "min_pixels": 4000,
        "processor_class": "HCXVisionV2Processor",
    }
    return with_code(files, "text_config")


CODE_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-hyperclovax-vision-v2-code": _hyperclovax,
    "small-keye": _keye,
    "small-kimi-vl": _kimi_vl,
    "small-phi-4-multimodal": _phi4,
    "small-moss-transcribe-diarize": _moss_diarize,
    "small-midashenglm": _dasheng,
    "small-minicpm-v-2.6": lambda: _minicpm("V", 2.6, max_slice_nums=7),
    "small-minicpm-v-4.5": lambda: _minicpm("V", 4.5, tokenizer="V", max_slice_nums=5),
    "small-minicpm-o-2.6": lambda: _minicpm("O", 2.6, max_slice_nums=9),
}
"""Name -> its files."""
