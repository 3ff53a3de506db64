"""What chat renderers without a template have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from mmroute.chat.reuse import ChatReuse
    from mmroute.chat.template import ChatTemplate
    from mmroute.request import Request

__all__ = ["UntemplatedChat"]


class UntemplatedChat:
    """The part of `Chat` that is about templates, for an engine that uses none.

    Another template or content format changes nothing.
    """

    __slots__ = ()

    @property
    def content_format(self) -> str:
        """See `Chat.content_format`."""
        return "string"

    @property
    def templates(self) -> Mapping[str, ChatTemplate] | None:
        """See `Chat.templates`."""
        return {}

    @property
    def request_fields(self) -> frozenset[str]:
        """See `Chat.request_fields`."""
        return frozenset()

    def with_template(self, template: ChatTemplate) -> Self:
        """See `Chat.with_template`."""
        return self

    def with_content_format(self, content_format: str) -> Self:
        """See `Chat.with_content_format`."""
        return self

    def begin(self, request: Request, reuse: ChatReuse) -> None:
        """See `Chat.begin`: nothing is kept."""
