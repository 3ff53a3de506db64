"""The token IDs an inference engine will hold for a vision-language request, without pixels."""

from mmroute.errors import EventsError, InexactError, MmrouteError, ModelError, Reason, SpecError
from mmroute.fast_paths import FastPaths
from mmroute.images import ImageIdentity, ImageLinks, read_image, read_image_size
from mmroute.normalizer import Normalizer
from mmroute.placement import PlaceholderRange
from mmroute.remote import Remote
from mmroute.request import ImageFile, ImageSize, Lora
from mmroute.routing import Routing

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
    "read_image",
    "read_image_size",
]
