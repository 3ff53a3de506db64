"""Copies of model directories with so few weights that an engine starts on random ones in seconds.

A copy has the files of the model, and a ``config.json`` or ``params.json`` with fewer layers,
heads and experts, and narrower matrices. What token IDs, block hashes and block sizes depend on
stays: token IDs, the vocabulary, sizes of images and patches, contexts, windows, each kind of
layer, and the proportion of heads where it decides the sizes of blocks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from mmroute.errors import ModelError, Reason
from mmroute.model_directory import ModelFiles

_Config: TypeAlias = dict[str, Any]

_WIDTH: Final = 64
_TOWER_HEADS: Final = 2
_LEAST_HEAD: Final = 32  # vLLM's attention on a CPU has no smaller heads
_WIDEST: Final = 128
_EXPERTS: Final = 4
_LONGEST_CONTEXT: Final = 1 << 17  # longer ones have tables of rotations of many gigabytes
_TEXTS: Final = ("text_config", "llm_config", "language_config")
_TOWERS: Final = ("vision_config", "audio_config", "speech_config", "sound_config")
_REPEATED: Final = ("hidden_size", "num_hidden_layers")  # some configurations have them twice
_LAYER_KINDS: Final = ("layer_types", "layers_block_type")
_LAYER_PERIODS: Final = (
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "full_attention_interval",
)
_LAYER_COUNTS: Final = (
    "num_hidden_layers", "depth", "layers", "n_layers", "vt_num_hidden_layers", "encoder_layers",
    "conf_num_hidden_layers",
)  # fmt: skip
_TOWER_HEAD_COUNTS: Final = (
    "num_heads", "heads", "num_attention_heads", "num_key_value_heads", "vt_num_attention_heads",
    "encoder_attention_heads", "conf_num_attention_heads",
)  # fmt: skip
_TOWER_WIDTHS: Final = (
    "embed_dim", "width", "d_model", "vt_hidden_size", "conf_hidden_size", "mm_hidden_size",
    "intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "projection_dim",
    "downsample_hidden_size",
)  # fmt: skip
_OUTPUT_WIDTHS: Final = (
    "out_hidden_size", "output_hidden_size", "text_hidden_size", "mm_hidden_size_text",
    "output_dim", "n_embed",
)  # fmt: skip
_PROJECTOR: Final = "projector_config"  # between a tower and the language model
# The largest value that a field of the language model keeps.
_TEXT_SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys((
        "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
        "intermediate_size_mlp", "moe_shared_expert_intermediate_size", "dense_intermediate_size",
        "ffn_hidden_size",
        "share_expert_dim", "block_ff_dim", "shared_intermediate_size", "q_lora_rank",
    ), _WIDTH),
    **dict.fromkeys((
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts",
    ), _EXPERTS),
    **dict.fromkeys((
        "num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_topk", "num_experts_per_token",
        "experts_per_token", "linear_num_key_heads", "linear_num_value_heads",
    ), 2),
    **dict.fromkeys((
        "n_group", "topk_group", "num_expert_group", "first_k_dense_replace",
        "num_attention_groups", "num_kv_heads", "multi_query_group_num",
    ), 1),
    **dict.fromkeys((
        "mtp_num_hidden_layers", "num_nextn_predict_layers", "num_kv_shared_layers",
    ), 0),
    "max_position_embeddings": _LONGEST_CONTEXT,
}  # fmt: skip
# What the model's class fills in where config.json is silent.
_CLASS_DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = {
    "gemma3_text": {
        "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
        "sliding_window_pattern": 6,
    },
    "intern_vit_6b": {"qk_normalization": False},
    "gemma3n_text": {
        "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
        "num_kv_shared_layers": 15,
    },
}  # fmt: skip


def shrink(files: ModelFiles, patterns: tuple[str, ...], into: Path) -> None:
    """Make a copy of a model; its files are links, but for the configuration."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    own = files.commit is None and not files.renamed
    names = [path.name for path in files.root.iterdir()] if own else files.names(patterns)
    changes = {"config.json": shrunk_config, "params.json": shrunk_params}
    if not changes.keys() & set(names):
        raise ModelError(
            Reason.MISSING_FILE,
            f"{files.name} has no config.json and no params.json, so that no engine starts on it",
        )
    for name in names:
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in changes:
            target.write_text(json.dumps(changes[name](dict(files.object(name))), indent=1))
        else:
            target.symlink_to(files.path(name).resolve())


def shrunk_config(config: _Config) -> _Config:
    """A ``config.json`` with few weights; the argument is left as it is."""
    config = json.loads(json.dumps(config))
    for part in _parts(config):
        part.pop("quantization_config", None)
        for name, value in _CLASS_DEFAULTS.get(str(part.get("model_type")), {}).items():
            part.setdefault(name, value)
    model = config.get("thinker_config", config)
    towers = [model[name] for name in _TOWERS if isinstance(model.get(name), dict)]
    deepest = max((len(tower.get("deepstack_visual_indexes") or ()) for tower in towers), default=0)
    text = next((model[name] for name in _TEXTS if isinstance(model.get(name), dict)), model)
    before = dict(text)
    width = _shrink_text(text, max(2, deepest))
    model |= {
        n: text[n] for n, v in before.items() if n in model and (n in _REPEATED or model[n] == v)
    }
    for tower in towers:
        _shrink_tower(tower, width, max(2, deepest))
    if isinstance(projector := model.get(_PROJECTOR), dict):
        _set_all(projector, _OUTPUT_WIDTHS, width)
        if any("hidden_size" in tower for tower in towers):
            _set_all(projector, ("input_hidden_size",), _WIDTH)
    return config


def shrunk_params(params: _Config) -> _Config:
    """A ``params.json`` of the Mistral format with few weights; the argument is left as it is."""
    params = json.loads(json.dumps(params))
    params |= {"n_layers": 2, "dim": _WIDEST, "n_heads": 1, "n_kv_heads": 1, "hidden_dim": _WIDTH}
    params["head_dim"] = max(_LEAST_HEAD, params.get("head_dim") or _WIDEST)
    media = params.get("multimodal") or {}
    if audio := media.get("whisper_model_args"):
        audio["encoder_args"] |= {
            "n_layers": 2, "dim": _WIDTH, "n_heads": 1, "head_dim": _WIDTH, "hidden_dim": _WIDTH,
        }  # fmt: skip
    for holder in (params, media):
        if isinstance(tower := holder.get("vision_encoder"), dict):
            _shrink_tower(tower, _WIDEST, 2)
    return params


def _parts(config: _Config) -> Iterator[_Config]:
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from _parts(value)


def _shrink_text(text: _Config, least_layers: int) -> int:
    """Shrink a language model in place; returns its width."""
    heads = text.get("num_attention_heads") or 32
    own_head = text.get("head_dim")
    head = max(_LEAST_HEAD, own_head or (text.get("hidden_size") or 4096) // heads)
    layers = _few_layers(text, least_layers)
    _cut(text, layers)
    kept = text.get("num_key_value_heads") or heads
    # Two kinds of heads: the proportion of their pages decides the sizes of blocks.
    count = kept if text.get("num_global_key_value_heads") else 1
    text |= {
        "num_hidden_layers": layers,
        "num_attention_heads": count,
        "num_key_value_heads": count,
    }
    text.setdefault("intermediate_size", _WIDTH)
    for name, most in _TEXT_SIZES.items():
        _limit(text, name, most)
    if text.get("max_window_layers"):
        text["max_window_layers"] = layers
    _set_all(text, ("num_layers",), layers)
    if own_head:
        text["head_dim"] = head
    if text.get("kv_lora_rank"):  # the sizes of its heads have fields of their own
        head = _WIDEST
    elif own_head:
        head = min(max(head, _WIDTH), _WIDEST)
    text["hidden_size"] = head
    _set_all(text, ("word_embed_proj_dim", "conv_dim", "block_dim"), head)
    return head


def _few_layers(text: _Config, least: int) -> int:
    """How many layers show every kind of layer."""
    pattern = text.get("hybrid_override_pattern")  # a letter for each layer; * is attention
    if isinstance(pattern, str):
        count = pattern.index("*") + 1
        text |= {"hybrid_override_pattern": pattern[:count], "mamba_num_heads": 8, "n_groups": 1}
        return count
    if text.get("attention_chunk_size"):  # every fourth layer is not chunked
        return max(least, 4)
    for name in _LAYER_KINDS:
        kinds = text.get(name)
        if kinds and "linear_attn_config" not in text:
            firsts: list[int] = [kinds.index(kind) + 1 for kind in kinds]
            return max(least, *firsts)
    periods = (text.get(name) for name in _LAYER_PERIODS)
    return max(least, *(period for period in periods if isinstance(period, int)), 0)


def _shrink_tower(tower: _Config, text_width: int, layers: int) -> None:
    """Shrink an encoder of images, videos or audios in place."""
    _cut(tower, layers)
    if "d_model" in tower:  # whose class has its own numbers where config.json is silent
        tower |= dict.fromkeys(("encoder_attention_heads", "encoder_ffn_dim"), 0)

    _set_all(tower, _LAYER_COUNTS, layers)
    _set_all(tower, _TOWER_HEAD_COUNTS, _TOWER_HEADS)
    _set_all(tower, ("hidden_size",), text_width if "embed_dim" in tower else _WIDTH)
    _set_all(tower, _TOWER_WIDTHS, _WIDTH)
    _set_all(tower, _OUTPUT_WIDTHS, text_width)
    _set_all(tower, ("head_dim", "global_head_dim"), _WIDTH // _TOWER_HEADS)
    if tower.get("model_type") == "pixtral":
        tower["head_dim"] = _WIDTH // _TOWER_HEADS
    if tower.get("deepstack_visual_indexes"):
        tower["deepstack_visual_indexes"] = list(range(len(tower["deepstack_visual_indexes"])))
    if "fullatt_block_indexes" in tower:
        tower["fullatt_block_indexes"] = [layers - 1]
    if ratio := tower.get("pixel_shuffle_ratio"):
        tower["intermediate_size"] = int(_WIDTH / ratio**2)
        tower |= dict.fromkeys(
            ("projector_input_dim", "projector_output_dim", "vision_output_dim"), _WIDTH
        )


def _set_all(part: _Config, names: tuple[str, ...], value: int) -> None:
    """Set those of the fields that are numbers."""
    part.update({name: value for name in names if isinstance(part.get(name), int)})


def _cut(part: _Config, layers: int) -> None:
    """Shorten the lists that have an entry for each layer."""
    depth = next((part[name] for name in _LAYER_COUNTS if part.get(name)), None)
    for name, value in part.items():
        if isinstance(value, list) and len(value) == depth and name != "architectures":
            part[name] = value[:layers]


def _limit(part: _Config, name: str, most: int) -> None:
    match part.get(name):
        case int() as value:
            part[name] = min(value, most)
        case list() as values:
            part[name] = [min(value, most) for value in values]
