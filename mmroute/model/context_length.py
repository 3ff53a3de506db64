"""The longest prompt an engine takes for a model, if its server does not lower it.

Source: vLLM ``config/model.py`` (`_get_and_verify_max_len`) and
``transformers_utils/model_arch_config_convertor.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from mmroute.errors import ModelError, Reason, quoted
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import JsonValue, ModelFiles

_OTHER_LIMITS: Final = (
    "n_positions", "max_seq_len", "seq_length", "max_target_positions", "max_sequence_length",
    "max_seq_length", "seq_len",
)  # fmt: skip
# RoPE rules whose factor is in max_position_embeddings already.
_LENGTH_PRESERVING_ROPE: Final = frozenset({
    "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling",
})  # fmt: skip
_ORIGINAL_POSITIONS: Final = {"phi3": 4096}  # defaults of config classes in transformers

_Overridden: TypeAlias = Callable[[Mapping[str, Any], Sequence[tuple[str, ...]]], Mapping[str, Any]]


class Context(NamedTuple):
    """The numbers of tokens of the longest context."""

    default: int  # of an engine without `--max-model-len`
    most: int  # the largest that this option may have


def longest_context(
    files: ModelFiles,
    family: FamilySpec,
    positions: int,
    *,
    overridden: _Overridden = lambda text, _parents: text,
    whole_window: bool = True,
) -> Context:
    """The longest context of an engine."""
    own_text = {**_text_config(files), "max_position_embeddings": positions}
    text = overridden(own_text, _parents(files, family))
    positions = _number(files, text, "max_position_embeddings") or positions
    limits = [value for name in _OTHER_LIMITS if isinstance(value := text.get(name), int)]
    length = min([positions, *limits])
    if isinstance(own := text.get("model_max_length"), int) and own:
        length = own
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    if not whole_window and isinstance(window, int):
        length = min(length, window)
    config = files.object("config.json")
    rules = list(_rope_rules(files, text))
    if config.get("model_type") not in family.includes_rope_scaling:
        factors = [1.0, *(f for kind, f in rules if kind not in _LENGTH_PRESERVING_ROPE and f)]
        length = int(length * factors[-1])
    if any(kind == "longrope" for kind, _ in rules):
        original = text.get("original_max_position_embeddings")
        if original is None:
            original = _ORIGINAL_POSITIONS.get(str(config.get("model_type")))
        return Context(original if isinstance(original, int) else length, length)
    return Context(length, length)


def _parents(files: ModelFiles, family: FamilySpec) -> list[tuple[str, ...]]:
    """The places of the language model's configuration in that of the engine.

    Some families keep it flat in their files; only one without media is a language model alone.
    """
    paths = {ref.path[:-1] for ref in family.context_length.sources if len(ref.path) > 1}
    config = files.object("config.json")
    return sorted(path for path in paths if family.media or isinstance(config.get(path[0]), dict))


def _number(files: ModelFiles, text: Mapping[str, JsonValue], name: str) -> int | None:
    value = text.get(name)
    if value is not None and type(value) is not int:
        raise _invalid(files, f"{name} must be an integer", value)
    return value


def _text_config(files: ModelFiles) -> Mapping[str, JsonValue]:
    config = files.object("config.json")
    for name in ("thinker_config", "text_config"):  # omni models nest the one in the other
        nested = config.get(name)
        config = nested if isinstance(nested, dict) else config
    return config


def _rope_rules(
    files: ModelFiles, text: Mapping[str, JsonValue]
) -> Iterator[tuple[str | None, float | None]]:
    """Type and factor of each RoPE rule: one, or one for each kind of layer."""
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(rope, dict):
        return
    nested = [rule for rule in rope.values() if isinstance(rule, dict)]
    typed = "rope_type" in rope or "type" in rope
    for rule in nested if nested and not typed else [rope]:
        kind = rule.get("rope_type", rule.get("type", "default"))
        if kind is not None and not isinstance(kind, str):
            raise _invalid(files, "the type of rope_scaling must be a string", kind)
        factor = rule.get("factor")
        if kind in _LENGTH_PRESERVING_ROPE or factor is None:
            yield kind, None
        elif isinstance(factor, int | float) and 0 < factor < math.inf:
            yield kind, float(factor)
        else:
            raise _invalid(files, "rope_scaling.factor must be a positive number", factor)


def _invalid(files: ModelFiles, wanted: str, found: JsonValue) -> ModelError:
    return ModelError(
        Reason.INVALID_CONFIG_FIELD,
        f"{files.path('config.json')}: {wanted}, found {quoted(found)}.",
    )
