"""Compares the predicted blocks of each request with those that the engine announced.

Three layers are compared: token IDs, extra keys, hashes. Each is computed from the engine's values
of the layers before it, so that one wrong setting does not hide another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.engines.hashes import Hashes, HashSettings
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.hashing import event_extra_keys, num_hashed
from mmroute.kv_events import EventBatch
from mmroute.model.resolved import ResolvedModel
from mmroute.pages.alignment import first_difference
from mmroute.parity.cases import Case, Outcome, UndecidedError
from mmroute.parity.causes import Cause, Diagnosis, Remedy
from mmroute.parity.comparison import Finding, Verdict
from mmroute.parity.events.chains import Chain, Chains
from mmroute.parity.events.hashings import HashedWith, hashed_with, tagged
from mmroute.parity.events.remedies import key_remedies
from mmroute.parity.oracles.pictures import with_pictures
from mmroute.parity.remedies import token_remedy
from mmroute.requests.lines import request_of
from mmroute.requests.request import Lora, Request

_TAGGED_SINCE: Final = "0.31"
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


@dataclass(frozen=True, slots=True)
class Announced:
    """One request, and the events that the engine sent for it.

    Attributes:
        case: the request.
        batches: the events that came after the request.
        refused: the engine's refusal; None if the engine answered.
    """

    case: Case
    batches: tuple[EventBatch, ...] = ()
    refused: str | None = None


def compare_announced(
    model: ResolvedModel, all_announced: Iterable[Announced]
) -> Iterator[Finding]:
    """Compare request by request.

    Args:
        model: the model with the settings to check.
        all_announced: the requests in their order, with the events of each.
    """
    yield from map(_Comparison(model).finding, all_announced)


def compare_watched(model: ResolvedModel, batches: Iterable[EventBatch]) -> Iterator[Finding]:
    """Compare how announced prompts are hashed; their requests are not known."""
    comparison = _Comparison(model)
    for number, chain in enumerate(Chains().enter(batches), start=1):
        case = Case(f"prompt-{number}", "watched", {"prompt_token_ids": chain.token_ids.tolist()})
        yield comparison.watched(case, chain)


def proposal(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The settings that would remove the differences; for each option the most frequent value."""
    counts: dict[str, dict[str, int]] = {}
    for finding in findings:
        for setting in finding.diagnosis.alternatives if finding.diagnosis else ():
            of_option = counts.setdefault(setting.replace("=", " ").split()[0], {})
            of_option[setting] = of_option.get(setting, 0) + 1
    return tuple(max(values, key=lambda setting: values[setting]) for values in counts.values())


class _Comparison:
    def __init__(self, model: ResolvedModel) -> None:
        self._model = model
        self._chains = Chains()
        # The settings found for one request are tried first for the next one.
        self._found: HashedWith | None = None
        self._arguments: list[Mapping[str, Any]] = []

    def finding(self, one: Announced) -> Finding:
        new = self._chains.enter(one.batches)
        try:
            request = _request(one.case)
        except (InexactError, UndecidedError) as error:
            return _undecided(one.case, Outcome(refusal=str(error)), str(error))
        routing = answer(self._model, request)
        if one.refused is not None:
            return _refused(one.case, routing, one.refused)
        chain = _of_request(new, routing) or self._known(routing)
        if chain is None:
            why = "none of its blocks was announced: it has no full block, or all were cached"
            return _undecided(one.case, _outcome(routing), why)
        if not routing.exact:
            note, theirs = _outcome(routing), Outcome(chain.token_ids)
            return Finding(one.case, note, theirs, Verdict.UNNEEDED, note=note.refusal or "")
        try:
            return self._compared(one.case, request, routing, chain)
        except InexactError as error:  # the request has no block hashes
            return _undecided(one.case, _outcome(routing), str(error))

    def watched(self, case: Case, chain: Chain) -> Finding:
        """The finding for a prompt of others: its hashes, without token IDs and identities."""
        hashing = self._model.hashing
        theirs = Outcome(chain.token_ids)
        remedies = []
        if chain.block_size != hashing.settings.block_size:
            remedies.append(_block_size(chain.block_size, hashing.settings))
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

    def _compared(self, case: Case, request: Request, routing: Routing, chain: Chain) -> Finding:
        size = chain.block_size
        full = num_hashed(len(routing.token_ids), size, len(chain.ahead)) * size
        length = min(full, len(chain.token_ids))
        ids = routing.token_ids[:length]
        ours, theirs = Outcome(ids), Outcome(chain.token_ids)
        remedies: list[Remedy] = []
        if size != routing.hashing.settings.block_size:
            remedies.append(_block_size(size, routing.hashing.settings))
        if length < full or not np.array_equal(ids, chain.token_ids[:length]):
            remedy = token_remedy(
                self._model,
                request,
                routing,
                chain.token_ids,
                fits=partial(_announced, chain),
                arguments_found=self._arguments,
            )
            remedies.append(remedy)
        if chain.keys is not None:
            remedies += key_remedies(self._model, request, routing, chain)
            remedies += self._hash_remedies(routing.hashing, routing.lora, chain)
        elif not remedies:
            predicted = _with_predicted_keys(chain, routing)
            remedies += self._hash_remedies(routing.hashing, routing.lora, predicted, _UNTOLD)
        if not remedies:
            hashes = tuple(routing.block_hashes().event_ints())
            if hashes == chain.hashes[: len(hashes)]:
                return Finding(case, ours, theirs, Verdict.EQUAL)
            why = "The token IDs and image identities are equal; the images' offsets may differ."
            remedies.append(Remedy(Cause.RANGES_ONLY, why))
        diagnosis = Remedy.diagnosis(remedies, first_difference(ids, chain.token_ids[:length]))
        return Finding(case, ours, theirs, Verdict.SILENT, diagnosis)

    def _hash_remedies(
        self, hashing: Hashes, lora: Lora | None, chain: Chain, unexplained: str = _UNEXPLAINED
    ) -> Iterator[Remedy]:
        expected = HashedWith(
            hashing.settings.algorithm,
            hashing.settings.seed,
            tagged(hashing),
            None if lora is None else lora.path,
        )
        covered = hashing.lookahead if isinstance(hashing, VllmHashes) else 0
        if len(chain.ahead) != covered:
            yield _lookahead(len(chain.ahead), covered)
        paths = [path for path in (expected.lora_path, chain.lora_name) if path]
        found = hashed_with(chain, self._found or expected, paths)
        if found is None:
            yield _unexplained(chain, unexplained)
            return
        self._found = found
        if found.algorithm != expected.algorithm:
            yield Remedy(
                Cause.ALGORITHM,
                f"The hashes are those of {found.algorithm}, not of {expected.algorithm}.",
                f"--prefix-caching-hash-algo {found.algorithm}",
            )
        if found.seed != expected.seed:
            seed, ours = found.seed or "not set", expected.seed or "not set"
            yield Remedy(
                Cause.SEED,
                f"The engine's PYTHONHASHSEED is {seed}, and mmroute used {ours}.",
                "" if found.seed is None else f"PYTHONHASHSEED={found.seed}",
            )
        if found.tagged != expected.tagged:
            versions = f"since {_TAGGED_SINCE}" if found.tagged else f"before {_TAGGED_SINCE}"
            yield Remedy(
                Cause.LAYOUT,
                f"The hashes have the layout of vLLM {versions}: give the version that runs with "
                "--backend vllm==VERSION.",
            )
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


def _refused(case: Case, routing: Routing, refusal: str) -> Finding:
    ours, theirs = _outcome(routing), Outcome(refusal=refusal)
    if not routing.exact:
        return Finding(case, ours, theirs, Verdict.EQUAL)
    why = f"The engine refuses this request ({refusal}), and mmroute answers it."
    return Finding(case, ours, theirs, Verdict.SILENT, Diagnosis(Cause.ORACLE_REFUSES, 0, why))


def _undecided(case: Case, ours: Outcome, why: str) -> Finding:
    return Finding(case, ours, None, Verdict.UNDECIDED, note=why)


def _of_request(chains: Sequence[Chain], routing: Routing) -> Chain | None:
    """The announced prompt that has most in common with ours, as others may be announced, too."""
    if not routing.exact:
        return next(iter(chains), None)

    def alike(chain: Chain) -> int:
        ours, theirs = routing.token_ids, chain.token_ids
        salts = {key for keys in (chain.keys or ())[:1] for key in keys or ()}
        return (len(ours) + 1) * (routing.cache_salt in salts) + first_difference(ours, theirs)

    return max(chains, key=alike, default=None)


def _announced(chain: Chain, routing: Routing) -> bool:
    """Whether all full blocks of a prompt were announced; blocks of an output may follow them."""
    if not routing.exact:
        return False
    size = chain.block_size
    length = num_hashed(len(routing.token_ids), size, len(chain.ahead)) * size
    ours: TokenIds = routing.token_ids[:length]
    return length > 0 and np.array_equal(ours, chain.token_ids[:length])


def _block_size(size: int, known: HashSettings) -> Remedy:
    return Remedy(
        Cause.BLOCK_SIZE,
        f"The engine's blocks have {size} tokens, and mmroute used {known.block_size}.",
        f"--block-size {size}",
    )


def _lookahead(found: int, expected: int) -> Remedy:
    return Remedy(
        Cause.LOOKAHEAD,
        f"The engine's hashes cover {found} tokens behind their block (speculative decoding), and "
        f"were taken to cover {expected}: --engine-args with its --speculative-config tells.",
    )


def _with_predicted_keys(chain: Chain, routing: Routing) -> Chain:
    """The announced blocks with our extra keys, because the events do not have the engine's.

    Raises:
        InexactError: the extra keys are not known.
    """
    hashed = routing.extra_keys(block_size=chain.block_size)
    keys = (event_extra_keys(hashed) or ()) if tagged(routing.hashing) else hashed
    length = len(keys) * chain.block_size
    return replace(
        chain,
        token_ids=chain.token_ids[:length],
        hashes=chain.hashes[: len(keys)],
        keys=tuple(keys),
    )


def _unexplained(chain: Chain, otherwise: str) -> Remedy:
    if chain.lora_name is not None:
        return Remedy(
            Cause.LORA,
            f"The hashes depend on the path of the adapter {chain.lora_name!r}, and no known path "
            "gives them: give it as lora_path in the request or by --lora-modules.",
        )
    return Remedy(Cause.HASHES_ONLY, otherwise)
