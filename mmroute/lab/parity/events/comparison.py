"""Compares the predicted blocks of each request with those that the engine announced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.engines.running import RunningEngine
from mmroute.errors import InexactError, Reason
from mmroute.kv_events import EventBatch
from mmroute.lab.parity.cases import Case, Outcome, Served, UndecidedError
from mmroute.lab.parity.causes import Cause, Remedy
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.lab.parity.differences import first_difference
from mmroute.lab.parity.events.chains import Chain, Chains
from mmroute.lab.parity.events.explanation import Explainer, most_alike
from mmroute.lab.parity.events.remedies import block_size_remedy, items_and_salts
from mmroute.lab.parity.events.stored import EngineCache
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.lab.parity.refusals import engine_refuses, mmroute_refuses
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

_NOTHING_TOLD: Final = (
    "none of its blocks was announced: it has no full block, or all were cached; send a longer "
    "prompt"
)


@dataclass(frozen=True, slots=True)
class Announced:
    """One request, and the events that the engine sent for it.

    Attributes:
        case: the request.
        batches: the events that came after the request.
        served: the data of the prompt in the engine's response.
        unsent: why the request was not sent, or not answered; empty if it was.
    """

    case: Case
    batches: tuple[EventBatch, ...] = ()
    served: Served = field(default_factory=Served)
    unsent: str = ""


def compare_announced(
    model: ResolvedModel,
    all_announced: Iterable[Announced],
    *,
    alone: bool = False,
    running: RunningEngine | None = None,
) -> Iterator[Finding]:
    """Compare request by request."""
    comparison = _Comparison(model, alone=alone, running=running)
    yield from map(comparison.finding, all_announced)


def compare_watched(model: ResolvedModel, batches: Iterable[EventBatch]) -> Iterator[Finding]:
    """Compare how announced prompts are hashed; their requests are not known."""
    chains = Chains()
    explainer = Explainer(model, chains)
    for number, chain in enumerate(chains.enter(batches), start=1):
        case = Case(f"prompt-{number}", "watched", {"prompt_token_ids": chain.token_ids.tolist()})
        yield _watched(model, explainer, case, chain)


def proposal(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The settings that would remove most differences: together they remove each of these."""
    diagnoses = (finding.diagnosis for finding in findings)
    counts = Counter(d.alternatives for d in diagnoses if d is not None and d.alternatives)
    return max(counts, key=lambda settings: counts[settings], default=())


class _Comparison:
    def __init__(
        self, model: ResolvedModel, *, alone: bool = False, running: RunningEngine | None = None
    ) -> None:
        self._model = model
        self._context = None if running is None else running.max_model_len
        self._alone = alone
        self._cache = EngineCache()
        self._chains = Chains()
        self._explainer = Explainer(model, self._chains, alone=alone, running=running)

    def finding(self, one: Announced) -> Finding:
        new = self._chains.enter(one.batches)
        ours = None
        try:
            request = _request(one.case)
            routing = answer(self._model, request)
            ours = _outcome(routing)
            reused = self._cache.reused_tokens(routing) if self._alone and routing.exact else None
            self._cache.enter(one.batches)
            if one.unsent:
                return _undecided(one.case, ours, one.unsent)
            if one.served.refusal is not None:
                return self._refused(one.case, routing, one.served.refusal)
            chain = _of_request(new, routing) or self._known(routing)
            if one.served.token_ids is None and chain is None:
                return _without_block(one, ours)
            if not routing.exact:
                theirs = one.served.token_ids if chain is None else chain.token_ids
                return self._unneeded(one.case, request, routing, theirs)
            remedies = list(self._differences(one, request, routing, chain, reused))
        except (InexactError, UndecidedError) as error:
            return _undecided(one.case, ours or Outcome(refusal=str(error)), str(error))
        compared = remedies or self._cache.announced(routing)
        return _found(one, routing, chain, remedies) if compared else _without_block(one, ours)

    def _differences(
        self,
        one: Announced,
        request: Request,
        routing: Routing,
        chain: Chain | None,
        reused: int | None,
    ) -> Iterator[Remedy]:
        """The causes by which an answer to a request differs; none if it is the engine's."""
        told = one.served.token_ids
        if told is not None and not np.array_equal(routing.token_ids, told):
            yield self._explainer.of_ids(request, routing, told)
            return
        explained = partial(
            self._explainer.of_blocks,
            request,
            routing,
            chain,
            one.batches,
            told=told is not None,
        )
        try:
            problem = self._cache.problem(routing, one.batches, alone=self._alone)
        except InexactError as error:
            found = explained() if error.reason is Reason.BLOCK_SIZE_UNKNOWN else ()
            if not found:
                raise
            yield from found
            return
        if problem:
            why = f"The blocks that the engine stored are not those predicted: {problem}."
            yield from explained() or (Remedy(Cause.STORED, why),)
            return
        if chain is not None and _is_of(chain, routing) and not self._cache.announced(routing):
            why = "The engine stored blocks of this prompt, and mmroute predicts none of them."
            yield from explained() or (Remedy(Cause.STORED, why),)
            return
        cached = one.served.cached_tokens
        if reused is not None and cached is not None and reused != cached:
            why = f"The engine took {cached} tokens from its cache, and mmroute predicted {reused}."
            yield Remedy(Cause.REUSE, why)

    def _refused(self, case: Case, routing: Routing, refusal: str) -> Finding:
        ours, theirs = _outcome(routing), Outcome(refusal=refusal)
        if not routing.exact:
            return Finding(case, ours, theirs, Verdict.REFUSED)
        remedies = list(engine_refuses(self._model, refusal))
        return Finding(case, ours, theirs, Verdict.SILENT, Remedy.diagnosis(remedies, 0))

    def _unneeded(
        self, case: Case, request: Request, routing: Routing, theirs: TokenIds | None
    ) -> Finding:
        """The finding for a request that only the engine answers."""
        ours = _outcome(routing)
        remedies = list(mmroute_refuses(self._model, request, routing, self._context))
        found = Remedy.diagnosis(remedies, 0) if remedies else None
        return Finding(case, ours, Outcome(theirs), Verdict.UNNEEDED, found, ours.refusal or "")

    def _known(self, routing: Routing) -> Chain | None:
        """The blocks of a request that the engine had cached before."""
        try:
            return self._chains.with_hashes(routing.block_hashes().event_ints())
        except (InexactError, ValueError):
            return None


def _watched(model: ResolvedModel, explainer: Explainer, case: Case, chain: Chain) -> Finding:
    """The finding for a prompt of others: its hashes, without token IDs and identities."""
    theirs = Outcome(chain.token_ids)
    remedies = []
    if chain.block_size != model.hashing.settings.block_size:
        remedies.append(block_size_remedy(chain.block_size, model.hashing.settings))
    remedies += explainer.of_hashes(model.hashing, None, chain)
    if not remedies:
        return Finding(case, theirs, theirs, Verdict.EQUAL)
    return Finding(case, theirs, theirs, Verdict.SILENT, Remedy.diagnosis(remedies, 0))


def _request(case: Case) -> Request:
    fields = dict(case.request)
    if fields.get("messages") is not None:
        fields["messages"] = with_pictures(fields["messages"], fields.pop("images", None))
    return request_of(fields)


def _outcome(routing: Routing) -> Outcome:
    if not routing.exact:
        return Outcome(refusal=f"{routing.reason}: {routing.message}")
    return Outcome(routing.token_ids)


def _found(
    one: Announced, routing: Routing, chain: Chain | None, remedies: Sequence[Remedy]
) -> Finding:
    """The finding for a request that both sides answer."""
    ours = routing.token_ids
    theirs = one.served.token_ids
    if theirs is None and chain is not None:
        length = min(len(ours), len(chain.token_ids))
        ours, theirs = ours[:length], chain.token_ids
    if not remedies or theirs is None:
        return Finding(one.case, Outcome(ours), Outcome(theirs), Verdict.EQUAL)
    diagnosis = Remedy.diagnosis(remedies, first_difference(ours, theirs))
    unsized = diagnosis.cause is Cause.BLOCK_SIZE and routing.hashing.settings.block_size is None
    verdict = Verdict.UNNEEDED if unsized else Verdict.SILENT
    return Finding(one.case, Outcome(ours), Outcome(theirs), verdict, diagnosis)


def _without_block(one: Announced, ours: Outcome) -> Finding:
    """The finding for a request of which at most the token IDs were compared."""
    if one.served.token_ids is None:
        return _undecided(one.case, ours, _NOTHING_TOLD)
    theirs = Outcome(one.served.token_ids)
    return Finding(one.case, ours, theirs, Verdict.NO_BLOCK, note=_NOTHING_TOLD)


def _undecided(case: Case, ours: Outcome, why: str) -> Finding:
    return Finding(case, ours, None, Verdict.UNDECIDED, note=why)


def _is_of(chain: Chain, routing: Routing) -> bool:
    """Whether an announced prompt is this one: its tokens are, and its salt where that is told."""
    salted = chain.keys is not None and routing.cache_salt is not None
    if salted and routing.cache_salt not in items_and_salts(chain)[1]:
        return False
    length = min(len(chain.token_ids), len(routing.token_ids))
    return np.array_equal(chain.token_ids[:length], routing.token_ids[:length])


def _of_request(chains: Sequence[Chain], routing: Routing) -> Chain | None:
    """The announced prompt that has most in common with ours, as others may be announced, too."""
    return next(iter(most_alike(chains, routing) if routing.exact else chains), None)
