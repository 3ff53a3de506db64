"""Proof, measurement and new models: what no router needs to answer a request."""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.lab.traces.explain import Explanation, explain
    from mmroute.lab.training import Example, training_example

__all__ = ["Example", "Explanation", "explain", "training_example"]

__getattr__ = lazily(
    __name__,
    {
        "Example": "mmroute.lab.training",
        "Explanation": "mmroute.lab.traces.explain",
        "explain": "mmroute.lab.traces.explain",
        "training_example": "mmroute.lab.training",
    },
)
