"""What the engine does to ``tokenizer.json`` before it uses it.

transformers 5 has tokenizer classes that take only vocabulary and merges from the file and
write the rest of the pipeline themselves. For such a class the file's own normalizer,
pre-tokenizer or decoder is not what the engine runs. Each entry is the part of the JSON that
the class overwrites, and the fields of ``tokenizer_config.json`` that steer what it writes, with
the values for which this is it.

Sources: transformers 5.20.2, ``models/qwen2/tokenization_qwen2.py``,
``models/qwen3_5/tokenization_qwen3_5.py``, ``models/gpt2/tokenization_gpt2.py``,
``models/gemma/tokenization_gemma.py``, ``models/llama/tokenization_llama.py`` (legacy), and
``models/auto/tokenization_auto.py`` for the model types that keep the file as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mmroute.model.files import JsonValue

__all__ = ["PIPELINES", "Pipeline"]

_QWEN2_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As Qwen2's, but marks (\p{M}) stay with the letters before them.
_QWEN3_5_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a tokenizer class makes of ``tokenizer.json``.

    Attributes:
        overwrites: top-level parts of the file, and what the class puts there.
        assumes: fields of ``tokenizer_config.json``, and the values this holds for.
        special: tokens the class names as special itself, whatever the files say.
    """

    overwrites: Mapping[str, JsonValue] = field(default_factory=dict)
    assumes: Mapping[str, tuple[JsonValue, ...]] = field(default_factory=dict)
    special: tuple[str, ...] = ()


_BYTE_LEVEL_DECODER: Final[dict[str, JsonValue]] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def _split_bytes(split: str) -> Mapping[str, JsonValue]:
    return {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": split},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "decoder": _BYTE_LEVEL_DECODER,
    }


_GPT2: Final[Mapping[str, JsonValue]] = {
    "normalizer": None,
    "pre_tokenizer": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
    "decoder": _BYTE_LEVEL_DECODER,
}
_PIECE_DECODERS: Final[list[JsonValue]] = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_GEMMA: Final[Mapping[str, JsonValue]] = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    },
    "decoder": {
        "type": "Sequence",
        "decoders": _PIECE_DECODERS,
    },
}
# Unlike the file's Prepend normalizer, Metaspace adds no second mark before a space.
_LLAMA_LEGACY: Final[Mapping[str, JsonValue]] = {
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": False,
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            *_PIECE_DECODERS,
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
}

PIPELINES: Final[Mapping[str, Pipeline]] = {
    "file": Pipeline(),
    "qwen2": Pipeline(_split_bytes(_QWEN2_SPLIT), assumes={"add_prefix_space": (None, False)}),
    "qwen3.5": Pipeline(_split_bytes(_QWEN3_5_SPLIT), assumes={"add_prefix_space": (None, False)}),
    "gpt2": Pipeline(_GPT2, assumes={"add_prefix_space": (None, False)}),
    "gemma": Pipeline(_GEMMA, special=("<mask>",)),
    "llama-legacy": Pipeline(
        _LLAMA_LEGACY, assumes={"legacy": (True,), "add_prefix_space": (None, True)}
    ),
}
"""The pipelines by the names that family specs use."""
