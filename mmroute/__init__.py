"""The token IDs an inference engine will hold for a vision-language request, without pixels."""

from mmroute.errors import InexactError, MmrouteError, ModelError, Reason, SpecError
from mmroute.normalizer import Normalizer, Routing
from mmroute.placement import PlaceholderRange
from mmroute.request import ImageSize

__all__ = [
    "ImageSize",
    "InexactError",
    "MmrouteError",
    "ModelError",
    "Normalizer",
    "PlaceholderRange",
    "Reason",
    "Routing",
    "SpecError",
]
