"""What the small directories of several modules are made of."""

from __future__ import annotations

from typing import Any, Final

from small_models import CHAT_OPENAI, CHAT_TOKENIZER, CHAT_TOKENS, LLAMA, Files
from small_tokenizers import byte_level, special_ids

QWEN2_TOKENIZER: Final = {**CHAT_TOKENIZER, "tokenizer_class": "Qwen2Tokenizer"}
NORMALIZED: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
TEXT: Final = {**LLAMA, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 16384}
_CODE: Final = """from transformers import AutoConfig, PretrainedConfig


class SmallConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    has_no_defaults_at_init = True

    def __init__(self, vision_config=None, TEXT=None, **fields):
        super().__init__(**fields)
        if isinstance(vision_config, PretrainedConfig):
            vision_config = vision_config.to_dict()
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        text = dict(TEXT or {"model_type": "qwen2"})
        self.text_config = self.TEXT = AutoConfig.for_model(text.pop("model_type"), **text)
"""


def model_files(
    architecture: str,
    model_type: str,
    special: tuple[str, ...],
    image: str,
    *,
    video: str = "",
    **parts: Any,
) -> Files:
    """A model directory with a byte-level tokenizer.

    Args:
        architecture: of config.json.
        model_type: of config.json.
        special: texts of special tokens beside those of chats.
        image: what the chat template writes for an image.
        video: what it writes for a video.
        parts: name of a file without ``.json`` -> fields that are added to it; ``{TEXT}`` in a
            field of config.json is the ID of the special token TEXT.
    """
    tokenizer = byte_level((*CHAT_TOKENS, *special))
    ids = special_ids(tokenizer)
    files: Files = {
        "config": {
            "architectures": [architecture],
            "model_type": model_type,
            "torch_dtype": "bfloat16",
        },
        "tokenizer_config": {**CHAT_TOKENIZER, "tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, part in parts.items():
        files[name] = {**files.get(name, {}), **part}
    config = files["config"]
    for name, value in config.items():
        if isinstance(value, str) and value.startswith("{"):
            config[name] = ids[value[1:-1]]
    video_branch = "{%- elif part.type == 'video' -%}" + video
    text_branch = "{%- elif 'text' in part -%}"
    template = CHAT_OPENAI.replace(text_branch, video_branch + text_branch)
    return {f"{name}.json": content for name, content in files.items()} | {
        "tokenizer.json": tokenizer,
        "chat_template.jinja": template.replace("IMAGE", image),
    }


def with_code(files: Files, text: str = "llm_config") -> Files:
    """A model directory whose configuration class vLLM takes from the directory.

    Args:
        files: the directory.
        text: the field of config.json with the text model's configuration.
    """
    config = files["config.json"]
    config["auto_map"] = {"AutoConfig": "configuration_small.SmallConfig"}
    code = _CODE.replace("MODEL_TYPE", config["model_type"]).replace("TEXT", text)
    return {**files, "configuration_small.py": code}
