"""`mm_processor_kwargs` of a request: what they change, what they leave, what is refused.

The engine hands them to the model's image processor. Which of them change a count, which are
ignored and which make a processor fail was observed for each family with vLLM 0.33.0 and
transformers 5.20.2. What was not observed is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mmroute.errors import InexactError, Reason

if TYPE_CHECKING:
    from mmroute.geometry.hd_transform import HdTransform
    from mmroute.geometry.patch_rows import PatchRows
    from mmroute.geometry.smart_resize import SmartResize
    from mmroute.geometry.soft_tokens import SoftTokens

__all__ = ["check_ignored", "hd_transform", "patch_rows", "smart_resize", "soft_tokens"]


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_box(value: object) -> bool:
    return _is_count(value) or (
        isinstance(value, Mapping)
        and value.keys() == {"height", "width"}
        and all(map(_is_count, value.values()))
    )


def _is_three_floats(value: object) -> bool:
    three = 3
    return isinstance(value, list) and len(value) == three and all(type(v) is float for v in value)


# Fields of transformers' image processors that were seen to leave the count alone, with the
# values that were seen to be accepted; a processor validates them, and fails on others.
_HARMLESS: Final[Mapping[str, Callable[[object], bool]]] = {
    "crop_size": _is_box,
    "data_format": lambda value: value == "channels_first",
    "default_to_square": _is_switch,
    "device": lambda value: value == "cpu",
    "disable_grouping": _is_switch,
    "do_center_crop": _is_switch,
    "do_convert_rgb": _is_switch,
    "do_normalize": _is_switch,
    "do_pad": _is_switch,
    "do_rescale": _is_switch,
    "do_resize": lambda value: value is True,
    "image_mean": _is_three_floats,
    "image_std": _is_three_floats,
    "resample": lambda value: type(value) is int and 0 <= value <= 5,  # noqa: PLR2004 - Pillow's filters
    "rescale_factor": lambda value: type(value) is float,
    "return_tensors": lambda value: value == "pt",
}
# Names that were seen to break a processor or to change what it returns.
_HARMFUL: Final = frozenset({
    "common_kwargs", "image_grid_pinpoints", "images", "input_data_format", "size", "text",
    "text_kwargs",
})  # fmt: skip
_OTHER_MODALITIES: Final = frozenset({"videos_kwargs", "audio_kwargs"})
_SIZE_EDGES: Final = frozenset({"shortest_edge", "longest_edge"})


def smart_resize(geometry: SmartResize, kwargs: Mapping[str, Any]) -> SmartResize:
    """Qwen-VL: limits by ``min_pixels``, ``max_pixels``, ``size``; patches; no resize at all."""
    given = _given(
        kwargs, "min_pixels", "max_pixels", "size", "patch_size", "merge_size", "do_resize"
    )
    limits = {"shortest_edge": geometry.min_pixels, "longest_edge": geometry.max_pixels}
    if "size" in given:
        size = given["size"]
        if not isinstance(size, Mapping) or not size or not size.keys() <= _SIZE_EDGES:
            raise _refused("size", size, 'an object of "shortest_edge" and "longest_edge"')
        limits = {**(limits if geometry.keeps_partial_size else {}), **size}
    for edge, alias in (("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels")):
        if alias in given:
            limits[edge] = given[alias]
        if not _is_count(limits.get(edge)):
            raise _refused(alias, limits.get(edge), f"a positive integer (or size.{edge})")
    resize = given.get("do_resize", geometry.resize)
    if resize is not None and not isinstance(resize, bool):
        raise _refused("do_resize", resize, "true or false")
    return replace(
        geometry,
        min_pixels=limits["shortest_edge"],
        max_pixels=limits["longest_edge"],
        patch_size=_count(given, "patch_size", geometry.patch_size),
        merge_size=_count(given, "merge_size", geometry.merge_size),
        resize=bool(resize),
    )


def patch_rows(geometry: PatchRows, kwargs: Mapping[str, Any]) -> PatchRows:
    """Mistral 3: the limit by ``size.longest_edge``. Pixtral: nothing changes its count."""
    if geometry.overrides == "ignored":
        _check_unread(kwargs)
        return geometry
    size = check_ignored(kwargs, edge="longest_edge")
    if geometry.overrides == "checked" or "longest_edge" not in size:
        return geometry
    return replace(geometry, max_side=size["longest_edge"])


def hd_transform(geometry: HdTransform, kwargs: Mapping[str, Any]) -> HdTransform:
    """Phi-3-vision: the number of tiles by ``num_crops``."""
    _check_unread(kwargs)
    return replace(geometry, num_crops=_count(kwargs, "num_crops", geometry.num_crops))


def soft_tokens(geometry: SoftTokens, kwargs: Mapping[str, Any]) -> SoftTokens:
    """Gemma 3: pan-and-scan and its bounds."""
    kinds = {
        "do_pan_and_scan": ("pan_and_scan", _is_switch),
        "pan_and_scan_min_crop_size": ("min_crop_size", _is_count),
        "pan_and_scan_max_num_crops": ("max_num_crops", _is_count),
        "pan_and_scan_min_ratio_to_activate": ("min_ratio", lambda v: type(v) is float and v > 0),
    }
    given = _given(kwargs, "size", *kinds)
    _checked_size(given, edge="shortest_edge")
    changes: dict[str, Any] = {}
    for name, (field, accepts) in kinds.items():
        if name in given:
            if not accepts(given[name]):
                raise _refused(name, given[name], "of the kind the model's own configuration has")
            changes[field] = given[name]
    return replace(geometry, **changes)


def check_ignored(kwargs: Mapping[str, Any], *, edge: str | None = None) -> Mapping[str, int]:
    """For processors of transformers whose fields do not change the count; gives the ``size``.

    Args:
        kwargs: of the request.
        edge: what a ``size`` may hold instead of height and width, for this processor.

    Raises:
        InexactError: `unsupported_processor_kwargs` for what was not seen to be ignored.
    """
    return _checked_size(_given(kwargs, "size"), edge=edge)


def _checked_size(given: Mapping[str, Any], *, edge: str | None) -> Mapping[str, int]:
    if "size" not in given:
        return {}
    size = given["size"]
    known = isinstance(size, Mapping) and (
        size.keys() == {"height", "width"} or (edge in size and size.keys() <= _SIZE_EDGES)
    )
    if known and all(map(_is_count, size.values())):
        checked: Mapping[str, int] = size
        return checked
    raise _refused("size", size, f'an object of "height" and "width", or of "{edge}"')


def _check_unread(kwargs: Mapping[str, Any]) -> None:
    """For processors that read only names of their own."""
    for name, value in kwargs.items():
        if name in ("images", "text"):
            raise _refused(name, value, "absent")
        if name != "images_kwargs":
            _check_hashable(name, value)


def _given(kwargs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The kwargs of these names, those inside ``images_kwargs`` winning over flat ones."""
    scoped = kwargs.get("images_kwargs") or {}
    if not isinstance(scoped, Mapping):
        raise _refused("images_kwargs", scoped, "an object")
    for name, value in scoped.items():
        if name not in names and not (name in _HARMLESS and _HARMLESS[name](value)):
            raise _refused(f"images_kwargs.{name}", value, "absent")
    for name, value in kwargs.items():
        if name not in names and name != "images_kwargs":
            _check_flat(name, value)
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}


def _check_flat(name: str, value: object) -> None:
    if name in _HARMFUL:
        raise _refused(name, value, "absent for this model")
    if name in _HARMLESS:
        if not _HARMLESS[name](value):
            raise _refused(name, value, "of a kind the image processor accepts")
    elif name == "patch_size":
        _count({name: value}, name, 1)
    elif name in _OTHER_MODALITIES:
        if value is not None and not isinstance(value, Mapping):
            raise _refused(name, value, "an object")
    else:
        _check_hashable(name, value)


def _check_hashable(name: str, value: object) -> None:
    """The engine caches processors by their kwargs, one level of nesting deep."""
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list) and any(isinstance(v, Mapping | list) for v in inner):  # type: ignore[attr-defined]  # both are iterable
        raise _refused(name, value, "nested no deeper than one level")


def _count(given: Mapping[str, Any], name: str, default: int) -> int:
    value: int = given.get(name, default)
    if not _is_count(value):
        raise _refused(name, value, "a positive integer")
    return value


def _refused(name: str, value: object, wanted: str) -> InexactError:
    return InexactError(
        Reason.UNSUPPORTED_PROCESSOR_KWARGS,
        f"mm_processor_kwargs.{name}: found {value!r}, must be {wanted}",
    )
