"""The render and tokenize endpoints of vLLM, answered without pixels.

Needs the extra ``mmroute[serve]``; importing `mmroute` does not import this package.
"""

from mmroute.server.asgi import create_app
from mmroute.server.models import ModelSource
from mmroute.server.settings import InexactPolicy, ServerSettings

__all__ = ["InexactPolicy", "ModelSource", "ServerSettings", "create_app"]
