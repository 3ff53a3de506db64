"""From a client's chat or completion to a request."""

from mmroute.engines.vllm.bodies.errors import BodyError
from mmroute.engines.vllm.bodies.parsing import from_openai, read

__all__ = ["BodyError", "from_openai", "read"]
