"""The kwargs that transformers' processors know, and the values that they accept.

Observed with vLLM and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

_INT64: Final = 1 << 63
_SIZE_EDGES: Final = frozenset({"shortest_edge", "longest_edge"})
_FILTERS: Final = range(4)  # Pillow's, but for box and hamming, which torch does not have


def is_switch(value: object) -> bool:
    """Whether a value is true or false."""
    return isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value is a positive integer that the processors' own arithmetic can hold."""
    return type(value) is int and 0 < value < _INT64


def is_positive(value: object) -> bool:
    """Whether a value is a positive number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def is_empty(value: object) -> bool:
    """Whether a value is an object that holds nothing."""
    return isinstance(value, Mapping) and not value


def _is_box(value: object) -> bool:
    return is_count(value) or (
        isinstance(value, Mapping)
        and value.keys() == {"height", "width"}
        and all(map(is_count, value.values()))
    )


def _is_size(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and (value.keys() == {"height", "width"} or value.keys() == _SIZE_EDGES)
        and all(map(is_count, value.values()))
    )


def _is_per_channel(value: object) -> TypeGuard[list[float]]:
    channels = 3
    return (
        isinstance(value, list) and len(value) == channels and all(type(v) is float for v in value)
    )


HARMLESS: Final[Mapping[str, Callable[[object], bool]]] = {
    "crop_size": _is_box,
    "data_format": lambda value: value == "channels_first",
    "default_to_square": is_switch,
    "device": lambda value: value == "cpu",
    "disable_grouping": is_switch,
    "do_center_crop": lambda value: value is False,
    "do_convert_rgb": is_switch,
    "do_normalize": is_switch,
    "do_pad": is_switch,
    "do_rescale": is_switch,
    "do_resize": lambda value: value is True,
    "image_mean": _is_per_channel,
    "image_std": lambda value: _is_per_channel(value) and 0.0 not in value,
    "resample": lambda value: type(value) is int and value in _FILTERS,
    "rescale_factor": lambda value: type(value) is float and value > 0,
}
"""Fields of all image processors that were seen to leave the count alone, with what they accept.

A processor validates their values, and fails on others.
"""

HARMLESS_WHEN_FLAT: Final[Mapping[str, Callable[[object], bool]]] = {
    **HARMLESS,
    "fps": is_positive,
    "patch_size": is_count,
    "videos_kwargs": lambda value: value is None or isinstance(value, Mapping),
    # The engine caches processors by their kwargs, and hashes one level of nesting.
    "audio_kwargs": lambda value: value is None or (
        isinstance(value, Mapping)
        and not any(isinstance(inner, Mapping | list) for inner in value.values())
    ),
    # Common kwargs stay with the processor's class, for requests to come.
    "common_kwargs": is_empty,
    "text_kwargs": is_empty,
    "pad_size": _is_box,
    # Otherwise the engine takes the sound of videos as well.
    "use_audio_in_video": lambda value: value is False,
    # Of texts and videos, which are not in question here; but their types are checked.
    **dict.fromkeys(
        (
            "add_special_tokens", "do_sample_frames", "is_split_into_words", "padding",
            "return_metadata", "truncation",
        ),
        is_switch,
    ),
    "cap_pixels_per_frame": is_switch,
    "pad_to_multiple_of": is_count,
    "frame_timestamp_format": lambda value: isinstance(value, str),
    "initial_shift": is_switch,
    "max_image_size": lambda value: isinstance(value, Mapping) and all(
        map(is_count, value.values())
    ),
    **dict.fromkeys(
        (
            "image_seq_length", "max_duration", "max_frames", "max_num_frames",
            "max_video_frame_tokens", "max_video_tokens", "min_frames", "num_frames",
            "stack_frames", "temporal_patch_size",
        ),
        is_count,
    ),
}  # fmt: skip
"""Those and more, which not every processor knows: not accepted inside ``images_kwargs``."""
HARMLESS_WITH_VIDEOS: Final[Mapping[str, Callable[[object], bool]]] = {
    **{name: accepts for name, accepts in HARMLESS.items() if name != "disable_grouping"},
    "return_metadata": is_switch,
}
"""Fields of all video processors that were seen to leave the count of a video alone."""
HARMLESS_OF_VIDEOS: Final[Mapping[str, Callable[[object], bool]]] = {
    **HARMLESS_WITH_VIDEOS,
    "do_sample_frames": is_switch,
    "fps": is_positive,
    "num_frames": is_count,
    "size": _is_size,
}
"""What all video processors know. They check it where there is no video, too."""
OF_ALL_VIDEO_PROCESSORS: Final = HARMLESS_OF_VIDEOS.keys() - HARMLESS_WITH_VIDEOS.keys()
"""Names that all video processors read, and that may change a count."""
OF_SOME_VIDEO_PROCESSORS: Final = frozenset({
    "add_timestamps", "cap_pixels_per_frame", "downsample_mode", "downsample_ratio",
    "draw_on_frames", "font", "frame_timestamp_format", "initial_shift", "max_duration", "max_fps",
    "max_frames", "max_image_size", "max_image_tokens", "max_num_frames", "max_patches",
    "max_pixels", "max_slice_nums", "max_soft_tokens", "max_video_frame_tokens", "max_video_tokens",
    "merge_size", "min_frames", "min_image_tokens", "min_pixels", "norm_mean", "norm_std",
    "overflow_strategy", "patch_expand_factor", "patch_size", "pooling_kernel_size", "pooling_size",
    "scale_resolution", "slice_mode", "stack_frames", "temporal_patch_size", "total_pixels",
    "use_image_id", "use_token_compression", "video_maintain_aspect_ratio",
    "video_target_num_patches",
})  # fmt: skip
"""Names that only some read; the others ignore them.

Source: transformers ``models/*/video_processing_*.py`` (`valid_kwargs`).
"""
HARMFUL: Final = frozenset({
    "audio", "backend", "chunk_length", "cls", "config", "convert_to_rgb", "crop_image_to_patches",
    "dither", "feature_extractor", "feature_size", "fetch_images", "gguf_file", "hop_length",
    "image_grid_pinpoints", "image_processor", "images", "input_data_format", "max_length", "n_fft",
    "normalize", "padding_value", "patchify", "preprocess", "process_image", "rescale",
    "rescale_and_normalize", "resize", "return_tensors", "return_text_replacement_offsets",
    "revision", "sampling_rate", "self", "size", "spatial_patch_size", "subfolder", "text",
    "text_pair", "text_target", "tokenize", "tokenizer_type", "torch_dtype", "trust_remote_code",
    "valid_kwargs", "video_metadata", "video_processor", "videos",
})  # fmt: skip
"""Names that were seen to break a processor or to change what it returns.

Some are those of a reader of audio, which is made with them. Others are those of an image
processor's methods, which they take the place of.
"""
TYPED_NAMES: Final = frozenset({
    "add_special_tokens", "crop_size", "data_format", "default_to_square", "device",
    "disable_grouping", "do_center_crop", "do_convert_rgb", "do_normalize", "do_pad",
    "do_rescale", "do_resize", "do_sample_frames", "fps", "image_mean", "image_seq_length",
    "image_std", "input_data_format", "is_split_into_words", "load_audio_backend",
    "max_length", "num_frames", "pad_size", "pad_to_multiple_of", "padding", "padding_side",
    "raw_speech", "resample", "rescale_factor", "return_attention_mask", "return_length",
    "return_metadata", "return_mm_token_type_ids", "return_offsets_mapping",
    "return_overflowing_tokens", "return_special_tokens_mask", "return_tensors",
    "return_text_replacement_offsets", "return_token_type_ids", "sampling_rate", "size",
    "stride", "text_pair", "text_pair_target", "text_target", "truncation", "verbose",
    "video_metadata",
})  # fmt: skip
"""Names that transformers takes for arguments of texts, images, videos or audio of any processor.

Source: transformers ``processing_utils.py`` (`TextKwargs`, `ImagesKwargs`, `VideosKwargs`,
`AudioKwargs`).
"""
