"""The derender routes of chats and completions, which only a fallback answers.

An engine parses its answers by the parsers that it was started with, one for nearly every family
of models. mmroute has none of them, so it hands these requests on.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from mmroute.engines.vllm.bodies.errors import unsupported_field
from mmroute.server.engines.vllm.model import Call


class DerenderRequest(BaseModel):
    """A request to parse an engine's answer. Its token IDs are not read."""

    model_config = ConfigDict(extra="allow")

    model: Any = None


def derender(_request: DerenderRequest, _call: Call) -> NoReturn:
    """Refuse a request, so that the fallback is asked."""
    raise unsupported_field(
        "mmroute makes no answers out of token IDs: ask an engine, or give one as "
        "--fallback-url, to which such requests are handed on",
    )
