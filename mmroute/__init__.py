"""Computes the token IDs that an inference engine will hold for a request, without pixels."""

from typing import TYPE_CHECKING

from mmroute.answering.routing import PlacedItem, Routing
from mmroute.engine import EngineSettings
from mmroute.errors import EventsError, InexactError, MmrouteError, ModelError, Reason, SpecError
from mmroute.images import read_image
from mmroute.lazy import lazily
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.placement import PlaceholderRange
from mmroute.requests.items import (
    AudioLength,
    Identity,
    ImageFile,
    ImageSize,
    Modality,
    VideoFile,
    VideoSize,
)
from mmroute.requests.request import Lora, Request
from mmroute.reuse.fast_paths import FastPaths

if TYPE_CHECKING:
    from mmroute.audios.reading import read_audio
    from mmroute.engines.bodies import from_openai
    from mmroute.server.remote import Remote
    from mmroute.server.remote.normalizer import connect
    from mmroute.text.loading import load_tokenizer
    from mmroute.videos.reading import read_video

__all__ = [
    "AudioLength",
    "EngineSettings",
    "EventsError",
    "FastPaths",
    "Identity",
    "ImageFile",
    "ImageLinks",
    "ImageSize",
    "InexactError",
    "Lora",
    "MmrouteError",
    "Modality",
    "ModelError",
    "Normalizer",
    "PlacedItem",
    "PlaceholderRange",
    "Reason",
    "Remote",
    "Request",
    "Routing",
    "SpecError",
    "VideoFile",
    "VideoSize",
    "connect",
    "from_openai",
    "load_tokenizer",
    "read_audio",
    "read_image",
    "read_video",
]

# These names are imported at their first use, because the request path does not need them.
__getattr__ = lazily(
    __name__,
    {
        "Remote": "mmroute.server.remote",
        "from_openai": "mmroute.engines.bodies",
        "connect": "mmroute.server.remote.normalizer",
        "read_audio": "mmroute.audios.reading",
        "read_video": "mmroute.videos.reading",
        "load_tokenizer": "mmroute.text.loading",
    },
)
