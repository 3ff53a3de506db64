"""Compares the predicted blocks of each request with those that the engine announced.

Three layers are compared: token IDs, extra keys, hashes. Each is computed from the engine's values
of the layers before it, so that one wrong setting does not hide another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.engines.hashes import Hashes
from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.hashing import num_hashed
from mmroute.kv_events import EventBatch
from mmroute.kv_events.holders import low_bits
from mmroute.model.resolved import ResolvedModel
from mmroute.pages.alignment import first_difference
from mmroute.parity.cases import Case, Outcome, Served, UndecidedError
from mmroute.parity.causes import Cause, Remedy
from mmroute.parity.comparison import Finding, Verdict
from mmroute.parity.events.chains import Chain, Chains, stored_in
from mmroute.parity.events.hashings import HashedWith, hashed_with, predicted_keys
from mmroute.parity.events.remedies import (
    block_size_remedy,
    expected_settings,
    items_and_salts,
    key_remedies,
    lookahead_remedy,
    setting_remedies,
    unexplained_remedy,
)
from mmroute.parity.events.stored import EngineCache
from mmroute.parity.oracles.pictures import with_pictures
from mmroute.parity.refusals import engine_refuses, mmroute_refuses
from mmroute.parity.remedies import token_remedy
from mmroute.requests.lines import request_of
from mmroute.requests.request import Lora, Request

_UNEXPLAINED: Final = (
    "No algorithm, layout or PYTHONHASHSEED up to 1999 gives the announced hashes. Without "
    "PYTHONHASHSEED, xxhash and vLLM before 0.29 draw a seed at random: set it."
)
_UNTOLD: Final = (
    "The events do not have the extra keys. With the identities, the adapter and the salt that "
    "mmroute predicts, no algorithm, layout or PYTHONHASHSEED up to 1999 gives the announced "
    "hashes. If only requests with images differ, the engine has another model string, which "
    "--engine URL asks for."
)

_NOTHING_TOLD: Final = "none of its blocks was announced: it has no full block, or all were cached"


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
    """Compare request by request.

    Args:
        model: the model with the settings to check.
        all_announced: the requests in their order, with the events of each.
        alone: whether these are all requests that the engine gets. Then every block that it stores
            must be predicted, and the tokens that it takes from its cache.
        running: the engine, as its server describes it; None if the server was not asked.
    """
    comparison = _Comparison(model, alone=alone, running=running)
    yield from map(comparison.finding, all_announced)


def compare_watched(model: ResolvedModel, batches: Iterable[EventBatch]) -> Iterator[Finding]:
    """Compare how announced prompts are hashed; their requests are not known."""
    comparison = _Comparison(model)
    for number, chain in enumerate(Chains().enter(batches), start=1):
        case = Case(f"prompt-{number}", "watched", {"prompt_token_ids": chain.token_ids.tolist()})
        yield comparison.watched(case, chain)


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
        self._engine_model = "" if running is None else running.model_string
        self._context = None if running is None else running.max_model_len
        self._frontend_known = running is not None and running.frontend is model.engine.frontend
        self._alone = alone
        self._cache = EngineCache()
        self._chains = Chains()
        # The settings found for one request are tried first for the next one.
        self._found: HashedWith | None = None
        self._arguments: list[Mapping[str, Any]] = []

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
                return _undecided(one.case, ours, _NOTHING_TOLD)
            if not routing.exact:
                theirs = one.served.token_ids if chain is None else chain.token_ids
                return self._unneeded(one.case, request, routing, theirs)
            remedies = list(self._differences(one, request, routing, chain, reused))
        except (InexactError, UndecidedError) as error:
            return _undecided(one.case, ours or Outcome(refusal=str(error)), str(error))
        return _found(one, routing, chain, remedies)

    def _differences(
        self,
        one: Announced,
        request: Request,
        routing: Routing,
        chain: Chain | None,
        reused: int | None,
    ) -> Iterator[Remedy]:
        """The causes by which an answer to a request differs; none if it is the engine's.

        Raises:
            InexactError: the request has no block hashes.
        """
        told = one.served.token_ids
        if told is not None and not np.array_equal(routing.token_ids, told):
            fits = partial(_has_ids, told)
            yield self._token_remedy(request, routing, told, fits, whole=True)
            return
        explained = partial(self._explained, one, request, routing, chain)
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

    def _token_remedy(
        self,
        request: Request,
        routing: Routing,
        theirs: TokenIds,
        fits: Callable[[Routing], bool],
        *,
        whole: bool,
    ) -> Remedy:
        return token_remedy(
            self._model,
            request,
            routing,
            theirs,
            fits=fits,
            arguments_found=self._arguments,
            whole=whole,
            frontend_known=self._frontend_known,
        )

    def watched(self, case: Case, chain: Chain) -> Finding:
        """The finding for a prompt of others: its hashes, without token IDs and identities."""
        hashing = self._model.hashing
        theirs = Outcome(chain.token_ids)
        remedies = []
        if chain.block_size != hashing.settings.block_size:
            remedies.append(block_size_remedy(chain.block_size, hashing.settings))
        remedies += self._hash_remedies(hashing, None, chain)
        if not remedies:
            return Finding(case, theirs, theirs, Verdict.EQUAL)
        return Finding(case, theirs, theirs, Verdict.SILENT, Remedy.diagnosis(remedies, 0))

    def _known(self, routing: Routing) -> Chain | None:
        """The blocks of a request that the engine had cached before."""
        try:
            return self._chains.with_hashes(routing.block_hashes().event_ints())
        except (InexactError, ValueError):
            return None

    def _explained(
        self, one: Announced, request: Request, routing: Routing, chain: Chain | None
    ) -> tuple[Remedy, ...]:
        """The causes by which stored blocks differ; none if it is not known which ones they are.

        If nothing was stored, any announced prompt may be the request's whose tokens are the same,
        such as one with another picture of that size: the one is taken that settings explain best.
        """
        stored = [number for e in stored_in(one.batches) for number in e.block_hashes]
        if chain is None and stored:
            before = tuple(self._as_before(routing, set(map(low_bits, stored))))
            if before or self._alone:
                return before
        ids = routing.token_ids
        chains = [chain] if chain else _most_alike(self._chains.with_tokens(ids), routing)
        told = one.served.token_ids is not None  # they are equal, else nothing else is compared
        found = (tuple(self._of_blocks(request, routing, each, told=told)) for each in chains)
        return min(found, key=lambda causes: sum(not c.setting for c in causes), default=())

    def _as_before(self, routing: Routing, stored: set[int]) -> Iterator[Remedy]:
        """The causes found for earlier requests, if they explain blocks of unknown positions."""
        found, expected = self._found, expected_settings(routing.hashing, routing.lora)
        if found is None or found.tagged != expected.tagged:
            return
        hashes = routing.block_hashes(found.algorithm, seed=found.seed).hashes
        if stored <= set(map(low_bits, hashes)):
            yield from setting_remedies(found, expected)

    def _of_blocks(
        self, request: Request, routing: Routing, chain: Chain, *, told: bool
    ) -> Iterator[Remedy]:
        """The causes by which announced blocks differ from those of a request."""
        size = chain.block_size
        full = _num_published(routing, chain)
        length = min(full, len(chain.token_ids))
        other_size = size != routing.hashing.settings.block_size
        if other_size:
            yield block_size_remedy(size, routing.hashing.settings)
        ours, theirs = routing.token_ids[:length], chain.token_ids[:length]
        other_ids = not told and (length < full or not np.array_equal(ours, theirs))
        if other_ids:
            fits = partial(_announced, chain)
            yield self._token_remedy(request, routing, chain.token_ids, fits, whole=False)
        if chain.keys is not None:
            yield from key_remedies(self._model, request, routing, chain, self._engine_model)
            yield from self._hash_remedies(routing.hashing, routing.lora, chain)
        elif not (other_size or other_ids):
            predicted = _with_predicted_keys(chain, routing)
            yield from self._hash_remedies(routing.hashing, routing.lora, predicted, _UNTOLD)

    def _hash_remedies(
        self, hashing: Hashes, lora: Lora | None, chain: Chain, unexplained: str = _UNEXPLAINED
    ) -> Iterator[Remedy]:
        expected = expected_settings(hashing, lora)
        covered = hashing.lookahead if isinstance(hashing, VllmHashes) else 0
        if len(chain.ahead) != covered:
            yield lookahead_remedy(len(chain.ahead), covered)
        paths = [path for path in (expected.lora_path, chain.lora_name) if path]
        found = hashed_with(chain, self._found or expected, paths)
        if found is None:
            yield unexplained_remedy(chain, unexplained)
            return
        self._found = found
        yield from setting_remedies(found, expected)
        if lora is not None and found.lora_path != expected.lora_path:
            why = f"The adapter's path is {found.lora_path!r}, not {expected.lora_path!r}."
            yield Remedy(Cause.LORA, why)


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


def _undecided(case: Case, ours: Outcome, why: str) -> Finding:
    return Finding(case, ours, None, Verdict.UNDECIDED, note=why)


def _of_request(chains: Sequence[Chain], routing: Routing) -> Chain | None:
    """The announced prompt that has most in common with ours, as others may be announced, too."""
    return next(iter(_most_alike(chains, routing) if routing.exact else chains), None)


def _most_alike(chains: Sequence[Chain], routing: Routing) -> list[Chain]:
    """The announced prompts that have most in common with an exact answer."""
    ours = [identity.value for identity in routing.identities if identity is not None]

    def alike(chain: Chain) -> tuple[bool, bool, int]:
        names, salts = items_and_salts(chain)
        same_items = bool(names) and names == ours[: len(names)]
        common = first_difference(routing.token_ids, chain.token_ids)
        return routing.cache_salt in salts, same_items, common

    likeness = [alike(chain) for chain in chains]
    return [c for c, found in zip(chains, likeness, strict=True) if found == max(likeness)]


def _has_ids(theirs: TokenIds, routing: Routing) -> bool:
    return routing.exact and np.array_equal(routing.token_ids, theirs)


def _num_published(routing: Routing, chain: Chain) -> int:
    """The number of tokens of a prompt whose blocks the engine publishes."""
    hashed = num_hashed(len(routing.token_ids), chain.block_size, len(chain.ahead))
    return routing.hashing.settings.num_published(hashed) * chain.block_size


def _announced(chain: Chain, routing: Routing) -> bool:
    """Whether all full blocks of a prompt were announced; blocks of an output may follow them."""
    if not routing.exact:
        return False
    length = _num_published(routing, chain)
    ours: TokenIds = routing.token_ids[:length]
    return length > 0 and np.array_equal(ours, chain.token_ids[:length])


def _with_predicted_keys(chain: Chain, routing: Routing) -> Chain:
    """The announced blocks with our extra keys, because the events do not have the engine's.

    Raises:
        InexactError: the extra keys are not known.
    """
    keys = predicted_keys(routing, chain.block_size)
    length = len(keys) * chain.block_size
    return replace(
        chain,
        token_ids=chain.token_ids[:length],
        hashes=chain.hashes[: len(keys)],
        keys=tuple(keys),
    )
