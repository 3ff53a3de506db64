"""Reading the `mm_processor_kwargs` of a request.

The engine hands them to the model's processors. Which of them change a count, which are
ignored and which make a processor fail was observed for each family with vLLM 0.33.0 and
transformers 5.20.2. What was not observed is refused, never guessed. What a name changes is the
business of the geometry that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeGuard

from mmroute.errors import InexactError, Reason, quoted
from mmroute.geometry.replacement import Overrides

__all__ = [
    "COMMON_NAMES",
    "SCOPES",
    "check_absent",
    "check_ignored",
    "check_known",
    "check_no_audio_kwargs",
    "check_size",
    "check_true",
    "check_unread",
    "check_unscoped",
    "is_count",
    "is_positive",
    "is_switch",
    "positive_count",
    "read_flat",
    "read_kwargs",
    "read_scoped_kwargs",
    "refuse_scoped",
    "refused",
    "size_limits",
    "switch",
]


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


# Fields of transformers' image processors that were seen to leave the count alone, with the
# values that were seen to be accepted; a processor validates them, and fails on others.
_HARMLESS: Final[Mapping[str, Callable[[object], bool]]] = {
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
COMMON_NAMES: Final = frozenset(_HARMLESS)
"""Names that every image processor of transformers knows, beside those of its own."""

# Harmless as well, but not known to every processor, so not accepted inside images_kwargs.
_HARMLESS_WHEN_FLAT: Final[Mapping[str, Callable[[object], bool]]] = {
    **_HARMLESS,
    "fps": is_positive,
    "patch_size": is_count,
    "videos_kwargs": lambda value: value is None or isinstance(value, Mapping),
    "audio_kwargs": lambda value: value is None or isinstance(value, Mapping),
    "pad_size": _is_box,
    # Of texts and videos, which are not in question here; but their types are checked.
    **dict.fromkeys(
        (
            "add_special_tokens", "do_sample_frames", "is_split_into_words", "padding",
            "return_metadata", "truncation",
        ),
        is_switch,
    ),
    "cap_pixels_per_frame": is_switch,
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
# What all video processors of transformers know; they check it where there is no video, too.
_HARMLESS_OF_VIDEOS: Final[Mapping[str, Callable[[object], bool]]] = {
    **{name: accepts for name, accepts in _HARMLESS.items() if name != "disable_grouping"},
    "do_sample_frames": is_switch,
    "fps": is_positive,
    "num_frames": is_count,
    "return_metadata": is_switch,
    "size": _is_size,
}
# Names that were seen to break a processor or to change what it returns; some are those of its
# reader of audio, which is made with them.
_HARMFUL: Final = frozenset({
    "audio", "backend", "chunk_length", "cls", "common_kwargs", "config", "dither",
    "feature_extractor", "feature_size", "gguf_file", "hop_length", "image_grid_pinpoints",
    "image_processor", "images", "input_data_format", "max_length", "n_fft", "padding_value",
    "return_tensors", "revision", "sampling_rate", "self", "size", "subfolder", "text",
    "text_kwargs", "text_pair", "tokenize", "tokenizer_type", "torch_dtype", "trust_remote_code",
    "video_metadata", "video_processor", "videos",
})  # fmt: skip
_IDS: Final = ("_token_id", "_token_index")
_SCOPES: Final = frozenset({"audio_kwargs", "images_kwargs", "videos_kwargs"})
SCOPES: Final = _SCOPES | {"text_kwargs"}
"""Names of the objects with kwargs of one modality."""
_OBJECTS: Final = SCOPES | {"common_kwargs"}


def read_kwargs(
    kwargs: Mapping[str, Any], *names: str, of_videos: Collection[str] = ()
) -> dict[str, Any]:
    """The kwargs of these names, those inside ``images_kwargs`` winning over flat ones.

    Args:
        kwargs: of the request.
        names: what the geometry reads.
        of_videos: counts that the model's video processor knows beside those of all video
            processors. It checks ``videos_kwargs`` where the request has no video, too.

    Raises:
        InexactError: `unsupported_processor_kwargs` if any other was not seen to be ignored.
    """
    scoped = kwargs.get("images_kwargs") or {}
    if not isinstance(scoped, Mapping):
        raise refused("images_kwargs", scoped, "an object")
    for name, value in scoped.items():
        if name not in names and not (name in _HARMLESS and _HARMLESS[name](value)):
            raise refused(f"images_kwargs.{name}", value, "absent")
    for name, value in _mapping(kwargs, "videos_kwargs").items():
        accepts = is_count if name in of_videos else _HARMLESS_OF_VIDEOS.get(name)
        if accepts is None or not accepts(value):
            raise refused(f"videos_kwargs.{name}", value, "absent")
    for name, value in kwargs.items():
        if name not in names and name != "images_kwargs":
            _check_flat(name, value)
        elif any(name in _mapping(kwargs, scope) for scope in ("videos_kwargs", "audio_kwargs")):
            raise refused(name, value, "given once: the engine drops what a scope repeats")
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}


def read_scoped_kwargs(kwargs: Mapping[str, Any], scope: str, *names: str) -> dict[str, Any]:
    """The kwargs of these names for videos or audio, those inside the scope winning over flat ones.

    Args:
        kwargs: of the request.
        scope: ``videos_kwargs`` or ``audio_kwargs``.
        names: what the geometry reads.

    Raises:
        InexactError: `unsupported_processor_kwargs` for any other, but for the scopes of other
            modalities.
    """
    scoped = kwargs.get(scope) or {}
    if not isinstance(scoped, Mapping):
        raise refused(scope, scoped, "an object")
    flat = {name: value for name, value in kwargs.items() if name not in _SCOPES}
    for name, value in {**scoped, **flat}.items():
        if name not in names:
            raise refused(name, value, "absent, where the request has videos or audio")
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}


def check_no_audio_kwargs(overrides: Overrides) -> None:
    """Refuse all overrides of how audio is processed: none was observed.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    read_scoped_kwargs({**overrides.processor, **overrides.media_io}, "audio_kwargs")


def read_flat(kwargs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The kwargs of these names that stand outside ``images_kwargs`` alone.

    Some models count by these. The engine drops a flat one that is repeated inside.
    """
    scoped = _mapping(kwargs, "images_kwargs")
    return {name: kwargs[name] for name in names if name in kwargs and name not in scoped}


def check_ignored(kwargs: Mapping[str, Any], *, edge: str | None = None) -> None:
    """For processors of transformers none of whose fields changes the count.

    Args:
        kwargs: of the request.
        edge: what a ``size`` may hold, besides height and width, for this processor.

    Raises:
        InexactError: `unsupported_processor_kwargs` for what was not seen to be ignored.
    """
    check_size(read_kwargs(kwargs, "size"), edge=edge)


def check_absent(kwargs: Mapping[str, Any], *names: str) -> None:
    """Refuse names that make a processor fail, or that were not observed with it.

    Raises:
        InexactError: `unsupported_processor_kwargs` if one of them is given.
    """
    for given in (kwargs, _mapping(kwargs, "images_kwargs")):
        for name in names:
            if name in given:
                raise refused(name, given[name], "absent for this model")


def check_size(given: Mapping[str, Any], *, edge: str | None) -> Mapping[str, int]:
    """The ``size`` among some kwargs, which may be absent.

    Raises:
        InexactError: `unsupported_processor_kwargs` for a form the processor refuses.
    """
    size = given.get("size", {"height": 1, "width": 1})
    known = isinstance(size, Mapping) and (
        size.keys() == {"height", "width"} or (edge in size and size.keys() <= _SIZE_EDGES)
    )
    if known and all(map(is_count, size.values())):
        checked: Mapping[str, int] = size
        return checked
    also = f', or of "{edge}"' if edge else ""
    raise refused("size", size, f'an object of "height" and "width"{also}')


def size_limits(given: Mapping[str, Any], lowest: int, highest: int) -> tuple[int, int]:
    """Smallest and largest area by the ``size`` among some kwargs, which must give both.

    Args:
        given: the kwargs.
        lowest: the smallest area where they have no ``size``, in pixels.
        highest: the largest one.

    Raises:
        InexactError: `unsupported_processor_kwargs` for any other form of it.
    """
    if "size" not in given:
        return lowest, highest
    size = given["size"]
    if not (isinstance(size, Mapping) and size.keys() == _SIZE_EDGES):
        raise refused("size", size, 'an object of "shortest_edge" and "longest_edge"')
    if not all(map(is_count, size.values())):
        raise refused("size", size, "of positive integers")
    return size["shortest_edge"], size["longest_edge"]


def check_unread(kwargs: Mapping[str, Any]) -> None:
    """For processors that read only names of their own.

    Raises:
        InexactError: `unsupported_processor_kwargs` for what breaks even them.
    """
    for name, value in kwargs.items():
        if name in ("images", "text"):
            raise refused(name, value, "absent")
        if name in _OBJECTS and not isinstance(value, Mapping):
            raise refused(name, value, "an object")
        if name != "images_kwargs":
            _check_nesting(name, value)


def check_known(kwargs: Mapping[str, Any], *names: str) -> None:
    """For processors that refuse a name they do not know, where others ignore it.

    Raises:
        InexactError: `unsupported_processor_kwargs` for any name but these.
    """
    for name, value in kwargs.items():
        if name not in names:
            raise refused(name, value, "absent for this model")


def refuse_scoped(kwargs: Mapping[str, Any]) -> None:
    """For models whose engine code counts by flat kwargs, but whose processor reads nested ones.

    Raises:
        InexactError: `unsupported_processor_kwargs` if ``images_kwargs`` is not empty.
    """
    if kwargs.get("images_kwargs"):
        raise refused("images_kwargs", kwargs["images_kwargs"], "absent for this model")


def check_unscoped(kwargs: Mapping[str, Any], name: str) -> None:
    """Refuse a name beside or inside ``images_kwargs``.

    For names that the engine reads in two places, in one of them without regard to
    ``images_kwargs``.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    scoped = kwargs.get("images_kwargs")
    if isinstance(scoped, Mapping) and scoped and (name in kwargs or name in scoped):
        raise refused(name, scoped.get(name, kwargs.get(name)), "given without images_kwargs")


def positive_count(given: Mapping[str, Any], name: str, default: int) -> int:
    """A positive integer among some kwargs, or the default.

    Raises:
        InexactError: `unsupported_processor_kwargs` for anything else.
    """
    value: int = given.get(name, default)
    if not is_count(value):
        raise refused(name, value, "a positive integer")
    return value


def switch(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """True or false among some kwargs, or the default.

    Raises:
        InexactError: `unsupported_processor_kwargs` for anything else.
    """
    value: bool = given.get(name, default)
    if not is_switch(value):
        raise refused(name, value, "true or false")
    return value


def check_true(given: Mapping[str, Any], *names: str) -> None:
    """For switches without which a processor fails, or returns what the engine does not expect.

    Raises:
        InexactError: `unsupported_processor_kwargs` if one of them is given, and not true.
    """
    for name in names:
        if given.get(name, True) is not True:
            raise refused(name, given[name], "true")


def refused(name: str, value: object, wanted: str) -> InexactError:
    """The error for a value that the engine refuses, or that was not observed."""
    return InexactError(
        Reason.UNSUPPORTED_PROCESSOR_KWARGS,
        f"mm_processor_kwargs.{name}: found {quoted(value)}, must be {wanted}",
    )


def _mapping(kwargs: Mapping[str, Any], scope: str) -> Mapping[str, Any]:
    """The kwargs of one scope; none if they are no object, which is refused elsewhere."""
    scoped = kwargs.get(scope)
    return scoped if isinstance(scoped, Mapping) else {}


def _check_flat(name: str, value: object) -> None:
    if name in _HARMFUL or name.endswith("_token"):  # texts that the processor searches for
        raise refused(name, value, "absent for this model")
    if name.endswith(_IDS) and not (type(value) is int and value >= 0):
        # It also sets the field of this name in the configuration, whose type is checked.
        raise refused(name, value, "a token ID")
    if name not in _HARMLESS_WHEN_FLAT:
        _check_nesting(name, value)
    elif not _HARMLESS_WHEN_FLAT[name](value):
        raise refused(name, value, "of a kind the image processor accepts")


def _check_nesting(name: str, value: object) -> None:
    """The engine caches processors by their kwargs, and hashes one level of nesting."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list) and any(isinstance(v, Mapping | list) for v in value):
        raise refused(name, value, "nested no deeper than one level")
