"""The longest prompt an engine takes for a model, if its server does not lower it.

Source: vLLM 0.33.0 ``config/model.py`` (`_get_and_verify_max_len`) and
``transformers_utils/model_arch_config_convertor.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from mmroute.errors import ModelError, Reason, shown
from mmroute.model.files import JsonValue, ModelFiles

__all__ = ["longest_context"]

_OTHER_LIMITS: Final = (
    "n_positions", "max_seq_len", "seq_length", "max_target_positions", "max_sequence_length",
    "max_seq_length", "seq_len",
)  # fmt: skip
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
    text = _text_config(files)
    limits = [value for name in _OTHER_LIMITS if isinstance(value := text.get(name), int)]
    length = min([positions, *limits])
    if isinstance(own := text.get("model_max_length"), int) and own:
        length = own
    return int(length * _rope_factor(files)) if scale else length


def _text_config(files: ModelFiles) -> Mapping[str, JsonValue]:
    config = files.object("config.json")
    for name in ("thinker_config", "text_config"):  # omni models nest the one in the other
        nested = config.get(name)
        config = nested if isinstance(nested, dict) else config
    return config


def _rope_factor(files: ModelFiles) -> float:
    rope = _rope(_text_config(files))
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor = rope.get("factor")
    if not isinstance(kind, str):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.path('config.json')}: the type of rope_scaling must be a string, found "
            f"{shown(kind)}.",
        )
    if kind in _LENGTH_PRESERVING_ROPE or factor is None:
        return 1.0
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{files.path('config.json')}: rope_scaling.factor must be a positive number, "
            f"found {shown(factor)}.",
        )
    return float(factor)


def _rope(config: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    return rope if isinstance(rope, dict) else {}
