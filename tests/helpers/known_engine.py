"""Engines of which all is known: another normalizer answers for them."""

from __future__ import annotations

from mmroute import Normalizer
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.comparison import our_outcome


class KnownEngine:
    """An engine of which all is known: another normalizer."""

    name, version, running = "engine", "1", None

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer

    def answer(self, case: Case) -> Outcome:
        return our_outcome(self._normalizer.model, case)


class RefusingEngine(KnownEngine):
    """An engine that refuses every request with an item."""

    def answer(self, case: Case) -> Outcome:
        return Outcome(refusal="400") if case.modalities else super().answer(case)
