"""What a request is answered with beside its body, and what it is answered by."""

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
    """What a request is answered with, beside its body.

    Attributes:
        model: the model that the request asks for.
        options: what the operator decided.
        request_id: the value of the ``X-Request-Id`` header; None if there is none.
        own_id: gives the ID of a request that brings none.
        blocks: the block hashes that are wanted; None for none.
    """

    model: LoadedModel
    options: ApiOptions
    request_id: str | None = None
    own_id: Callable[[], str] = str
    blocks: BlockForm | None = None


class Reply(NamedTuple):
    """The answer to a request.

    Attributes:
        body: a value that is ready for JSON; token IDs and masks are arrays of numpy.
        routings: the prompts in it.
        headers: headers beside the usual ones.
        inexact: why it is not the whole prompt; None if it is.
    """

    body: Any
    routings: Sequence[Routing] = ()
    headers: Mapping[str, str] = NO_HEADERS
    inexact: Reason | None = None


class ApiRequest(Protocol):
    """A request of one route, whose fields are checked."""

    @property
    def model(self) -> str | None:
        """The name of the model it asks for; None for the first one."""

    def cost(self, size: int) -> Cost:
        """What it costs.

        Args:
            size: bytes of its body.
        """

    def answer(self, call: Call) -> Reply:
        """The answer.

        Raises:
            ApiError: what vLLM refuses, and what has no exact answer.
        """
