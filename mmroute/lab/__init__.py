"""Proof, measurement and new models: what no router needs to answer a request."""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.lab.traces.explain import Explanation, explain

__all__ = ["Explanation", "explain"]

__getattr__ = lazily(
    __name__,
    {
        "Explanation": "mmroute.lab.traces.explain",
        "explain": "mmroute.lab.traces.explain",
    },
)
