"""The keys of ``--hf-overrides``: which an engine's longest context and media depend on.

Source: vLLM ``config/model.py`` (`__post_init__`, `_apply_dict_overrides`,
`_get_and_verify_max_len`), ``transformers_utils/config.py`` (`get_config`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmroute.errors import ModelError, Reason, quoted
from mmroute.families.overlays import overlaid

_ROPE: Final = ("rope_scaling", "rope_parameters")  # two names of one field
_NESTED: Final = ("language_config", "llm_config", "text_config", "thinker_config")
# Weights, attention, sampling and answers: nothing before the first layer reads them.
_IDLE: Final = frozenset({
    "attention_chunk_size", "attention_dropout", "attn_implementation", "attn_scale",
    "attn_temperature_tuning", "bos_token_id", "classifier_from_token", "compression_config",
    "diffusion_entropy_bound", "diffusion_sampler", "enable_audio_output", "eos_token_id",
    "expert_dtype", "final_logit_softcapping", "fix_mistral_regex", "floor_scale",
    "force_dense_mla", "generation_config", "head_dim", "head_dtype", "hidden_act", "index_n_heads",
    "index_topk", "index_topk_freq", "index_topk_pattern", "initializer_range", "is_causal",
    "is_matryoshka", "is_original_qwen3_reranker", "jina_task", "layer_types",
    "matryoshka_dimensions", "max_model_len", "max_window_layers", "method",
    "moe_intermediate_size", "moe_router_use_sigmoid", "mtp_num_hidden_layers", "n_group",
    "n_routed_experts", "norm_topk_prob", "num_experts", "num_experts_per_tok", "num_hidden_layers",
    "num_labels", "num_mtp_layers", "num_nextn_predict_layers", "pad_token_id",
    "partial_rotary_factor", "ple_embedding_dtype", "problem_type", "quantization",
    "quantization_config", "quantization_config_dict_json", "quantization_config_file",
    "rms_norm_eps", "rope_theta", "routed_scaling_factor", "router_aux_loss_coef", "scoring_func",
    "sliding_window", "sliding_window_pattern", "tie_word_embeddings", "topk_group", "topk_method",
    "transformers_version", "use_cache", "use_index_cache", "use_mla", "use_sliding_window",
})  # fmt: skip
LENGTHS: Final = frozenset({
    *_ROPE, "max_position_embeddings", "max_seq_len", "max_seq_length", "max_sequence_length",
    "max_target_positions", "model_max_length", "n_positions", "original_max_position_embeddings",
    "seq_len", "seq_length",
})  # fmt: skip
"""The keys on which the longest context depends."""
_REFUSED: Final = frozenset({"auto_map", "is_encoder_decoder", "model_type", "vocab_size"})


def check_overrides(overrides: object) -> None:
    """Refuse overrides that change the answers to all requests."""
    if not isinstance(overrides, Mapping):
        raise _unsupported(
            f"{quoted(overrides)} is a function, whose effect cannot be read; give the object of "
            "the keys that it sets"
        )
    refused = sorted(key for key, _ in _leaves(overrides) if key in _REFUSED)
    if refused:
        raise _unsupported(f"{', '.join(refused)}: its effect on token IDs is not covered")


def of_items(overrides: Mapping[str, Any]) -> str:
    """The keys on which the tokens of items may depend; empty if there are none."""
    known = _IDLE | LENGTHS | {"architectures"}
    return ", ".join(sorted(path for key, path in _leaves(overrides) if key not in known))


def overridden_text(
    text: Mapping[str, Any], overrides: Mapping[str, Any], parents: Sequence[tuple[str, ...]]
) -> Mapping[str, Any]:
    """The configuration of a language model under the overrides."""
    own: Any = overrides
    for path in parents:
        own = overrides
        for key in path:
            own = own.get(key) if isinstance(own, Mapping) else None
        if own:
            break
    if not own or not isinstance(own, Mapping):
        return text
    merged = {key: value for key, value in {**text, **own}.items() if key not in _ROPE}
    before = text.get(_ROPE[0]) or text.get(_ROPE[1])
    given = [value for key, value in own.items() if key in _ROPE]
    if given and parents and isinstance(given[-1], Mapping):  # a nested configuration is updated
        merged[_ROPE[0]] = overlaid(before if isinstance(before, dict) else {}, given[-1])
    else:
        merged[_ROPE[0]] = given[-1] if given else before
    return merged


def _leaves(overrides: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Each key with its whole path; keys of nested language models in place of these."""
    for key, value in overrides.items():
        if key in _NESTED and isinstance(value, Mapping):
            yield from _leaves(value, f"{within}{key}.")
        else:
            yield key, f"{within}{key}"


def _unsupported(what: str) -> ModelError:
    return ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"--hf-overrides: {what}. Requests to this engine cannot be answered exactly.",
    )
