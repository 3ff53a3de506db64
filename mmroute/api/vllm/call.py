"""The call of a route: the inputs of an answer beside the body, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.api.vllm.cost import Cost
from mmroute.api.vllm.model import LoadedModel
from mmroute.api.vllm.options import ApiOptions
from mmroute.errors import Reason

NO_HEADERS: Final[Mapping[str, str]] = {}


class Call(NamedTuple):
    """The inputs of an answer, beside the body of the request.

    Attributes:
        model: the model that the request asks for.
        options: the options that the operator set.
        request_id: the value of the ``X-Request-Id`` header; None if there is none.
        own_id: returns an ID for a request that brings none.
        blocks: the block hashes to put into the answer; None for none.
        tokens_only: whether the answers of render routes leave out what routers do not read.
    """

    model: LoadedModel
    options: ApiOptions
    request_id: str | None = None
    own_id: Callable[[], str] = str
    blocks: BlockForm | None = None
    tokens_only: bool = False


class Reply(NamedTuple):
    """The answer to a request.

    Attributes:
        body: a value that is ready for JSON; token IDs and masks are arrays of numpy.
        routings: the routings of the prompts in the body.
        headers: further headers of the response.
        inexact: the reason why the body has only the beginning of a prompt; None if it has all.
    """

    body: Any
    routings: Sequence[Routing] = ()
    headers: Mapping[str, str] = NO_HEADERS
    inexact: Reason | None = None


class ApiRequest(Protocol):
    """A request of one route, whose fields are checked."""

    @property
    def model(self) -> str | None:
        """The name of the model to ask; None for the first one."""

    def cost(self, size: int) -> Cost:
        """An estimate of the time that an answer takes.

        Args:
            size: the size of the body, in bytes.
        """

    def answer(self, call: Call) -> Reply:
        """Answer the request.

        Raises:
            ApiError: vLLM refuses the request, or it has no exact answer.
        """
