"""What an operator decides about answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mmroute.errors import Reason


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
