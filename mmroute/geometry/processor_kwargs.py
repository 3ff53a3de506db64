"""Reading the `mm_processor_kwargs` of a request.

The engine hands them to the model's processors. Which of them change a count, which are
ignored and which make a processor fail was observed for each family with vLLM 0.33.0 and
transformers 5.20.2. What was not observed is refused, never guessed. What a name changes is the
business of the geometry that reads it.

What a function here refuses, it refuses by an `InexactError` with the reason
`unsupported_processor_kwargs`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from mmroute.errors import InexactError, Reason, quoted
from mmroute.geometry.known_kwargs import (
    HARMFUL,
    HARMLESS,
    HARMLESS_OF_VIDEOS,
    HARMLESS_WHEN_FLAT,
    SIZE_EDGES,
    is_count,
    is_empty,
    is_switch,
)
from mmroute.geometry.loader_names import CONFIG_FIELDS, OF_LOADERS

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
        names: what the geometry reads; others are refused that were not seen to be ignored.
        of_videos: counts that the model's video processor knows beside those of all video
            processors. It checks ``videos_kwargs`` where the request has no video, too.
    """
    scoped = kwargs.get("images_kwargs") or {}
    if not isinstance(scoped, Mapping):
        raise refused("images_kwargs", scoped, "an object")
    for name, value in scoped.items():
        if name not in names and not (name in HARMLESS and HARMLESS[name](value)):
            raise refused(f"images_kwargs.{name}", value, "absent")
    for name, value in _mapping(kwargs, "videos_kwargs").items():
        accepts = is_count if name in of_videos else HARMLESS_OF_VIDEOS.get(name)
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
        names: what the geometry reads; others are refused, but for the scopes of other modalities.
    """
    scoped = kwargs.get(scope) or {}
    if not isinstance(scoped, Mapping):
        raise refused(scope, scoped, "an object")
    flat = {
        name: value
        for name, value in kwargs.items()
        if name not in _SCOPES and not (name in _OBJECTS and is_empty(value))
    }
    for name, value in {**scoped, **flat}.items():
        if name not in names:
            raise refused(name, value, "absent, where the request has videos or audio")
    return {name: value for name, value in {**kwargs, **scoped}.items() if name in names}


def read_video_kwargs(kwargs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """As `read_scoped_kwargs`, for processors that get the frames that the engine has chosen.

    They do not choose again, and ``do_sample_frames`` may say so.
    """
    given = read_scoped_kwargs(kwargs, "videos_kwargs", *names, "do_sample_frames")
    if given.get("do_sample_frames", False) is not False:
        raise refused("do_sample_frames", given["do_sample_frames"], "false")
    return given


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
    """
    check_size(read_kwargs(kwargs, "size"), edge=edge)


def check_absent(kwargs: Mapping[str, Any], *names: str) -> None:
    """Refuse names that make a processor fail, or that were not observed with it."""
    for given in (kwargs, _mapping(kwargs, "images_kwargs")):
        for name in names:
            if name in given:
                raise refused(name, given[name], "absent for this model")


def check_size(given: Mapping[str, Any], *, edge: str | None) -> Mapping[str, int]:
    """The ``size`` among some kwargs, which may be absent, in a form that the processor takes."""
    size = given.get("size", {"height": 1, "width": 1})
    known = isinstance(size, Mapping) and (
        size.keys() == {"height", "width"} or (edge in size and size.keys() <= SIZE_EDGES)
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
    """
    if "size" not in given:
        return lowest, highest
    size = given["size"]
    if not (isinstance(size, Mapping) and size.keys() == SIZE_EDGES):
        raise refused("size", size, 'an object of "shortest_edge" and "longest_edge"')
    if not all(map(is_count, size.values())):
        raise refused("size", size, "of positive integers")
    return size["shortest_edge"], size["longest_edge"]


def check_unread(kwargs: Mapping[str, Any]) -> None:
    """Refuse what breaks even processors that read only names of their own."""
    for name, value in kwargs.items():
        if name in ("images", "text"):
            raise refused(name, value, "absent")
        _check_loading(name, value)
        if name in _OBJECTS and not isinstance(value, Mapping):
            raise refused(name, value, "an object")
        if name != "images_kwargs":
            _check_nesting(name, value)
        elif "images" in value:
            raise refused("images_kwargs.images", value["images"], "absent")


def check_known(kwargs: Mapping[str, Any], *names: str) -> None:
    """Refuse all names but these, for processors that do so, where others ignore them."""
    for name, value in kwargs.items():
        if name not in names:
            raise refused(name, value, "absent for this model")


def refuse_scoped(kwargs: Mapping[str, Any]) -> None:
    """Refuse ``images_kwargs`` that hold something.

    For models whose engine code counts by flat kwargs, but whose processor reads nested ones.
    """
    if kwargs.get("images_kwargs"):
        raise refused("images_kwargs", kwargs["images_kwargs"], "absent for this model")


def check_unscoped(kwargs: Mapping[str, Any], name: str) -> None:
    """Refuse a name beside or inside ``images_kwargs``.

    For names that the engine reads in two places, in one of them without regard to
    ``images_kwargs``.
    """
    scoped = kwargs.get("images_kwargs")
    if isinstance(scoped, Mapping) and scoped and (name in kwargs or name in scoped):
        raise refused(name, scoped.get(name, kwargs.get(name)), "given without images_kwargs")


def positive_count(
    given: Mapping[str, Any], name: str, default: int, *, most: int | None = None
) -> int:
    """A positive integer among some kwargs, or the default; anything else is refused."""
    value: int = given.get(name, default)
    if not is_count(value) or (most is not None and value > most):
        raise refused(name, value, f"a positive integer{f' up to {most}' if most else ''}")
    return value


def switch(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """True or false among some kwargs, or the default; anything else is refused."""
    value: bool = given.get(name, default)
    if not is_switch(value):
        raise refused(name, value, "true or false")
    return value


def check_true(given: Mapping[str, Any], *names: str) -> None:
    """Refuse switches that are off without which a processor fails, or the engine misreads it."""
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
    _check_loading(name, value)
    if name in HARMFUL or name.endswith("_token"):  # texts that the processor searches for
        raise refused(name, value, "absent for this model")
    if name.endswith(_IDS) and not (type(value) is int and value >= 0):
        # It also sets the field of this name in the configuration, whose type is checked.
        raise refused(name, value, "a token ID")
    if name not in HARMLESS_WHEN_FLAT:
        _check_nesting(name, value)
    elif not HARMLESS_WHEN_FLAT[name](value):
        raise refused(name, value, "of a kind the image processor accepts")


def _check_loading(name: str, value: object) -> None:
    if name in OF_LOADERS or name.startswith("_"):
        raise refused(name, value, "absent: a loader of the processor takes it for its own")
    if name in CONFIG_FIELDS and not CONFIG_FIELDS[name](value):
        raise refused(name, value, "of the type that the model's configuration may have")


def _check_nesting(name: str, value: object) -> None:
    """The engine caches processors by their kwargs, and hashes one level of nesting."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list) and any(isinstance(v, Mapping | list) for v in value):
        raise refused(name, value, "nested no deeper than one level")
