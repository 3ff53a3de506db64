"""The tokenizer class that the engine uses for a model, by its model type and declared class.

vLLM hands the choice to transformers, except for a few model types of its own.
``tools/generate_lists.py`` writes the lists.
Sources: vLLM ``tokenizers/registry.py`` (`_MODEL_TYPES_WITH_INCORRECT_TOKENIZER_CLASS`),
transformers ``models/auto/tokenization_auto.py`` (`TOKENIZER_MAPPING_NAMES`,
`MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS`, `AutoTokenizer.from_pretrained`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Final, NamedTuple

from mmroute.tokenizers.pipelines import PIPELINES

FILE: Final = "file"
"""Stands in place of a class: the engine runs tokenizer.json as it is written."""

_LISTS: Final = json.loads(
    (resources.files("mmroute.tokenizers") / "engine_classes.json").read_text(encoding="utf-8")
)
_KEPT_BY_VLLM: Final[frozenset[str]] = frozenset(_LISTS["kept_by_vllm"])
# The class that transformers registers for a model type. For the types under `FILE` it registers
# its general class, or mistral-common's, which vLLM does not allow.
_REGISTERED: Final[dict[str, str]] = {
    model_type: FILE if name in ("TokenizersBackend", "MistralCommonBackend") else name
    for model_type, name in _LISTS["registered"].items()
} | {"gpt-sw3": "GPT2Tokenizer"}  # as observed: of a tokenizer.json transformers makes this one
MODEL_TYPES: Final = tuple(sorted({*_REGISTERED, *_KEPT_BY_VLLM}))
"""Model types with a registered class. For others the declared class decides, else `FILE`."""
# Model types that get the registered class, whatever class the model declares.
_FORCED: Final = frozenset(_LISTS["incorrect"])
_ALIASES: Final = {"Phi3Tokenizer": "LlamaTokenizer"}
# For a class that transformers does not know, it uses its general one.
_CLASSES: Final = frozenset(_LISTS["classes"])


class AddedTokens(NamedTuple):
    """Tokens that an engine adds to a vocabulary that lacks them, in this order."""

    ordinary: Sequence[str] = ()  # those that are no special tokens
    special: Sequence[str] = ()  # those that are


NOTHING_ADDED: Final = AddedTokens()


def engine_class(model_type: str | None, declared: str | None) -> str | None:
    """The class that the engine builds, or `FILE`; None for a class that mmroute does not rebuild.

    >>> engine_class("llama", "LlamaTokenizerFast"), engine_class("qwen2", "LlamaTokenizerFast")
    ('LlamaTokenizer', 'Qwen2Tokenizer')
    >>> engine_class("phi3", "LlamaTokenizer"), engine_class("llama", "GPTTokenizer")
    ('file', 'file')
    """
    registered = _REGISTERED.get(model_type or "")
    if model_type in _KEPT_BY_VLLM or registered == FILE:
        return FILE
    # transformers 5 dropped the suffix "Fast": both names load the same class.
    name = declared.removesuffix("Fast") if declared is not None else None
    if name is None or model_type in _FORCED:
        name = registered or FILE
    name = _ALIASES.get(name, name)
    if name in PIPELINES:
        return name
    return None if name in _CLASSES else FILE
