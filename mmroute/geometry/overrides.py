"""`mm_processor_kwargs` of a request: what they change, what they leave, what is refused.

The engine hands them to the model's image processor. Which of them change a count, and which
values make a processor fail, was observed for each family with vLLM 0.33.0 and transformers
5.20.2. What was not observed is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mmroute.errors import Reason, Refusal

if TYPE_CHECKING:
    from mmroute.geometry.hd_transform import HdTransform
    from mmroute.geometry.patch_rows import PatchRows
    from mmroute.geometry.smart_resize import SmartResize
    from mmroute.geometry.soft_tokens import SoftTokens

__all__ = ["hd_transform", "patch_rows", "refuse_unproved", "smart_resize", "soft_tokens"]

_SWITCHES: Final = frozenset({
    "default_to_square", "disable_grouping", "do_center_crop", "do_convert_rgb", "do_normalize",
    "do_pad", "do_rescale",
})  # fmt: skip
# Names the processors read and that were seen, or are known, to change or break the result.
_UNPROVED: Final = frozenset({
    "common_kwargs", "data_format", "device", "image_mean", "image_std", "images",
    "input_data_format", "resample", "rescale_factor", "return_tensors", "text", "text_kwargs",
})  # fmt: skip
_SIZE_EDGES: Final = frozenset({"shortest_edge", "longest_edge"})


def smart_resize(geometry: SmartResize, kwargs: Mapping[str, Any]) -> SmartResize:
    """Qwen-VL: limits by ``min_pixels``, ``max_pixels``, ``size``; patches; no resize at all."""
    given = _given(
        kwargs, "min_pixels", "max_pixels", "size", "patch_size", "merge_size", "do_resize"
    )
    lowest, highest = geometry.min_pixels, geometry.max_pixels
    if "size" in given:
        size = given["size"]
        if not (isinstance(size, Mapping) and size and size.keys() <= _SIZE_EDGES):
            raise _refused("size", size, 'an object of "shortest_edge" and "longest_edge"')
        if not geometry.keeps_partial_size:
            lowest = highest = 0
        lowest = _positive("size.shortest_edge", size.get("shortest_edge", lowest or None), given)
        highest = _positive("size.longest_edge", size.get("longest_edge", highest or None), given)
    if "min_pixels" in given:
        lowest = _positive("min_pixels", given["min_pixels"])
    if "max_pixels" in given:
        highest = _positive("max_pixels", given["max_pixels"])
    if not (lowest and highest):
        raise _refused("size", given["size"], "both edges, as this engine merges no partial size")
    resize = given.get("do_resize", geometry.resize)
    if resize is not None and not isinstance(resize, bool):
        raise _refused("do_resize", resize, "true or false")
    return replace(
        geometry,
        min_pixels=lowest,
        max_pixels=highest,
        patch_size=_positive("patch_size", given.get("patch_size", geometry.patch_size)),
        merge_size=_positive("merge_size", given.get("merge_size", geometry.merge_size)),
        resize=bool(resize),
    )


def patch_rows(geometry: PatchRows, kwargs: Mapping[str, Any]) -> PatchRows:
    """Mistral 3: the limit by ``size.longest_edge``. Pixtral counts by its own configuration."""
    if not geometry.limit_override:
        refuse_unproved(kwargs)
        return geometry
    given = _given(kwargs, "size", "patch_size")
    if "patch_size" in given:
        raise _refused("patch_size", given["patch_size"], "absent")
    if "size" not in given:
        return geometry
    size = given["size"]
    if not (isinstance(size, Mapping) and size.keys() == {"longest_edge"}):
        raise _refused("size", size, 'an object of "longest_edge"')
    return replace(geometry, max_side=_positive("size.longest_edge", size["longest_edge"]))


def hd_transform(geometry: HdTransform, kwargs: Mapping[str, Any]) -> HdTransform:
    """Phi-3-vision: the number of tiles by ``num_crops``."""
    refuse_unproved(kwargs)
    if "num_crops" not in kwargs:
        return geometry
    return replace(geometry, num_crops=_positive("num_crops", kwargs["num_crops"]))


def soft_tokens(geometry: SoftTokens, kwargs: Mapping[str, Any]) -> SoftTokens:
    """Gemma 3: pan-and-scan and its bounds."""
    kinds = {
        "do_pan_and_scan": ("pan_and_scan", bool),
        "pan_and_scan_min_crop_size": ("min_crop_size", int),
        "pan_and_scan_max_num_crops": ("max_num_crops", int),
        "pan_and_scan_min_ratio_to_activate": ("min_ratio", float),
    }
    changes: dict[str, Any] = {}
    for name, value in _given(kwargs, *kinds).items():
        field, kind = kinds[name]
        if type(value) is not kind or (kind is not bool and value <= 0):
            raise _refused(name, value, f"a {kind.__name__}, positive if it is a number")
        changes[field] = value
    return replace(geometry, **changes)


def refuse_unproved(kwargs: Mapping[str, Any]) -> None:
    """Let pass what the engine ignores.

    Raises:
        Refusal: `unsupported_processor_kwargs` for anything else.
    """
    _given(kwargs)


def _given(kwargs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The kwargs of these names, those inside ``images_kwargs`` winning over flat ones."""
    scoped = kwargs.get("images_kwargs") or {}
    if not isinstance(scoped, Mapping):
        raise _refused("images_kwargs", scoped, "an object")
    for name, value in scoped.items():
        if name not in names and not (name in _SWITCHES and isinstance(value, bool)):
            raise _refused(f"images_kwargs.{name}", value, "absent")
    for name, value in kwargs.items():
        if name not in names and name != "images_kwargs":
            _check_ignored(name, value)
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}


def _check_ignored(name: str, value: object) -> None:
    if name in _UNPROVED:
        raise _refused(name, value, "absent: its effect on the token count was not proved")
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise _refused(name, value, "true or false")
    elif isinstance(value, Mapping | list) and name not in ("videos_kwargs", "audio_kwargs"):
        raise _refused(name, value, "a plain value: the engine cannot hash nested ones")


def _positive(name: str, value: object, given: Mapping[str, Any] | None = None) -> int:
    if value is None and given is not None:
        return 0
    if type(value) is not int or value <= 0:
        raise _refused(name, value, "a positive integer")
    return value


def _refused(name: str, value: object, wanted: str) -> Refusal:
    return Refusal(
        Reason.UNSUPPORTED_PROCESSOR_KWARGS,
        f"mm_processor_kwargs.{name}: found {value!r}, must be {wanted}",
    )
