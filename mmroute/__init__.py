"""The token IDs an inference engine will hold for a vision-language request, without pixels."""

from mmroute.errors import MmrouteError, ModelError, Reason, Refusal, SpecError
from mmroute.normalizer import Normalizer, Routing
from mmroute.placement import PlaceholderRange
from mmroute.request import ImageSize

__all__ = [
    "ImageSize",
    "MmrouteError",
    "ModelError",
    "Normalizer",
    "PlaceholderRange",
    "Reason",
    "Refusal",
    "Routing",
    "SpecError",
]
