"""The longest prompt an engine takes for a model, if its server does not lower it.

Source: vLLM 0.33.0 ``config/model.py`` (`_get_and_verify_max_len`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.errors import ModelError, Reason
from mmroute.model_files import FieldRef, JsonValue, ModelFiles

__all__ = ["longest_context"]

_TOKENIZER_LIMIT: Final = FieldRef.parse("tokenizer_config.json:model_max_length")
# RoPE rules whose factor is not one of length, or is in max_position_embeddings already.
_LENGTH_PRESERVING_ROPE: Final = frozenset({
    "default", "mrope", "su", "longrope", "llama3", "yarn", "deepseek_yarn",
    "deepseek_llama_scaling",
})  # fmt: skip


def longest_context(files: ModelFiles, positions: int, *, scale: bool) -> int:
    """Tokens of the longest context.

    Args:
        files: the model.
        positions: its max_position_embeddings.
        scale: multiply by a RoPE scaling factor, where there is one.

    Raises:
        ModelError: `invalid_config_field`.
    """
    present, limit = files.lookup(_TOKENIZER_LIMIT)
    if present and isinstance(limit, int | float):
        positions = int(min(positions, limit))
    return int(positions * _rope_factor(files)) if scale else positions


def _rope_factor(files: ModelFiles) -> float:
    config = files.object("config.json")
    text = config.get("text_config")
    rope = _rope(text if isinstance(text, dict) else config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor = rope.get("factor")
    if kind in _LENGTH_PRESERVING_ROPE or factor is None:
        return 1.0
    if not isinstance(factor, int | float):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.path('config.json')}: rope_scaling.factor must be a number, found {factor!r}.",
        )
    return float(factor)


def _rope(config: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    return rope if isinstance(rope, dict) else {}
