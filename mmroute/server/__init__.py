"""The render and tokenize endpoints of an engine, answered without pixels.

A server needs the extra `serve`; `mmroute.server.engines` does not.
"""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.server.admin import AddModelRequest
    from mmroute.server.app import create_app, respond
    from mmroute.server.entry import Entry
    from mmroute.server.loading import ModelSource
    from mmroute.server.models import Models
    from mmroute.server.service import Service
    from mmroute.server.settings import InexactPolicy, ServerSettings

__all__ = [
    "AddModelRequest", "Entry", "InexactPolicy", "ModelSource", "Models",
    "ServerSettings", "Service", "create_app", "respond",
]  # fmt: skip

__getattr__ = lazily(
    __name__,
    {
        "AddModelRequest": "mmroute.server.admin",
        "Entry": "mmroute.server.entry",
        "InexactPolicy": "mmroute.server.settings",
        "ModelSource": "mmroute.server.loading",
        "Models": "mmroute.server.models",
        "ServerSettings": "mmroute.server.settings",
        "Service": "mmroute.server.service",
        "create_app": "mmroute.server.app",
        "respond": "mmroute.server.app",
    },
)
