"""Flat kwargs that transformers takes for its own when the engine makes a processor with them.

vLLM makes a processor anew with those flat kwargs that no call of it takes. They reach the loaders
of the processor, its tokenizer and the model's configuration. Some have an effect there: a loader
has a parameter of the same name, a tokenizer refuses the name of a method, or a strict field of the
configuration refuses a value of another type. Source: vLLM ``transformers_utils/processor.py``
(`cached_get_processor_without_dynamic_kwargs`). Observed with transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mmroute.geometry.known_arguments import is_count, is_switch

CONFIG_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(
        (
            "alignment_intermediate_size", "audio_soft_tokens_per_image", "chunk_size_feed_forward",
            "downsample_factor", "im_end_id", "im_newline_id", "im_start_id", "image_end_id",
            "image_size", "image_start_id", "insert_layer_id", "merger_times",
            "mm_tokens_per_image", "newline_id", "out_hidden_size", "projection_hidden_size",
            "projector_hidden_size", "scale_factor", "slice_end_id", "slice_start_id",
            "spatial_merge_size", "spatial_pool_stride", "spatial_vision_layer",
            "video_seq_length", "vision_feature_layer", "vision_soft_tokens_per_image",
        ),
        is_count,
    ),
    **dict.fromkeys(
        (
            "drop_vision_last_layer", "enable_audio_output", "is_encoder_decoder",
            "multimodal_projector_bias", "output_hidden_states", "projector_bias",
            "projector_use_layernorm", "return_dict", "tie_word_embeddings", "use_cache",
        ),
        is_switch,
    ),
    **dict.fromkeys(
        (
            "downsample_ratio", "initializer_range", "projection_layer_norm_eps",
            "projector_dropout",
        ),
        lambda value: type(value) is float,
    ),
    **dict.fromkeys(
        (
            "downsample_mode", "projector_hidden_act", "spatial_pool_mode", "vision_aspect_ratio",
        ),
        lambda value: isinstance(value, str),
    ),
}  # fmt: skip
"""Typed fields of the models' configurations. A value of the right type changes no prompt."""
OF_LOADERS: Final = frozenset({
    "SPECIAL_TOKENS_ATTRIBUTES", "add_bos_token", "add_eos_token", "add_prefix_space", "add_tokens",
    "added_tokens_decoder",
    "added_tokens_encoder", "additional_special_tokens", "all_special_ids", "all_special_tokens",
    "allow_global_per_layer_attribute_access", "apply_chat_template", "architectures", "args",
    "attention_bias", "attention_dropout", "attn_implementation", "attribute_map", "audio_config",
    "audio_tokenizer", "audios", "auto_map", "backend_tokenizer", "base_config_key",
    "base_model_ep_plan", "base_model_fsdp_plan", "base_model_pp_plan", "base_model_tp_plan",
    "batch_decode", "cache_dir", "can_save_slow_tokenizer", "chat_control_tokens", "chat_template",
    "class_reference", "clean_up_tokenization", "clean_up_tokenization_spaces", "code2wav_config",
    "code_revision", "commit_message", "config_class", "config_dict", "convert_added_tokens",
    "convert_ids_to_tokens", "convert_rope_params_to_dict", "convert_to_native_format",
    "convert_tokens_to_ids", "convert_tokens_to_string", "decode", "decoder", "deepstack_layer_map",
    "default_config_fields", "default_rope_type", "default_theta", "dict_dtype_to_str",
    "downsample_rate", "dtype", "encode", "encode_message_with_chat_template",
    "extra_special_tokens", "feature_extractor_dict", "feature_extractor_type", "filename",
    "fix_mistral_regex", "force_download", "from_dict", "from_json_file", "from_pretrained",
    "get_added_vocab", "get_chat_template", "get_config_dict", "get_mtp_config",
    "get_response_parser", "get_special_tokens_mask", "get_text_config", "get_vocab", "head_dim",
    "hidden_act", "hidden_size", "id2label", "ignore_keys_at_rope_validation",
    "image_processor_dict", "image_processor_filename", "image_processor_type", "init_inputs",
    "intermediate_size", "is_custom_code", "is_fast", "is_heterogeneous", "is_remote_code",
    "keys_to_ignore_at_inference", "kwargs", "label2id", "layer_types", "legacy",
    "local_files_only", "max_len", "max_len_sentences_pair", "max_len_single_sentence",
    "max_position_embeddings", "max_window_layers", "merge_kernel_size", "merges", "merges_file",
    "model", "model_config", "model_input_names", "model_max_length", "model_type", "name_or_path",
    "nested_rope_parameter_keys", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
    "num_labels", "num_special_tokens_to_add", "output_attentions", "pad", "pad_token_type_id",
    "padding_side", "parse_response", "path_or_repo_id", "per_layer_attributes", "per_layer_config",
    "post_processor", "pretrained_model_name_or_path", "pretrained_vocab_files_map", "problem_type",
    "processor_class", "processor_cls", "processor_dict", "processor_name", "proxies",
    "push_to_hub", "qformer_config",
    "register_for_auto_class", "repo_id", "repo_type", "resolved_vocab_files", "response_schema",
    "response_template", "return_unused_kwargs", "rms_norm_eps", "rope_parameters", "rope_scaling",
    "save_chat_templates", "save_pretrained", "save_vocabulary",
    "serialize_explicit_per_layer_config", "set_truncation_and_padding", "sliding_window",
    "slow_tokenizer_class", "spatial_target_layers", "special_tokens_map", "special_tokens_pattern",
    "split_special_tokens", "standardize_rope_params", "sub_configs", "sub_configs_defaults",
    "sub_processor_type", "talker_config", "text_config", "thinker_config", "to_dict",
    "to_diff_dict", "to_json_file", "to_json_string", "token", "token2wav_config",
    "token_type_ids_pattern", "tokenizer_class", "tokenizer_file", "tokenizer_object",
    "tokenizer_padding", "tokenizer_truncation", "train_new_from_iterator", "transformers_version",
    "truncation_side", "update", "update_from_string", "update_post_processor", "use_fast",
    "use_return_dict", "use_sliding_window", "user_agent", "validate", "validate_architecture",
    "validate_layer_type", "validate_output_attentions", "validate_rope", "validate_token_ids",
    "verbose", "video_processor_dict", "video_processor_type", "vision_config",
    "vision_feature_select_strategy", "vocab", "vocab_file", "vocab_files_names", "vocab_size",
})  # fmt: skip
"""Parameters of loaders, members of configurations and tokenizers, and fields that hold objects."""
