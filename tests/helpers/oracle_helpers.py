"""Cases that the tests of the oracles ask about, and an oracle that is a model."""

from __future__ import annotations

from typing import Any

import pytest

from mmroute.lab.parity.cases import Case, Oracle, Outcome, UndecidedError
from mmroute.lab.parity.comparison import our_outcome
from mmroute.model.resolved import ResolvedModel

IMAGE = {"type": "image"}
SIZE = {"width": 40, "height": 30}
META = {"kind": "meta", "model": "m", "backend": "vllm", "backend_version": "0.33.0"}
MODEL = "pixtral-12b-2409"


class RightEngine:
    """An oracle that is a model without the planted fault."""

    name = "right"
    version = "0"
    running = None

    def __init__(self, model: ResolvedModel) -> None:
        self.model = model

    def answer(self, case: Case) -> Outcome:
        return our_outcome(self.model, case)


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def case(**request: Any) -> Case:
    return Case("c", "test", request)


def ids(oracle: Oracle, asked: Case) -> list[int]:
    answer = oracle.answer(asked)
    assert answer.token_ids is not None, answer.refusal
    found: list[int] = answer.token_ids.tolist()
    return found


def undecided(oracle: Oracle, asked: Case) -> str:
    with pytest.raises(UndecidedError) as caught:
        oracle.answer(asked)
    return str(caught.value)
