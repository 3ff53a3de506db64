"""From a client's chat or completion to a request."""

from mmroute.engines.vllm.bodies.errors import BodyError
from mmroute.engines.vllm.bodies.schemas import parse_body, read

__all__ = ["BodyError", "parse_body", "read"]
