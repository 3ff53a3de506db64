"""Small model directories: made-up vocabularies, the real special tokens and configuration fields.

They let the whole way run with the package index alone, and they are what
``tests/core/conformance/vectors`` was computed from: the same files, read by vLLM. Changing one
changes its fingerprint, and the conformance test then says that its vectors are stale.

``python tests/helpers/small_models.py DIRECTORY/small-qwen2.5-vl`` writes one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from small_tokenizers import byte_level, piece_level, special_ids

CHAT_OPENAI: Final = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}IMAGE{%- elif 'text' in part -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- if message.tool_calls -%}{%- for call in message.tool_calls -%}"
    "{{ call.function | tojson }}{%- endfor -%}{%- endif -%}<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if tools -%}{{ tools | tojson }}{%- endif -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
_CHAT_STRING: Final = (
    "{{ bos_token }}{%- for message in messages -%}<|{{ message['role'] }}|>\n"
    "{{ message['content'] }}<|end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>\n{%- endif -%}"
)

Files = dict[str, Any]
CHAT_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TOKENIZER: Final = {
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
}


def chat_files(
    architecture: str, model_type: str, special: tuple[str, ...], chat_text: str, **config: Any
) -> Files:
    """A model without a processor; a text among its fields that is a special token is its ID."""
    tokenizer = byte_level((*CHAT_TOKENS, *special))
    ids = special_ids(tokenizer)
    fields = {
        name: ids[value] if isinstance(value, str) and value in ids else value
        for name, value in config.items()
    }
    return {
        "config.json": {"architectures": [architecture], "model_type": model_type, **fields},
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
        "chat_template.jinja": CHAT_OPENAI.replace("IMAGE", chat_text),
    }


def of_audio(files: Files) -> Files:
    """The same model, whose template writes its text for audio in place of images."""
    files["chat_template.jinja"] = files["chat_template.jinja"].replace("'image'", "'audio'")
    return files


def whisper(**fields: Any) -> dict[str, Any]:
    """A preprocessor_config.json of Whisper's features, its fields in their order."""
    shared = {
        "chunk_length": 10,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "hop_length": 160,
        "n_fft": 400,
        "sampling_rate": 16000,
    }
    return dict(sorted({**shared, **fields}.items()))


def _qwen(architecture: str, model_type: str, *, hide_image_token: bool) -> Files:
    special = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
        "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    )  # fmt: skip
    tokenizer = byte_level(special)
    ids = special_ids(tokenizer)
    decoder = {
        str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokenizer["added_tokens"]
    }
    if hide_image_token:
        tokenizer["added_tokens"] = tokenizer["added_tokens"][:-2]
    text = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "vocab_size": 600,
    }
    qwen3 = model_type == "qwen3_vl"
    patch = 16 if qwen3 else 14
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "torch_dtype": "bfloat16",
        "vision_config": {"depth": 2, "patch_size": patch, "spatial_merge_size": 2},
    }
    if qwen3:
        config["text_config"] = text | {"model_type": "qwen3_vl_text", "head_dim": 16}
        limits: Files = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}}
    else:
        rope = {"type": "mrope", "mrope_section": [2, 3, 3]}
        config |= text | {"rope_scaling": rope, "vision_token_id": ids["<|vision_pad|>"]}
        limits = {"min_pixels": 3136, "max_pixels": 12845056}
    placeholder = "<|vision_start|><|image_pad|><|vision_end|>"
    return {
        "config.json": config,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 131072,
            "tokenizer_class": "Qwen2Tokenizer",
        },
        "preprocessor_config.json": {
            **limits,
            "patch_size": patch,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": architecture.replace("ForConditionalGeneration", "Processor"),
        },
        "chat_template.json": {"chat_template": CHAT_OPENAI.replace("IMAGE", placeholder)},
    }


_CLIP: Final = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "image_size": 336,
    "patch_size": 14,
    "projection_dim": 32,
}
_CLIP_PREPROCESSING: Final = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SIGLIP: Final = {
    "model_type": "siglip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "image_size": 384,
    "patch_size": 14,
}
LLAMA: Final = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
    "vocab_size": 640,
}


def _llava(architecture: str, model_type: str, **config: Any) -> Files:
    tokenizer = piece_level(("<unk>", "<s>", "</s>"), ("<image>", "<pad>"))
    name = architecture.replace("ForConditionalGeneration", "")
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "image_token_index": special_ids(tokenizer)["<image>"],
            "text_config": LLAMA,
            "vision_config": _CLIP,
            "vision_feature_layer": -2,
            "vision_feature_select_strategy": "default",
            "torch_dtype": "float16",
            **config,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "image_token": "<image>",
            "legacy": False,
            "tokenizer_class": "LlamaTokenizer",
            "processor_class": f"{name}Processor",
        },
        "preprocessor_config.json": {
            "crop_size": {"height": 336, "width": 336},
            "do_center_crop": True,
            **_CLIP_PREPROCESSING,
            "image_processor_type": "CLIPImageProcessor",
            "processor_class": f"{name}Processor",
            "resample": 3,
            "size": {"shortest_edge": 336},
        },
        "processor_config.json": {
            "image_token": "<image>",
            "num_additional_image_tokens": 1,
            "patch_size": 14,
            "processor_class": f"{name}Processor",
            "vision_feature_select_strategy": "default",
        },
        "chat_template.jinja": CHAT_OPENAI.replace("IMAGE", "<image>\n"),
    }


_NEXT_PINPOINTS: Final = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def _llava_next() -> Files:
    files = _llava(
        "LlavaNextForConditionalGeneration", "llava_next", image_grid_pinpoints=_NEXT_PINPOINTS
    )
    files["preprocessor_config.json"] |= {
        "image_processor_type": "LlavaNextImageProcessor",
        "image_grid_pinpoints": _NEXT_PINPOINTS,
        "do_pad": True,
    }
    return files


def _llava_onevision() -> Files:
    pinpoints = [[384 * i, 384 * j] for i in range(1, 7) for j in range(1, 7)]
    tokenizer = byte_level(("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"))
    ids = special_ids(tokenizer)
    text = {**LLAMA, "model_type": "qwen2", "max_position_embeddings": 32768}
    return {
        "config.json": {
            "architectures": ["LlavaOnevisionForConditionalGeneration"],
            "model_type": "llava_onevision",
            "image_token_index": ids["<image>"],
            "video_token_index": ids["<video>"],
            "image_grid_pinpoints": pinpoints,
            "text_config": text,
            "vision_config": SIGLIP,
            "vision_aspect_ratio": "anyres_max_9",
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "torch_dtype": "float16",
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
            "chat_template": _CHAT_STRING,
        },
        "preprocessor_config.json": {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_pad": True,
            "do_rescale": True,
            "do_resize": True,
            "image_grid_pinpoints": pinpoints,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "processor_class": "LlavaOnevisionProcessor",
            "resample": 3,
            "size": {"height": 384, "width": 384},
        },
        "processor_config.json": {
            "image_token": "<image>",
            "video_token": "<video>",
            "num_image_tokens": 729,
            "processor_class": "LlavaOnevisionProcessor",
            "vision_feature_select_strategy": "full",
        },
        "chat_template.json": {"chat_template": CHAT_OPENAI.replace("IMAGE", "<image>")},
    }


_PIXTRAL_VISION: Final = {
    "model_type": "pixtral",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "head_dim": 16,
    "image_size": 1024,
    "patch_size": 16,
}


def _pixtral(architecture: str, model_type: str, side: int, **config: Any) -> Files:
    special = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]")
    tokenizer = byte_level(special, bos="<s>")
    tokenizer["normalizer"] = None
    return {
        "config.json": {
            "architectures": [architecture],
            "model_type": model_type,
            "image_token_index": special_ids(tokenizer)["[IMG]"],
            "text_config": {**LLAMA, "model_type": "mistral", "head_dim": 16},
            "vision_config": {**_PIXTRAL_VISION, "image_size": side},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "torch_dtype": "bfloat16",
            **config,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "processor_class": "PixtralProcessor",
        },
        "preprocessor_config.json": {
            **_CLIP_PREPROCESSING,
            "image_processor_type": "PixtralImageProcessor",
            "patch_size": {"height": 16, "width": 16},
            "processor_class": "PixtralProcessor",
            "size": {"longest_edge": side},
        },
        "processor_config.json": {
            "image_token": "[IMG]",
            "image_break_token": "[IMG_BREAK]",
            "image_end_token": "[IMG_END]",
            "patch_size": 16,
            "processor_class": "PixtralProcessor",
            "spatial_merge_size": config.get("spatial_merge_size", 1),
        },
        "chat_template.jinja": CHAT_OPENAI.replace("IMAGE", "[IMG]"),
    }


def _mistral3() -> Files:
    return _pixtral("Mistral3ForConditionalGeneration", "mistral3", 1540, spatial_merge_size=2)


def _phi3v(num_crops: int) -> Files:
    # vLLM's fill for this family is the constant 32044, so the vocabulary reaches that far.
    last = 32044
    special = ("<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>")
    tokenizer = piece_level(("<unk>", "<s>", "</s>"), (*special, "<|image|>"))
    vocabulary = tokenizer["model"]["vocab"]
    fillers = last - len(vocabulary) - len(special)
    vocabulary |= {f"<filler {i}>": len(vocabulary) + i for i in range(fillers)}
    for i, token in enumerate(tokenizer["added_tokens"][-len(special) - 1 :]):
        token["id"] = len(vocabulary) + i
    for token in tokenizer["added_tokens"]:
        token["rstrip"] = token["content"] in {"<|assistant|>", "<|image|>", "</s>"}
    return {
        "config.json": {
            **LLAMA,
            "architectures": ["Phi3VForCausalLM"],
            "model_type": "phi3_v",
            "vocab_size": 32064,
            "img_processor": {"name": "clip_vision_model", "num_img_tokens": 144},
            "torch_dtype": "bfloat16",
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "additional_special_tokens": ["<|system|>", "<|end|>", "<|user|>"],
            "bos_token": "<s>",
            "eos_token": "<|endoftext|>",
            "unk_token": "<unk>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "LlamaTokenizer",
            "chat_template": _CHAT_STRING.replace("{{ bos_token }}", ""),
        },
        "preprocessor_config.json": {
            "image_processor_type": "Phi3VImageProcessor",
            "num_crops": num_crops,
            "num_img_tokens": 144,
            "processor_class": "Phi3VProcessor",
        },
    }


def _gemma3() -> Files:
    special = ("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
               "<image_soft_token>")  # fmt: skip
    tokenizer = piece_level(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), special, gemma=True)
    ids = special_ids(tokenizer)
    template = (
        CHAT_OPENAI.replace("IMAGE", "<start_of_image>")
        .replace("<|im_start|>", "<start_of_turn>")
        .replace("<|im_end|>", "<end_of_turn>")
    )
    return {
        "config.json": {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "boi_token_index": ids["<start_of_image>"],
            "eoi_token_index": ids["<end_of_image>"],
            "image_token_index": ids["<image_soft_token>"],
            "mm_tokens_per_image": 256,
            "torch_dtype": "bfloat16",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "num_hidden_layers": 2,
                "max_position_embeddings": 8192,
                "vocab_size": 640,
            },
            "vision_config": {**SIGLIP, "image_size": 896},
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
            "extra_special_tokens": {
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
            "tokenizer_class": "GemmaTokenizer",
            "processor_class": "Gemma3Processor",
        },
        "preprocessor_config.json": {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "image_processor_type": "Gemma3ImageProcessor",
            "image_seq_length": 256,
            "processor_class": "Gemma3Processor",
            "size": {"height": 896, "width": 896},
        },
        "processor_config.json": {"image_seq_length": 256, "processor_class": "Gemma3Processor"},
        "chat_template.jinja": "{{ bos_token }}" + template,
    }


SMALL_MODELS: Final[Mapping[str, Callable[[], Files]]] = {
    "small-qwen2-vl": lambda: _qwen(
        "Qwen2VLForConditionalGeneration", "qwen2_vl", hide_image_token=True
    ),
    "small-qwen2.5-vl": lambda: _qwen(
        "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", hide_image_token=False
    ),
    "small-qwen3-vl": lambda: _qwen(
        "Qwen3VLForConditionalGeneration", "qwen3_vl", hide_image_token=False
    ),
    "small-llava-1.5": lambda: _llava("LlavaForConditionalGeneration", "llava"),
    "small-llava-next": _llava_next,
    "small-llava-onevision": _llava_onevision,
    "small-pixtral-hf": lambda: _pixtral("LlavaForConditionalGeneration", "llava", 1024),
    "small-mistral3": _mistral3,
    "small-phi-3-vision": lambda: _phi3v(16),
    "small-phi-3.5-vision": lambda: _phi3v(4),
    "small-gemma-3": _gemma3,
}
"""Name -> its files: JSON values, or text for a template."""


def as_qwen3_5(files: Files) -> None:
    """Make a small Qwen3-VL a hybrid model, whose engine chooses the block size."""
    config = files["config.json"]
    config |= {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}


def write_model(files: Files, directory: Path) -> Path:
    """Write a model directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def fingerprint(files: Files) -> str:
    """SHA-256 over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name]
        if not isinstance(content, str):
            content = json.dumps(content, ensure_ascii=False, indent=1)
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


if __name__ == "__main__":
    import sys

    for _directory in map(Path, sys.argv[1:]):
        write_model(SMALL_MODELS[_directory.name](), _directory)
