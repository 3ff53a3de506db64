"""The render and tokenize endpoints of vLLM, answered without pixels.

Needs the extra ``mmroute[serve]``; importing `mmroute` does not import this package.
"""

from mmroute.server.app import create_app
from mmroute.server.loading import ModelSource
from mmroute.server.settings import InexactPolicy, ServerSettings

__all__ = ["InexactPolicy", "ModelSource", "ServerSettings", "create_app"]
