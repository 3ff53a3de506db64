"""Changes of the models of a server, as its processes tell them to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmroute.server.loading import ModelSource


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the models of a server.

    Attributes:
        kind: what happens; `failed` is said of a model that another process loads.
        name: the model that is replaced or removed; for `failed`, why it failed.
        source: the new model's source, as an operator names it.
    """

    kind: Literal["add", "replace", "remove", "failed"]
    name: str = ""
    source: ModelSource | None = None
