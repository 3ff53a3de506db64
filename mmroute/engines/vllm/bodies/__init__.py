"""From a client's body to a request, for each route of vLLM's API that renders a prompt."""

from mmroute.engines.vllm.bodies.errors import BodyError
from mmroute.engines.vllm.bodies.parsing import from_openai, read

__all__ = ["BodyError", "from_openai", "read"]
