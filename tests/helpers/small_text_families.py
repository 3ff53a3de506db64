"""Small directories of models that take text only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, LLAMA, Files
from small_tokenizers import byte_level, piece_level

_BYTES: Final = {
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "tokenizer_class": "Qwen2Tokenizer",
}
_PIECES: Final = {
    "add_bos_token": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "legacy": False,
    "tokenizer_class": "LlamaTokenizer",
}


def _text(architecture: str, *, pieces: bool = False, bos: str = "", **config: Any) -> Files:
    special = ("<|im_start|>", "<|im_end|>")
    return {
        "config.json": {
            **LLAMA,
            "architectures": [architecture],
            "torch_dtype": "bfloat16",
            **config,
        },
        "tokenizer.json": piece_level(("<unk>", "<s>", "</s>"), special)
        if pieces
        else byte_level(("<|endoftext|>", *special)),
        "tokenizer_config.json": _PIECES if pieces else _BYTES,
        "chat_template.jinja": bos + CHAT_OPENAI,
    }


TEXT_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-llama": lambda: _text("LlamaForCausalLM", pieces=True, bos="{{ bos_token }}"),
    "small-qwen3-next": lambda: _text(
        "Qwen3NextForCausalLM",
        model_type="qwen3_next",
        head_dim=16,
        num_hidden_layers=4,
        linear_key_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_value_head_dim=16,
        num_experts=4,
    ),
    "small-gpt-oss": lambda: _text("GptOssForCausalLM", model_type="gpt_oss", head_dim=16),
}
"""Name -> its files."""
