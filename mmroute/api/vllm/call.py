"""What a request is answered with beside its body, and what it is answered by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mmroute.answering.hash_forms import BlockForm
from mmroute.answering.routing import Routing
from mmroute.api.vllm.cost import Cost
from mmroute.errors import Reason

if TYPE_CHECKING:
    from mmroute.api.vllm.model import LoadedModel

NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """What an operator decides about answers.

    Attributes:
        strict: refuse `prompt` together with `messages`, and tools without a parser.
        trusts_mm_kwargs: let requests set `mm_processor_kwargs` and `media_io_kwargs`.
        text_prefix: answer a chat whose items are not known with the tokens before the first one.
        advice: what to do about a reason here, in place of what is said to the caller of a
            normalizer.
    """

    strict: bool = False
    trusts_mm_kwargs: bool = False
    text_prefix: bool = False
    advice: Mapping[Reason, str] = field(default_factory=dict)


class Call(NamedTuple):
    """What a request is answered with, beside its body.

    Attributes:
        model: the model that the request asks for.
        options: what the operator decided.
        request_id: the value of the ``X-Request-Id`` header; None if there is none.
        own_id: the ID of a request that brings none.
        blocks: the block hashes that are wanted; None for none.
    """

    model: LoadedModel
    options: ApiOptions
    request_id: str | None = None
    own_id: str = ""
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
