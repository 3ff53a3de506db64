"""The options for answers that an operator sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mmroute.errors import Reason


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The options for answers that an operator sets.

    Attributes:
        strict: whether to refuse `prompt` together with `messages`, and tools without a parser.
        trusts_mm_kwargs: whether requests to any model may set `mm_processor_kwargs` and
            `media_io_kwargs`, and not only to those whose engine settings say so.
        text_prefix: whether to answer a chat whose items are not known with the tokens before the
            first item.
        advice: for some reasons, the message that replaces the one for callers of a normalizer.
    """

    strict: bool = False
    trusts_mm_kwargs: bool = False
    text_prefix: bool = False
    advice: Mapping[Reason, str] = field(default_factory=dict)
