"""What the engine does to ``tokenizer.json`` before it uses it.

transformers 5 has tokenizer classes that take only vocabulary and merges from the file and
write the rest of the pipeline themselves. For such a class the file's own normalizer,
pre-tokenizer or decoder is not what the engine runs. Each entry is the part of the JSON that
the class overwrites.

Sources: transformers 5.20.2, ``models/qwen2/tokenization_qwen2.py``,
``models/gemma/tokenization_gemma.py``, ``models/llama/tokenization_llama.py`` (legacy), and
``models/auto/tokenization_auto.py`` for the model types that keep the file as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.model_files import JsonValue

__all__ = ["PIPELINES"]

_QWEN2_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PIPELINES: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    "file": {},
    "qwen2": {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": _QWEN2_SPLIT},
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
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    },
    "gemma": {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    },
    # Unlike the file's Prepend normalizer, Metaspace adds no second mark before a space.
    "llama-legacy": {
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
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    },
}
"""Name of a pipeline -> the top-level parts of ``tokenizer.json`` it overwrites."""
