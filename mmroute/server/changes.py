"""Changes of the models of a server, as its processes tell them to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmroute.server.loading import ModelSource

__all__ = ["Change"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the models of a server.

    Attributes:
        kind: `add`, `replace`, `remove`; or `failed`, of a model that another process loads.
        name: that is replaced or removed; or why it failed.
        source: of the new model, as an operator names it.
    """

    kind: str
    name: str = ""
    source: ModelSource | None = None

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        source = self.source and {
            name: getattr(self.source, name)
            for name in ("model", "names", "model_id", "revision", "backend")
        }
        return {"kind": self.kind, "name": self.name, "source": source}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Change:
        """What `as_json` gave."""
        source = given["source"]
        if source is not None:
            source = ModelSource(**{**source, "names": tuple(source["names"])})
        return cls(given["kind"], given["name"], source)
