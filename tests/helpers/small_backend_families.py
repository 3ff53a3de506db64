"""Small directories of families that vLLM runs by its transformers backend.

Where a file gives a value, it is not the published one: a default that hides behind the published
value shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from small_models import Files
from small_parts import NORMALIZED, TEXT, model_files

_NAMED: Final = {
    "image_token": "<image>",
    "boi_token": "<|image start|>",
    "eoi_token": "<|image end|>",
    "image_wrapper_token": "<|image token|>",
    "eof_token": "<|extra_201|>",
}


def _emu3() -> Files:
    return model_files(
        "Emu3ForConditionalGeneration",
        "emu3",
        ("<|extra_201|>", "<|image token|>", "<|image start|>", "<|image end|>", "<image>"),
        "<image>",
        config={
            "text_config": {**TEXT, "model_type": "emu3_text_model"},
            "vocabulary_map": {"<image>": 1},
            "vq_config": {"model_type": "emu3_vqgan", "base_channels": 32},
        },
        tokenizer_config={
            **_NAMED,
            "add_prefix_space": False,
            "extra_special_tokens": _NAMED,
            "tokenizer_class": "GPT2Tokenizer",
        },
        preprocessor_config={
            **NORMALIZED,
            "image_processor_type": "Emu3ImageProcessor",
            "max_pixels": 65536,
            "min_pixels": 5000,
            "processor_class": "Emu3Processor",
            "spatial_factor": 12,
        },
        processor_config={"processor_class": "Emu3Processor"},
    )


BACKEND_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {"small-emu3": _emu3}
"""Name -> its files."""
