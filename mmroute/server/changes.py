"""Changes of a server's models, which its processes send to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmroute.server.loading import ModelSource


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the models of a server.

    Attributes:
        kind: the kind of change. `failed` means that another process could not load a model, and
            `block_size` that the KV events of a model's engine tell `block_size`.
        name: the name of the model that exists already; for `failed`, the error.
        source: the source of the new model; None if there is none.
        block_size: the number of tokens under one hash; None for other changes.
    """

    kind: Literal["add", "replace", "remove", "failed", "block_size"]
    name: str = ""
    source: ModelSource | None = None
    block_size: int | None = None
