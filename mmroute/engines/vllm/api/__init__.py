"""vLLM's API: what its routes take, refuse and answer, without a server.

Each class of requests parses a body, says what it costs, and answers it. `parse` makes a
`mmroute.Request` of a client's body.
"""

from mmroute.engines.vllm.api.answers import ErrorResponse
from mmroute.engines.vllm.api.call import ApiOptions, ApiRequest, Call, Reply
from mmroute.engines.vllm.api.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.api.cost import Cost
from mmroute.engines.vllm.api.errors import (
    USUALLY_REFUSED,
    ApiError,
    bad_request,
    invalid_body,
    require,
)
from mmroute.engines.vllm.api.model import LoadedModel
from mmroute.engines.vllm.api.parsing import parse, read
from mmroute.engines.vllm.api.releases import Release, release_of
from mmroute.engines.vllm.api.routes import ROUTES, schema_of
from mmroute.engines.vllm.api.validation import Schema, invalid_fields

__all__ = [
    "ROUTES", "USUALLY_REFUSED", "ApiError", "ApiOptions", "ApiRequest", "Call",
    "ChatCompletionRequest", "Cost", "ErrorResponse", "LoadedModel", "Release", "Reply", "Schema",
    "bad_request", "invalid_body", "invalid_fields", "parse", "read", "release_of", "require",
    "schema_of",
]  # fmt: skip
