"""Compares the predicted blocks of each request with those that the engine announced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, Reason
from mmroute.kv_events import EventBatch
from mmroute.kv_events.holders import low_bits
from mmroute.lab.engines import judge_of
from mmroute.lab.parity.cases import Case, Outcome, Served, UndecidedError
from mmroute.lab.parity.comparison import Finding, Verdict, judged, other_ids, outcome_of
from mmroute.lab.parity.differences import first_difference
from mmroute.lab.parity.events.chains import Chain, Chains
from mmroute.lab.parity.events.stored import EngineCache
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of
from mmroute.requests.request import Request

_NOTHING_TOLD: Final = (
    "none of its blocks was announced: it has no full block, or all were cached; send a longer "
    "prompt"
)


@dataclass(frozen=True, slots=True)
class Announced:
    """One request, and the events that the engine sent for it."""

    case: Case
    batches: tuple[EventBatch, ...] = ()  # the events that came after the request
    # The data of the prompt in the engine's response.
    served: Served = field(default_factory=Served)
    unsent: str = ""  # why the request was not sent, or not answered; empty if it was
    payloads: tuple[bytes, ...] = ()  # the same events as they were sent, for a recording


def compare_announced(
    model: ResolvedModel, all_announced: Iterable[Announced], *, alone: bool = False
) -> Iterator[Finding]:
    """Compare request by request."""
    yield from map(_Comparison(model, alone=alone).finding, all_announced)


def compare_watched(model: ResolvedModel, batches: Iterable[EventBatch]) -> Iterator[Finding]:
    """Compare how announced prompts are hashed; their requests are not known."""
    judge = judge_of(model)
    for number, chain in enumerate(Chains().enter(batches), start=1):
        case = Case(f"prompt-{number}", "watched", {"prompt_token_ids": chain.token_ids.tolist()})
        outcome, size = Outcome(chain.token_ids), model.hashing.settings.block_size
        hashes = judge.rehashed(model, chain)
        if chain.block_size != size:
            yield Finding(case, outcome, outcome, Verdict.SILENT, _other_size(chain, size))
        elif hashes is None:
            yield _undecided(case, outcome, judge.UNKNOWN_HASHES)
        elif hashes != list(chain.hashes):
            yield Finding(case, outcome, outcome, Verdict.SILENT, judge.OTHER_HASHES)
        else:
            yield Finding(case, outcome, outcome, Verdict.EQUAL)


class _Comparison:
    def __init__(self, model: ResolvedModel, *, alone: bool) -> None:
        self._model = model
        self._alone = alone
        self._judge = judge_of(model)
        self._cache = EngineCache(model, self._judge)
        self._chains = Chains()

    def finding(self, one: Announced) -> Finding:
        new = self._chains.enter(one.batches)
        ours = None
        try:
            routing = answer(self._model, _request(one.case))
            ours = outcome_of(routing)
            reused = self._cache.reused_tokens(routing) if self._alone and routing.exact else None
            self._cache.enter(one.batches)
            if one.unsent:
                return _undecided(one.case, ours, one.unsent)
            if one.served.refusal is not None:
                return judged(one.case, ours, Outcome(refusal=one.served.refusal))
            chain = self._of_request(new, routing) or self._known(routing)
            told = one.served.token_ids
            if told is None and chain is None:
                return _undecided(one.case, ours, _NOTHING_TOLD)
            if not routing.exact or (
                told is not None and not np.array_equal(told, routing.token_ids)
            ):
                theirs = chain.token_ids if told is None and chain is not None else told
                return judged(one.case, ours, Outcome(theirs))
            return self._compared(one, routing, chain, reused)
        except (InexactError, UndecidedError) as error:
            return _undecided(one.case, ours or Outcome(refusal=str(error)), str(error))

    def _compared(
        self, one: Announced, routing: Routing, chain: Chain | None, reused: int | None
    ) -> Finding:
        """The finding for a request that both sides answer."""
        verdict = Verdict.SILENT
        try:
            if routing.hashing.of_kind is None or None in routing.identities:
                return self._by_tokens(one, routing, chain)
            wrong = self._difference(one, routing, chain, reused)
        except InexactError as error:
            if error.reason is not Reason.BLOCK_SIZE_UNKNOWN or chain is None:
                raise
            wrong, verdict = _other_size(chain, None), Verdict.UNNEEDED
        told = one.served.token_ids is not None
        ours = theirs = routing.token_ids
        if not told and chain is not None:
            ours, theirs = self._judge.event_ids(routing)[: len(chain.token_ids)], chain.token_ids
        if wrong:
            return Finding(one.case, Outcome(ours), Outcome(theirs), verdict, wrong)
        if self._cache.announced(routing):
            return Finding(one.case, Outcome(ours), Outcome(theirs), Verdict.EQUAL)
        if not told:
            return _undecided(one.case, Outcome(ours), _NOTHING_TOLD)
        return Finding(one.case, Outcome(ours), Outcome(theirs), Verdict.NO_BLOCK, _NOTHING_TOLD)

    def _difference(
        self, one: Announced, routing: Routing, chain: Chain | None, reused: int | None
    ) -> str:
        """What differs in the blocks of a request; empty if nothing does."""
        problem = self._cache.problem(routing, one.batches, alone=self._alone)
        if problem:
            what = self._of_chain(routing, chain) if chain else ""
            return what or f"The blocks that the engine stored are not those predicted: {problem}."
        if chain is not None and self._is_of(chain, routing) and not self._cache.announced(routing):
            what = "The engine stored blocks of this prompt, and mmroute predicts none of them."
            return self._of_chain(routing, chain) or what
        cached = one.served.cached_tokens
        if reused is not None and cached is not None and reused != cached:
            return (
                f"The engine took {cached} tokens from its cache, and mmroute predicted {reused}."
            )
        return ""

    def _by_tokens(self, one: Announced, routing: Routing, chain: Chain | None) -> Finding:
        """The finding where no hashes are predicted: the IDs are the same, where they are told."""
        ours = theirs = Outcome(routing.token_ids)
        if chain is None:
            if one.served.token_ids is None:
                return _undecided(one.case, ours, _NOTHING_TOLD)
            return Finding(one.case, ours, theirs, Verdict.NO_BLOCK, _NOTHING_TOLD)
        wrong = self._judge.unpredicted(self._model, routing, chain)
        return Finding(one.case, ours, theirs, Verdict.SILENT if wrong else Verdict.EQUAL, wrong)

    def _known(self, routing: Routing) -> Chain | None:
        """The blocks of a request that the engine had cached before."""
        try:
            return self._chains.with_hashes(routing.hashes().event_ints())
        except (InexactError, ValueError):
            return None

    def _of_chain(self, routing: Routing, chain: Chain) -> str:
        """What differs in announced blocks: their size, tokens, extra keys or hashes."""
        size, judge = chain.block_size, self._judge
        if size != routing.hashing.settings.block_size:
            return _other_size(chain, routing.hashing.settings.block_size)
        ids = judge.event_ids(routing)
        length = min(len(chain.token_ids), len(ids) // size * size)
        if not np.array_equal(ids[:length], chain.token_ids[:length]):
            ranges = [(placed.offset, placed.length) for placed in routing.placeholders]
            return other_ids(ids, chain.token_ids, ranges, whole=False)
        predicted = judge.event_keys(routing, size) if chain.keys else ()
        for block, (expected, keys) in enumerate(zip(predicted, chain.keys or (), strict=False)):
            if keys != expected:
                return f"Block {block} has the extra keys {keys}, and mmroute predicts {expected}."
        covered = judge.lookahead(routing)
        if len(chain.ahead) != covered:
            return (
                f"The hashes cover {len(chain.ahead)} tokens behind their block (speculative "
                f"decoding), and were taken to cover {covered}: give {judge.SPECULATION}."
            )
        try:
            hashes = routing.hashes().event_ints()
        except ValueError as error:  # of an algorithm whose seed is not known
            return str(error)
        same = list(map(low_bits, hashes[: len(chain.hashes)])) == list(chain.hashes)
        return "" if same else judge.OTHER_HASHES

    def _is_of(self, chain: Chain, routing: Routing) -> bool:
        """Whether an announced prompt is this one: its tokens, and its salt where that is told."""
        salted = chain.keys is not None and routing.cache_salt is not None
        if salted and routing.cache_salt not in chain.salts:
            return False
        ids = self._judge.event_ids(routing)
        length = min(len(chain.token_ids), len(ids))
        return np.array_equal(chain.token_ids[:length], ids[:length])

    def _of_request(self, chains: Sequence[Chain], routing: Routing) -> Chain | None:
        """The announced prompt that has most in common with ours, as others may be announced."""
        if not routing.exact:
            return next(iter(chains), None)
        ids = self._judge.event_ids(routing)

        def alike(chain: Chain) -> tuple[bool, int]:
            return routing.cache_salt in chain.salts, first_difference(ids, chain.token_ids)

        return max(chains, key=alike, default=None)


def _other_size(chain: Chain, known: int | None) -> str:
    used = "was told none" if known is None else f"used {known}"
    return f"The engine's blocks have {chain.block_size} tokens, and mmroute {used}."


def _request(case: Case) -> Request:
    fields = dict(case.request)
    if fields.get("messages") is not None:
        fields["messages"] = with_pictures(fields["messages"], fields.pop("images", None))
    return request_of(fields)


def _undecided(case: Case, ours: Outcome, why: str) -> Finding:
    return Finding(case, ours, None, Verdict.UNDECIDED, note=why)
