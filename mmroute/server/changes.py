"""Changes of a server's models, which its processes send to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmroute.server.loading import ModelSource


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the models of a server.

    Attributes:
        kind: the kind of change. `failed` means that another process could not load a model.
        name: the name of the model that is replaced or removed; for `failed`, the error.
        source: the source of the new model; None if a model is removed.
    """

    kind: Literal["add", "replace", "remove", "failed"]
    name: str = ""
    source: ModelSource | None = None
