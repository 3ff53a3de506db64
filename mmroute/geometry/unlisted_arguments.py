"""Arguments of requests that a family's spec does not list, to processors of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.errors import InexactError, argument_refused
from mmroute.geometry.known_arguments import HARMFUL, HARMLESS_WHEN_FLAT, TYPED_NAMES
from mmroute.geometry.loader_names import CONFIG_FIELDS, OF_LOADERS

SCOPES: Final = frozenset({"audio_kwargs", "images_kwargs", "text_kwargs", "videos_kwargs"})
"""Names of the objects with arguments of one modality."""
OBJECTS: Final = SCOPES | {"common_kwargs"}
"""Those, and the one with arguments of all."""
_IDS: Final = ("_token_id", "_token_index")


def refused(name: str, value: object, wanted: str) -> InexactError:
    """The error for a value that the engine refuses, or that was not observed."""
    return argument_refused(f"mm_processor_kwargs.{name}", value, wanted)


def check_unread(kwargs: Mapping[str, Any]) -> None:
    """Refuse what breaks even processors that read only names of their own."""
    for name, value in kwargs.items():
        if name in ("images", "self", "text"):
            raise refused(name, value, "absent")
        _check_loading(name, value)
        if name in OBJECTS and not isinstance(value, Mapping):
            raise refused(name, value, "an object")
        _check_nesting(name, value)
        if name == "images_kwargs" and "images" in value:
            raise refused("images_kwargs.images", value["images"], "absent")


def check_flat(name: str, value: object) -> None:
    """Refuse a flat argument, which the spec does not list, unless it was seen to do no harm."""
    _check_loading(name, value)
    if name in HARMFUL or name.endswith("_token"):  # texts that the processor searches for
        raise refused(name, value, "absent for this model")
    _check_token_id(name, value)
    if name not in HARMLESS_WHEN_FLAT:
        _check_nesting(name, value)
    elif not HARMLESS_WHEN_FLAT[name](value):
        raise refused(name, value, "of a kind the image processor accepts")


def check_foreign(name: str, value: object) -> None:
    """Refuse a flat argument, unless no processor of transformers has one of its name."""
    _check_loading(name, value)
    if name in TYPED_NAMES or name in HARMFUL or name.endswith("_token"):
        raise refused(name, value, "absent for this model")
    _check_token_id(name, value)
    _check_nesting(name, value)


def _check_token_id(name: str, value: object) -> None:
    """Refuse what the configuration's field of this name, which it also sets, cannot hold."""
    if name.endswith(_IDS) and not (type(value) is int and value >= 0):
        raise refused(name, value, "a token ID")


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
