"""Items of which the engine's own settings say something that was not observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from mmroute.errors import InexactError, Reason
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import Item, VideoSize


@dataclass(frozen=True, slots=True)
class RefusedItems:
    """Refuses every item; the model still answers requests without them.

    Attributes:
        why: what the settings say, and what they must say.
    """

    why: str

    def max_embeds(self, _: CachePlan) -> int:
        """The fewest, so that no cache is planned larger than the engine's."""
        return 1

    def with_overrides(self, _: Overrides) -> RefusedItems:
        return self

    def frames(self, _: VideoSize) -> NoReturn:
        self._refuse()

    def replacements(self, items: Sequence[Item], context: ModelContext) -> Iterator[Replacement]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InexactError(Reason.UNSUPPORTED_ENGINE_SETTING, self.why)
