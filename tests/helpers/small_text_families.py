"""Small directories of models that take text only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_OPENAI, LLAMA, Files
from small_parts import QWEN2_TOKENIZER
from small_tokenizers import byte_level, piece_level

_PIECES: Final = {
    "add_bos_token": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "legacy": False,
    "tokenizer_class": "LlamaTokenizer",
}


def _deepseek(architecture: str, model_type: str) -> Files:
    """One whose chats the engine renders without a template; its name chooses a Rust parser."""
    marks = ("begin\u2581of\u2581sentence", "end\u2581of\u2581sentence", "User", "Assistant")
    special = (*(f"<\uff5c{mark}\uff5c>" for mark in marks), "<think>", "</think>")
    heads: Files = {
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
    }
    files = _text(architecture, model_type=model_type, index_topk=64, index_head_dim=16, **heads)
    del files["chat_template.jinja"]
    return files | {
        "tokenizer.json": byte_level(special, bos=special[0]),
        "tokenizer_config.json": {
            "add_bos_token": True,
            "bos_token": special[0],
            "eos_token": special[1],
            "pad_token": special[1],
            "tokenizer_class": "LlamaTokenizerFast",
        },
    }


def _inkling() -> Files:
    marks = (
        "message_user", "message_model", "message_system", "message_tool", "content_text",
        "content_image", "content_model_end_sampling", "content_thinking", "content_audio_input",
        "unused_200024", "content_invoke_tool_json", "end_message", "audio_end",
    )  # fmt: skip
    files = _text("InklingForCausalLM", model_type="inkling_model")
    del files["chat_template.jinja"]
    special = ("<|endoftext|>", *(f"<|{mark}|>" for mark in marks))
    return files | {
        "tokenizer.json": byte_level(special),
        "tokenizer_config.json": {
            "eos_token": special[0],
            "pad_token": special[0],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
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
        "tokenizer_config.json": _PIECES if pieces else QWEN2_TOKENIZER,
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
    "small-deepseek-v3.2": lambda: _deepseek("DeepseekV32ForCausalLM", "deepseek_v32"),
    "small-deepseek-v4": lambda: _deepseek("DeepseekV4ForCausalLM", "deepseek_v4"),
    "small-inkling": _inkling,
    "small-gpt-oss": lambda: _text("GptOssForCausalLM", model_type="gpt_oss", head_dim=16),
}
"""Name -> its files."""
