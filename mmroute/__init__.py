"""The token IDs an inference engine will hold for a vision-language request, without pixels."""

from typing import TYPE_CHECKING, Any

from mmroute.errors import EventsError, InexactError, MmrouteError, ModelError, Reason, SpecError
from mmroute.fast_paths import FastPaths
from mmroute.images import ImageIdentity, ImageLinks, read_image, read_image_size
from mmroute.normalizer import Normalizer
from mmroute.placement import PlaceholderRange
from mmroute.remote import Remote
from mmroute.request import ImageFile, ImageSize, Lora
from mmroute.routing import Routing

if TYPE_CHECKING:
    from mmroute.tokenizers.loading import load_tokenizer

__all__ = [
    "EventsError",
    "FastPaths",
    "ImageFile",
    "ImageIdentity",
    "ImageLinks",
    "ImageSize",
    "InexactError",
    "Lora",
    "MmrouteError",
    "ModelError",
    "Normalizer",
    "PlaceholderRange",
    "Reason",
    "Remote",
    "Routing",
    "SpecError",
    "load_tokenizer",
    "read_image",
    "read_image_size",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever is asked for
    """What the request path does not need is imported when it is used (PEP 562)."""
    if name == "load_tokenizer":
        from mmroute.tokenizers.loading import load_tokenizer  # noqa: PLC0415

        return load_tokenizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
