"""The tokenizer of a model as SGLang loads it: by the class that its files name.

Source: SGLang 0.5.23 ``srt/utils/hf_transformers/tokenizer.py`` (`_resolve_tokenizers_backend`,
`_fix_v5_tokenizer_components`, `_fix_v5_add_bos_eos_token`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mmroute.errors import needs_extra
from mmroute.model.tokenizer import load_tokenizer as load_by_type
from mmroute.tokenizers.engine_classes import FILE
from mmroute.tokenizers.pipelines import PIPELINES

if TYPE_CHECKING:
    from mmroute.families.spec import FamilySpec
    from mmroute.model_directory import JsonValue, ModelFiles
    from mmroute.reuse.fast_paths import FastPaths
    from mmroute.tokenizers import Tokenizer

TEKKEN: Final = "tekken.json"
"""Beside it no other file of a tokenizer counts: mistral-common encodes."""
_TOKENIZER_JSON: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_LLAMA: Final = "LlamaTokenizer"
_LLAMA_SPLITTER: Final = "Metaspace"
# The classes whose add_bos_token counts, whatever the file's own post-processor says.
_WITH_BOS_FLAG: Final = frozenset({
    "CodeLlamaTokenizer", "CodeLlamaTokenizerFast", "CohereTokenizerFast", "GemmaTokenizer",
    "GemmaTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast",
})  # fmt: skip


def load_tokenizer(
    files: ModelFiles,
    family: FamilySpec,
    fast_paths: FastPaths,
    note: Callable[[str, JsonValue, str], None],
) -> Tokenizer:
    """See `mmroute.engine.Chats`."""
    if files.has(TEKKEN):
        with needs_extra("mistral", "mistral_common", f"{files.name} has a {TEKKEN}. It"):
            from mmroute.engines.sglang.mistral_chat import MarkedTokenizer
            from mmroute.tokenizers.formats.mistral import load_mistral_model

        loaded = load_mistral_model(files, fast_paths.text_cache_bytes)
        return MarkedTokenizer(loaded.backend, loaded.chat_encoder)
    declared = str(files.object(_CONFIG).get("tokenizer_class"))
    name = declared.removesuffix("Fast")
    changed: dict[str, JsonValue] = {}
    if name == _LLAMA:
        # The class has no normalizer, and a pre-tokenizer that yields to one of another kind.
        splits = files.object(_TOKENIZER_JSON).get("pre_tokenizer")
        restored = isinstance(splits, dict) and splits.get("type") != _LLAMA_SPLITTER
        if restored:
            changed = {
                _TOKENIZER_JSON: {**files.object(_TOKENIZER_JSON), "normalizer": None},
                # The class names these tokens where the file does not.
                _CONFIG: {**PIPELINES[name].defaults, **files.object(_CONFIG)},
            }
            files = replace(files, _json=changed)
        own = family.tokenizer.model_copy(update={"pipelines": {name: FILE if restored else name}})
        family = family.model_copy(update={"tokenizer": own})
    tokenizer = load_by_type(files, family, fast_paths, note)
    if declared not in _WITH_BOS_FLAG:
        return tokenizer
    flag = files.object(_CONFIG).get("add_bos_token")
    adds = tokenizer.bos_token_id in tokenizer.encode("", add_special_tokens=True)
    if adds or flag is False:
        return tokenizer
    put = _adding(tokenizer)
    note("post_processor", put, "tokenizer_config.json:add_bos_token")
    added: dict[str, JsonValue] = {**files.object(_TOKENIZER_JSON), "post_processor": put}
    return load_by_type(
        replace(files, _json={**changed, _TOKENIZER_JSON: added}), family, fast_paths, note
    )


def _adding(tokenizer: Tokenizer) -> dict[str, JsonValue]:
    """The post-processor that puts BOS in front."""
    bos = tokenizer.template_tokens["bos_token"]
    text: JsonValue = {"Sequence": {"id": "A", "type_id": 0}}
    special: JsonValue = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, text],
        "pair": [special, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [tokenizer.bos_token_id], "tokens": [bos]}},
    }
