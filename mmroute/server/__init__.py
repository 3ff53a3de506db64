"""The render and tokenize endpoints of vLLM, answered without pixels.

Needs the extra `serve`; importing `mmroute` does not import this package.
"""

from mmroute.server.admin import AddModelRequest
from mmroute.server.app import create_app, respond
from mmroute.server.entry import Entry
from mmroute.server.loading import ModelSource
from mmroute.server.models import Change, Models
from mmroute.server.service import Service
from mmroute.server.settings import InexactPolicy, ServerSettings

__all__ = [
    "AddModelRequest", "Change", "Entry", "InexactPolicy", "ModelSource", "Models",
    "ServerSettings", "Service", "create_app", "respond",
]  # fmt: skip
