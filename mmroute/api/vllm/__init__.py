"""vLLM's API: what its routes take, refuse and answer, without a server.

Each class of requests parses a body, says what it costs, and answers it. `from_openai` makes a
`mmroute.Request` of a client's body, and `answer_body` answers one as a route does.
"""

from mmroute.api.vllm.answers import ErrorResponse
from mmroute.api.vllm.call import ApiRequest, Call, Reply
from mmroute.api.vllm.chat_completion import ChatCompletionRequest
from mmroute.api.vllm.cost import Cost
from mmroute.api.vllm.errors import (
    REFUSED_BY_ENGINE,
    USUALLY_REFUSED,
    ApiError,
    bad_request,
    invalid_body,
    of_reason,
    require,
)
from mmroute.api.vllm.model import LoadedModel
from mmroute.api.vllm.options import ApiOptions
from mmroute.api.vllm.parsing import answer_body, from_openai, read
from mmroute.api.vllm.releases import OWN_ROUTES, Release, release_of
from mmroute.api.vllm.routes import ROUTES, schema_of
from mmroute.api.vllm.validation import Schema, invalid_fields

__all__ = [
    "OWN_ROUTES", "REFUSED_BY_ENGINE", "ROUTES", "USUALLY_REFUSED", "ApiError", "ApiOptions",
    "ApiRequest", "Call", "ChatCompletionRequest", "Cost", "ErrorResponse", "LoadedModel",
    "Release", "Reply", "Schema", "answer_body", "bad_request", "from_openai", "invalid_body",
    "invalid_fields", "of_reason", "read", "release_of", "require", "schema_of",
]  # fmt: skip
