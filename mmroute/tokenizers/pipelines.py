"""The pipelines that the engine's tokenizer classes build in place of those in ``tokenizer.json``.

Sources: transformers ``models/{qwen2,qwen3_5,llama,gemma,gpt2,gpt_neox,cohere}/
tokenization_*.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mmroute.model_directory import JsonValue

_Config = Mapping[str, JsonValue]
_Parts = dict[str, Any]

_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLIT_WITH_MARKS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NFC: Final = {"type": "NFC"}
_MARK: Final = "▁"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts that one class puts in place of the file's own."""

    # Makes normalizer, pre-tokenizer and decoder from the fields of tokenizer_config.json.
    parts: Callable[[_Config], _Parts]
    # The options of the BPE model that differ from the library's defaults.
    model: Mapping[str, JsonValue] = field(default_factory=dict)
    # The class's own special tokens, used for names that tokenizer_config.json lacks.
    defaults: Mapping[str, str] = field(default_factory=dict)
    # The name of the special token that is the BPE model's unknown token.
    unknown: str | None = None
    keeps_post_processor: bool = True  # whether the class keeps the file's post-processor
    # Whether the class drops the flags that a file gives to special tokens.
    resets_flags: bool = False
    not_null: tuple[str, ...] = ()  # fields of tokenizer_config.json that must not be null


def _byte_level(config: _Config, *, use_regex: bool) -> _Parts:
    prefix = bool(config.get("add_prefix_space"))
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


_BYTE_DECODER: Final = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def _split(pattern: str) -> Callable[[_Config], _Parts]:
    def parts(config: _Config) -> _Parts:
        split = {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }
        steps = [split, _byte_level(config, use_regex=False)]
        return {
            "normalizer": _NFC,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "decoder": _BYTE_DECODER,
        }

    return parts


def _gpt2(config: _Config) -> _Parts:
    return {
        "normalizer": None,
        "pre_tokenizer": _byte_level(config, use_regex=True),
        "decoder": _BYTE_DECODER,
    }


def _gpt_neox(config: _Config) -> _Parts:
    return {**_gpt2(config), "normalizer": _NFC}


def _cohere(config: _Config) -> _Parts:
    digits = {"type": "Digits", "individual_digits": True}
    steps = [digits, _byte_level(config, use_regex=True)]
    return {**_gpt_neox(config), "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


_PIECE_DECODERS: Final = (
    {"type": "Replace", "pattern": {"String": _MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)


def _gemma(_: _Config) -> _Parts:
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _MARK},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "decoder": {"type": "Sequence", "decoders": list(_PIECE_DECODERS)},
    }


def _llama(config: _Config) -> _Parts:
    """Unlike the file's Prepend normalizer, Metaspace adds no second mark before a space."""
    prefix = config.get("add_prefix_space") in (None, True)
    scheme = ("always" if config.get("legacy") else "first") if prefix else "never"
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": _MARK,
            "prepend_scheme": scheme,
            "split": False,
        },
        "decoder": {"type": "Sequence", "decoders": [*_PIECE_DECODERS, *[strip] * prefix]},
    }


_PREFIX: Final = ("add_prefix_space",)
_END_OF_TEXT: Final = "<|endoftext|>"
_PIECES: Final = {"fuse_unk": True, "byte_fallback": True}
_QWEN_DEFAULTS: Final = dict.fromkeys(("eos_token", "unk_token", "pad_token"), _END_OF_TEXT)
_GPT2_DEFAULTS: Final = dict.fromkeys(("bos_token", "eos_token", "unk_token"), _END_OF_TEXT)

PIPELINES: Final[Mapping[str, Pipeline]] = {
    "Qwen2Tokenizer": Pipeline(_split(_SPLIT), defaults=_QWEN_DEFAULTS, resets_flags=True),
    "Qwen3_5Tokenizer": Pipeline(_split(_SPLIT_WITH_MARKS), defaults=_QWEN_DEFAULTS),
    "LlamaTokenizer": Pipeline(
        _llama,
        model=_PIECES,
        defaults={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    ),
    "GemmaTokenizer": Pipeline(
        _gemma,
        model=_PIECES,
        defaults={
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
        },
        unknown="unk_token",
    ),
    "GPT2Tokenizer": Pipeline(_gpt2, defaults=_GPT2_DEFAULTS, not_null=_PREFIX),
    "GPTNeoXTokenizer": Pipeline(
        _gpt_neox,
        defaults={**_GPT2_DEFAULTS, "pad_token": "<|padding|>"},
        keeps_post_processor=False,
        not_null=_PREFIX,
    ),
    "CohereTokenizer": Pipeline(
        _cohere,
        defaults={
            "bos_token": "<BOS_TOKEN>",
            "eos_token": "<|END_OF_TURN_TOKEN|>",
            "unk_token": "<UNK>",
            "sep_token": "<SEP>",
            "pad_token": "<PAD>",
            "cls_token": "<CLS>",
            "mask_token": "<MASK_TOKEN>",
        },
        not_null=_PREFIX,
    ),
}
"""The pipelines by the names of their classes."""
