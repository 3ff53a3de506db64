"""The answer of ``/tokenizer_info``.

Source: vLLM ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FILES: Final = ("vocab_file", "merges_file")


def tokenizer_info(config: Mapping[str, Any]) -> dict[str, Any]:
    """``tokenizer_config.json`` as vLLM shows it: added tokens as texts, and no file names."""
    shown = {name: _plain(value) for name, value in config.items() if name not in _FILES}
    name = str(config.get("tokenizer_class", "MistralTokenizer")).removesuffix("Fast")
    return {"tokenizer_class": name, **{k: v for k, v in shown.items() if k != "tokenizer_class"}}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        if "content" in value:
            return value["content"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
